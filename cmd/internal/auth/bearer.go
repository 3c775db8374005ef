package auth

import (
	"net/http"
	"strings"
)

// Challenge is the WWW-Authenticate of a 401.
const Challenge = `Bearer realm="notifyq"`

// Presented is the key that a request carries: Authorization: Bearer and the key, and nowhere else, so that proxies
// know what to keep out of their logs. It is empty where there is none, or more than one.
func Presented(r *http.Request) string {
	given := r.Header.Values("Authorization")
	if len(given) != 1 {
		return ""
	}
	scheme, key, _ := strings.Cut(given[0], " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimLeft(key, " ")
}
