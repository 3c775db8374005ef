package deploy_test

import (
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/notifyq/notifyq/cmd/internal/health"
	"github.com/notifyq/notifyq/cmd/internal/httpserver"
	"github.com/notifyq/notifyq/cmd/internal/settings"
)

type manifest struct {
	Kind     string
	Metadata struct{ Name string }
	Spec     struct {
		Replicas int
		Template *struct {
			Metadata struct{ Labels map[string]string }
			Spec     pod
		}
	}
}

type pod struct {
	Grace           int  `yaml:"terminationGracePeriodSeconds"`
	MountsToken     bool `yaml:"automountServiceAccountToken"`
	SecurityContext struct {
		RunAsNonRoot bool `yaml:"runAsNonRoot"`
		RunAsUser    int  `yaml:"runAsUser"`
	} `yaml:"securityContext"`
	Containers []container
	Volumes    []struct{ Name string }
}

type container struct {
	Name, Image     string
	Command         []string
	Env             []variable
	LivenessProbe   probe `yaml:"livenessProbe"`
	ReadinessProbe  probe `yaml:"readinessProbe"`
	SecurityContext struct {
		AllowPrivilegeEscalation *bool `yaml:"allowPrivilegeEscalation"`
		ReadOnlyRootFilesystem   bool  `yaml:"readOnlyRootFilesystem"`
		Capabilities             struct{ Drop []string }
	} `yaml:"securityContext"`
	Resources    struct{ Requests, Limits map[string]string }
	VolumeMounts []struct{ Name string } `yaml:"volumeMounts"`
	Lifecycle    struct {
		PreStop struct{ Sleep struct{ Seconds int } } `yaml:"preStop"`
	}
}

type probe struct {
	HTTPGet struct{ Path, Port string } `yaml:"httpGet"`
	Timeout int                         `yaml:"timeoutSeconds"`
}

type variable struct {
	Name, Value string
	ValueFrom   struct {
		SecretKeyRef struct{ Name, Key string } `yaml:"secretKeyRef"`
	} `yaml:"valueFrom"`
}

func manifests(t *testing.T) map[string]manifest {
	t.Helper()
	found := make(map[string]manifest)
	documents := yaml.NewDecoder(strings.NewReader(read(t, "deploy/kubernetes.yaml")))
	for {
		var m manifest
		err := documents.Decode(&m)
		if errors.Is(err, io.EOF) {
			return found
		}
		require.NoError(t, err)
		name := m.Kind + "/" + m.Metadata.Name
		require.NotContains(t, found, name)
		found[name] = m
	}
}

// secrets are what stands in for them, by name and key.
var secrets = map[string]string{
	"notifyq-database/url":          "postgres://u:p@db/notifyq?sslmode=verify-full",
	"notifyq-migration/url":         "postgres://u:p@db/notifyq?sslmode=verify-full",
	"notifyq-api/keys":              "0123456789abcdef:shop:schedule+read",
	"notifyq-worker/provider-url":   "https://gateway.example.com/deliver",
	"notifyq-worker/webhook-url":    "https://shop.example.com/hooks",
	"notifyq-worker/webhook-secret": "whsec_ZGVtby1vbmx5LXJlcGxhY2UtaXQtMTIzNDU2Nzg5MCE=",
}

func environment(t *testing.T, c container) map[string]string {
	t.Helper()
	env := make(map[string]string)
	for _, v := range c.Env {
		ref := v.ValueFrom.SecretKeyRef
		if ref.Name != "" {
			v.Value = secrets[ref.Name+"/"+ref.Key]
			require.NotEmpty(t, v.Value, "secret %s has no %s", ref.Name, ref.Key)
		}
		require.NotContains(t, env, v.Name)
		env[v.Name] = v.Value
	}
	return env
}

func TestKubernetesHasEverything(t *testing.T) {
	t.Parallel()
	found := manifests(t)
	for _, name := range []string{
		"Deployment/notifyq-api", "Deployment/notifyq-worker", "Service/notifyq-api", "PodDisruptionBudget/notifyq-api",
		"PodDisruptionBudget/notifyq-worker",
	} {
		require.Contains(t, found, name)
	}
	for _, m := range found {
		if m.Spec.Template == nil {
			continue
		}
		image := m.Spec.Template.Spec.Containers[0].Image
		require.Contains(t, found, "Job/notifyq-migrate-"+image[strings.LastIndex(image, ":")+1:], "all are of one version")
	}
	require.Greater(t, found["Deployment/notifyq-api"].Spec.Replicas, 1)
	require.Greater(t, found["Deployment/notifyq-worker"].Spec.Replicas, 1)
}

func TestKubernetesPodsMayDoNothingBesideTheirWork(t *testing.T) {
	t.Parallel()
	for name, m := range manifests(t) {
		if m.Spec.Template == nil {
			continue
		}
		spec := m.Spec.Template.Spec
		require.True(t, spec.SecurityContext.RunAsNonRoot, name)
		require.Positive(t, spec.SecurityContext.RunAsUser, name)
		require.False(t, spec.MountsToken, name)
		for _, c := range spec.Containers {
			require.NotNil(t, c.SecurityContext.AllowPrivilegeEscalation, name)
			require.False(t, *c.SecurityContext.AllowPrivilegeEscalation, name)
			require.True(t, c.SecurityContext.ReadOnlyRootFilesystem, name)
			require.Equal(t, []string{"ALL"}, c.SecurityContext.Capabilities.Drop, name)
			require.NotEmpty(t, c.Resources.Requests["memory"], name)
			require.NotEmpty(t, c.Resources.Limits["memory"], name)
			require.Len(t, c.VolumeMounts, len(spec.Volumes), name)
		}
	}
}

func TestKubernetesSettingsAndGraceFitTheBinaries(t *testing.T) {
	t.Parallel()
	for name, m := range manifests(t) {
		if m.Spec.Template == nil {
			continue
		}
		require.Len(t, m.Spec.Template.Spec.Containers, 1, name)
		c := m.Spec.Template.Spec.Containers[0]
		role, once := roleOf(t, c.Command)
		env := environment(t, c)
		if once {
			require.Contains(t, env, "DATABASE_URL")
			continue
		}
		loaded := load(t, role, env)
		drain := loaded.WorkerShutdownTimeout
		if role == settings.RoleAPI {
			drain = httpserver.DefaultGrace
		}
		drain += time.Duration(c.Lifecycle.PreStop.Sleep.Seconds) * time.Second
		require.GreaterOrEqual(t, time.Duration(m.Spec.Template.Spec.Grace)*time.Second, drain+spare, name)

		require.Equal(t, "/livez", c.LivenessProbe.HTTPGet.Path, name)
		require.Equal(t, "/readyz", c.ReadinessProbe.HTTPGet.Path, name)
		require.Greater(t, time.Duration(c.ReadinessProbe.Timeout)*time.Second, health.Timeout, name)
	}
}
