package api

import (
	"embed"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/danielgtaylor/huma/v2"
	"github.com/swaggest/swgui/v5emb"
)

// pageFiles are the frame of the docs page. They have nothing inline, so that the page's CSP need not allow that.
//
//go:embed page
var pageFiles embed.FS

// pageCSP allows the page what it is made of, from here. Pictures are also drawn into its styles.
const pageCSP = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// addDocs serves the document, and a page that shows it and loads nothing from elsewhere. Everything else must have been
// added before.
func (a *api) addDocs() error {
	document, err := json.Marshal(a.huma.OpenAPI())
	if err != nil {
		return fmt.Errorf("the OpenAPI document: %w", err)
	}
	a.handle(hidden("/openapi.json"), func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(document)
	})
	own := map[string]string{"/docs": "index.html", "/docs/start.js": "start.js", "/docs/frame.css": "frame.css"}
	for path, file := range own {
		a.handle(hidden(path), func(w http.ResponseWriter, r *http.Request) {
			pageHeaders(w)
			http.ServeFileFS(w, r, pageFiles, "page/"+file)
		})
	}
	bundle := v5emb.New("notifyq", "/openapi.json", "/docs")
	for _, file := range []string{"swagger-ui.css", "swagger-ui-bundle.js", "favicon-32x32.png"} {
		a.handle(hidden("/docs/"+file), func(w http.ResponseWriter, r *http.Request) {
			pageHeaders(w)
			bundle.ServeHTTP(w, r)
		})
	}
	return nil
}

func pageHeaders(w http.ResponseWriter) {
	w.Header().Set("Content-Security-Policy", pageCSP)
	w.Header().Set("Cache-Control", "no-cache")
}

// hidden is a route that is not part of the API.
func hidden(path string) *huma.Operation {
	return &huma.Operation{Method: http.MethodGet, Path: path, Hidden: true}
}
