package app

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOnlyOneTraceInItsFormIsKept(t *testing.T) {
	t.Parallel()
	const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for _, c := range []struct {
		want  string
		given []string
	}{{"", nil}, {trace, []string{trace}}, {"", []string{trace, trace}}, {"", []string{"00-SECRET"}}} {
		r := httptest.NewRequest(http.MethodPost, "/notifications", nil)
		r.Header["Traceparent"] = c.given
		kept := "unseen"
		withTrace(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			kept = traceContext(r.Context())
		})).ServeHTTP(httptest.NewRecorder(), r)
		require.Equal(t, c.want, kept, c.given)
	}
}
