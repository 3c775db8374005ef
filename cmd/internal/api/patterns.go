package api

import (
	"net/http"

	"github.com/notifyq/notifyq"
)

// Patterns are those of all routes that an API can have, as http.ServeMux takes them, for who counts requests by them.
func Patterns() ([]string, error) {
	absent := http.NotFoundHandler()
	a, err := newAPI(Config{
		Client: new(notifyq.Client), // it is asked nothing
		Docs:   true, Health: absent, Metrics: absent, Demo: absent,
	})
	if err != nil {
		return nil, err
	}
	return a.patterns, nil
}
