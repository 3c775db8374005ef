package api

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/notifyq/notifyq"
	"github.com/notifyq/notifyq/cmd/internal/auth"
	"github.com/notifyq/notifyq/cmd/internal/httpserver"
)

// DefaultTimeout is how long a request may wait for the database.
const DefaultTimeout = 5 * time.Second

// Config is what New needs. Client is required.
type Config struct {
	// Client is the plain client; a key's calls go through its tenant's.
	Client *notifyq.Client
	// Keys are who may call. Without any, everybody may do everything: see auth.RequireKeys.
	Keys []auth.Key
	// Channels are those that notifications may name. None means that every channel may be named.
	Channels []notifyq.Channel
	// Docs serves /openapi.json and /docs.
	Docs bool
	// Logger gets a line a request. Nil is silent.
	Logger *slog.Logger
	// Health serves /health, /livez and /readyz. Nil: they are absent.
	Health http.Handler
	// Metrics serves /metrics. Nil: it is absent.
	Metrics http.Handler
	// Demo serves POST /webhooks/mock. Nil: it is absent.
	Demo http.Handler
	// Timeout bounds a request's wait for the database, after which it is answered with a 503. Default 5 s.
	Timeout time.Duration
	// BodyMemory bounds, in bytes, what bodies over 128 KiB may take together, as sent; beyond it they are answered with a
	// 503. Default 32 MiB. Below 8 MiB no batch of the largest size is taken.
	BodyMemory int64
}

// api is what the endpoints share.
type api struct {
	cfg      Config
	mux      *http.ServeMux
	huma     huma.API
	patterns []string // that the mux has
	bodies   memory
}

// New is the whole API in its layers, for httpserver.Run.
func New(cfg Config) (http.Handler, error) {
	a, err := newAPI(cfg)
	if err != nil {
		return nil, err
	}
	return httpserver.Wrap(cfg.Logger, httpserver.Routes(a.mux)), nil
}

func newAPI(cfg Config) (*api, error) {
	if cfg.Client == nil {
		return nil, errors.New("api: Client must not be nil")
	}
	if cfg.Timeout < 0 {
		return nil, errors.New("api: Timeout must not be negative")
	}
	if cfg.BodyMemory < 0 {
		return nil, errors.New("api: BodyMemory must not be negative")
	}
	cfg.Timeout = cmp.Or(cfg.Timeout, DefaultTimeout)
	a := &api{cfg: cfg, mux: http.NewServeMux()}
	a.bodies.left.Store(cmp.Or(cfg.BodyMemory, DefaultBodyMemory))
	a.huma = humago.New(a.mux, huma.Config{OpenAPI: newDocument()})
	for _, e := range a.endpoints() {
		a.add(e)
	}
	a.mount()
	if cfg.Docs {
		if err := a.addDocs(); err != nil {
			return nil, fmt.Errorf("api: %w", err)
		}
	}
	return a, nil
}

// endpoints are the routes that are this package's own.
func (a *api) endpoints() []endpoint {
	return []endpoint{
		a.scheduleEndpoint(), a.batchEndpoint(),
		a.listEndpoint(), a.getEndpoint(), a.attemptsEndpoint(),
		a.cancelEndpoint(), a.retryEndpoint(), a.bulkRetryEndpoint(),
		a.pauseEndpoint(), a.resumeEndpoint(),
		a.receiversEndpoint(), a.enableEndpoint(),
	}
}

// handle puts an operation into the mux and into the document, so that neither has what the other has not.
func (a *api) handle(op *huma.Operation, serve http.HandlerFunc) {
	a.patterns = append(a.patterns, op.Method+" "+op.Path)
	a.huma.Adapter().Handle(op, func(ctx huma.Context) {
		r, w := humago.Unwrap(ctx)
		serve(w, r)
	})
	if !op.Hidden {
		a.huma.OpenAPI().AddOperation(op)
	}
}
