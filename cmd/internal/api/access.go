package api

import (
	"errors"
	"net/http"

	"github.com/notifyq/notifyq/cmd/internal/auth"
)

// anonymous is who asks where there are no keys.
const anonymous = "anonymous"

// authorize lets a request in, and limits its client to the tenant of its key.
func (a *api) authorize(c *call, r *http.Request, e *endpoint) error {
	if len(a.cfg.Keys) == 0 {
		c.client, c.actor = a.cfg.Client, anonymous
		return requireLoopback(r)
	}
	key, known := auth.Find(a.cfg.Keys, auth.Presented(r))
	switch {
	case !known:
		return &refusal{
			status: http.StatusUnauthorized, code: codeUnauthorized,
			detail: "A valid API key is needed: Authorization: Bearer <key>.",
			header: [][2]string{{"WWW-Authenticate", auth.Challenge}},
		}
	case !key.Allows(e.scope):
		return &refusal{
			status: http.StatusForbidden, code: codeMissingScope, detail: "The API key lacks the scope " + string(e.scope) + ".",
		}
	case e.wholeSystem && !key.WholeSystem():
		return &refusal{
			status: http.StatusForbidden, code: codeTenantKey,
			detail: "This is for all tenants, and the API key is bound to one.",
		}
	}
	c.client, c.actor = key.Client(a.cfg.Client), key.Name()
	return nil
}

// requireLoopback says in HTTP why a request to a server without keys is refused.
func requireLoopback(r *http.Request) error {
	switch err := auth.RequireLoopback(r); {
	case errors.Is(err, auth.ErrUnknownHost):
		return &refusal{
			status: http.StatusForbidden, code: codeUnknownHost,
			detail: "Without API keys the server answers only by an address of the loopback, or by a name without a dot.",
		}
	case err != nil:
		return &refusal{
			status: http.StatusForbidden, code: codeCrossOrigin,
			detail: "Without API keys the server takes nothing from pages of other sites.",
		}
	}
	return nil
}
