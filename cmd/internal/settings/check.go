package settings

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/notifyq/notifyq"
	"github.com/notifyq/notifyq/cmd/internal/auth"
	"github.com/notifyq/notifyq/publishers/webhook"
)

// checker asks what settings have to do with each other. Of a broken one nothing more is said. The library has some of
// these rules too, under its own names, and for workers only.
type checker struct {
	s        *Settings
	o        Options
	given    map[string]string
	broken   map[string]bool
	problems []error
}

func (c *checker) check() {
	c.need(!c.o.Dev && (c.o.Only == "" || c.o.Only == PartDatabase), "DATABASE_URL",
		"is required: postgres://user:password@host:5432/name")
	if c.o.Only != "" {
		return
	}
	s := c.s
	whole := c.whole("PROVIDER_TIMEOUT_MS", "JOB_VISIBILITY_TIMEOUT_SECONDS")
	if whole && s.ProviderTimeout > s.VisibilityTimeout-notifyq.LeaseMargin {
		c.add("PROVIDER_TIMEOUT_MS", fmt.Sprintf("must be at least %d ms shorter than JOB_VISIBILITY_TIMEOUT_SECONDS: "+
			"a call that outlived its claim could be made twice at once", notifyq.LeaseMargin.Milliseconds()))
	}
	if c.whole("WORKER_BATCH_SIZE", "WORKER_CONCURRENCY") && s.WorkerBatchSize < s.WorkerConcurrency {
		c.add("WORKER_BATCH_SIZE", "must be at least WORKER_CONCURRENCY")
	}
	if c.whole("MAX_RETRY_DELAY_MS", "BASE_RETRY_DELAY_MS") && s.MaxRetryDelay < s.BaseRetryDelay {
		c.add("MAX_RETRY_DELAY_MS", "must be at least BASE_RETRY_DELAY_MS")
	}
	if c.o.answers() && c.whole("HOST", "API_KEYS") {
		if err := auth.RequireKeys(s.Host, s.APIKeys); err != nil {
			c.problems = append(c.problems, err)
		}
	}
	if c.o.delivers() {
		c.checkProvider()
		c.checkWebhook()
	}
}

func (c *checker) checkProvider() {
	switch c.s.Provider {
	case ProviderHTTP:
		c.need(true, "PROVIDER_URL", "is required with PROVIDER=http")
	case ProviderSMTP:
		c.need(true, "SMTP_URL", "is required with PROVIDER=smtp")
		c.need(true, "SMTP_FROM", "is required with PROVIDER=smtp")
		if c.whole("CHANNELS") && !slices.Contains(c.s.Channels, notifyq.ChannelEmail) {
			c.add("CHANNELS", "must hold EMAIL with PROVIDER=smtp, which serves nothing else")
		}
	}
}

func (c *checker) checkWebhook() {
	urlGiven, secretGiven := c.given["WEBHOOK_URL"] != "", c.given["WEBHOOK_SECRET"] != ""
	switch {
	case urlGiven && !secretGiven:
		c.add("WEBHOOK_SECRET", "is required with WEBHOOK_URL: unsigned events could come from anybody")
	case secretGiven && !urlGiven && !c.o.Dev: // the demo receiver of -dev takes it
		c.add("WEBHOOK_URL", "is required with WEBHOOK_SECRET")
	}
	if !urlGiven || !c.whole("WEBHOOK_URL", "WEBHOOK_ALLOW_CIDRS") {
		return
	}
	cfg := webhook.Config{URL: c.s.WebhookURL, Secrets: []string{spareSecret}, AllowCIDRs: c.s.WebhookAllowCIDRs}
	if _, err := webhook.New(cfg); err != nil {
		c.add("WEBHOOK_URL", strings.ReplaceAll(ruleOf(err).Error(), "AllowCIDRs", "WEBHOOK_ALLOW_CIDRS"))
	}
}

// need adds a problem if a setting that is needed was not given.
func (c *checker) need(needed bool, name, rule string) {
	if needed && c.given[name] == "" {
		c.add(name, rule)
	}
}

// whole reports whether none of the settings is broken.
func (c *checker) whole(names ...string) bool {
	return !slices.ContainsFunc(names, func(name string) bool { return c.broken[name] })
}

func (c *checker) add(name, rule string) {
	c.problems = append(c.problems, errors.New(name+": "+rule))
}
