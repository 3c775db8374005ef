package api

import (
	"net/http"
	"slices"
	"strings"

	"github.com/notifyq/notifyq"
)

// Patterns are the paths of all routes that an API can have, as http.ServeMux takes them, for who counts requests by them.
func Patterns() ([]string, error) {
	absent := http.NotFoundHandler()
	a, err := newAPI(Config{
		Client: new(notifyq.Client), // it is asked nothing
		Docs:   true, Health: absent, Metrics: absent, Demo: absent,
	})
	if err != nil {
		return nil, err
	}
	var paths []string
	for _, pattern := range a.patterns {
		_, path, _ := strings.Cut(pattern, " ")
		paths = append(paths, path)
	}
	slices.Sort(paths)
	return slices.Compact(paths), nil
}
