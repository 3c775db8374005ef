package notifyq_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq"
	"github.com/notifyq/notifyq/internal/signature"
)

const (
	webhookSecretOld   = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	webhookSecretNew   = "whsec_bmV3bmV3bmV3bmV3bmV3bmV3bmV3bmV3"
	webhookSecretThird = "whsec_dGhpcmR0aGlyZHRoaXJkdGhpcmR0aGlyZHRoaXJk"
	webhookTestID      = "0197b3a2-0000-7000-8000-000000000001"
)

// verifySigned is the header of a request that was signed at that time.
func verifySigned(t testing.TB, at time.Time, body string, secrets ...string) http.Header {
	keys, err := signature.ParseSecrets(secrets)
	require.NoError(t, err)
	header := http.Header{}
	header.Set("webhook-id", webhookTestID)
	header.Set("webhook-timestamp", strconv.FormatInt(at.Unix(), 10))
	header.Set("webhook-signature", signature.Sign(keys, webhookTestID, at, []byte(body)))
	return header
}

func TestVerifyWebhookVector(t *testing.T) {
	t.Parallel()
	const at, body = 1614265330, `{"test": 2432232314}`
	header := http.Header{
		"Webhook-Id":        {"msg_p5jXN8AQM9LWM0D4loKWxJek"},
		"Webhook-Timestamp": {strconv.Itoa(at)},
		"Webhook-Signature": {"v1,Ceo5qEr07ixe2NLpvHk3FH9bwy/WavXrAFQ/9tdO6mc= v2,x v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="},
	}
	since := time.Since(time.Unix(at, 0))
	id, err := notifyq.VerifyWebhook(header, []byte(body), []string{webhookSecretOld}, since+time.Minute)
	require.NoError(t, err)
	require.Equal(t, "msg_p5jXN8AQM9LWM0D4loKWxJek", id)

	_, err = notifyq.VerifyWebhook(header, []byte(body), []string{webhookSecretOld}, since-time.Minute)
	require.ErrorIs(t, err, notifyq.ErrWebhookSignature)
	header["Webhook-Signature"] = []string{"v1,Ceo5qEr07ixe2NLpvHk3FH9bwy/WavXrAFQ/9tdO6mc="}
	_, err = notifyq.VerifyWebhook(header, []byte(body), []string{webhookSecretOld}, since+time.Minute)
	require.ErrorIs(t, err, notifyq.ErrWebhookSignature)
}

func TestVerifyWebhookDuringRotation(t *testing.T) {
	t.Parallel()
	all := []string{webhookSecretNew, webhookSecretOld, webhookSecretThird}
	now := time.Now()
	for _, receiver := range [][]string{
		{webhookSecretNew},
		{webhookSecretOld},
		{webhookSecretThird},
		{webhookSecretThird, webhookSecretOld, webhookSecretNew},
		{strings.TrimPrefix(webhookSecretOld, "whsec_") + "\n"},
	} {
		id, err := notifyq.VerifyWebhook(verifySigned(t, now, "b", all...), []byte("b"), receiver, 0)
		require.NoError(t, err)
		require.Equal(t, webhookTestID, id)
	}
	for _, sender := range all {
		_, err := notifyq.VerifyWebhook(verifySigned(t, now, "b", sender), []byte("b"), all, 0)
		require.NoError(t, err)
	}
	_, err := notifyq.VerifyWebhook(verifySigned(t, now, "b", webhookSecretNew), []byte("b"), []string{webhookSecretOld}, 0)
	require.ErrorIs(t, err, notifyq.ErrWebhookSignature, "the rotation is over")
}

func TestVerifyWebhookRefusesReplayAndChange(t *testing.T) {
	t.Parallel()
	secrets := []string{webhookSecretOld}
	now := time.Now()
	for what, c := range map[string]struct {
		header http.Header
		body   string
		rule   string
	}{
		"an hour later":       {verifySigned(t, now.Add(-time.Hour), "b", secrets...), "b", "webhook-timestamp is too old"},
		"five minutes later":  {verifySigned(t, now.Add(-5*time.Minute), "b", secrets...), "b", "webhook-timestamp is too old"},
		"of the future":       {verifySigned(t, now.Add(5*time.Minute+2*time.Second), "b", secrets...), "b", "webhook-timestamp is too far in the future"},
		"another body":        {verifySigned(t, now, "b", secrets...), "c", "no signature matches"},
		"the timestamp only":  {verifyChanged(verifySigned(t, now.Add(-time.Hour), "b", secrets...), "webhook-timestamp", strconv.FormatInt(now.Unix(), 10)), "b", "no signature matches"},
		"the id only":         {verifyChanged(verifySigned(t, now, "b", secrets...), "webhook-id", "another"), "b", "no signature matches"},
		"no id":               {verifyChanged(verifySigned(t, now, "b", secrets...), "webhook-id"), "b", "webhook-id is missing"},
		"no timestamp":        {verifyChanged(verifySigned(t, now, "b", secrets...), "webhook-timestamp"), "b", "webhook-timestamp is missing"},
		"no signature":        {verifyChanged(verifySigned(t, now, "b", secrets...), "webhook-signature"), "b", "webhook-signature is missing"},
		"two ids":             {verifyChanged(verifySigned(t, now, "b", secrets...), "webhook-id", webhookTestID, "another"), "b", "webhook-id and webhook-timestamp must not be repeated"},
		"nothing":             {http.Header{}, "", "webhook-id is missing"},
		"no header map":       {nil, "", "webhook-id is missing"},
		"an id in two halves": {verifyChanged(verifySigned(t, now, "b", secrets...), "webhook-id", webhookTestID[:8], webhookTestID[8:]), "b", "webhook-id and webhook-timestamp must not be repeated"},
	} {
		id, err := notifyq.VerifyWebhook(c.header, []byte(c.body), secrets, 0)
		require.ErrorIs(t, err, notifyq.ErrWebhookSignature, what)
		require.EqualError(t, err, "notifyq: the webhook is not verified: "+c.rule, what)
		require.Empty(t, id)
	}
}

func verifyChanged(header http.Header, name string, values ...string) http.Header {
	header[http.CanonicalHeaderKey(name)] = values
	return header
}

func TestVerifyWebhookTakesAnySpellingOfHeaders(t *testing.T) {
	t.Parallel()
	for _, spell := range []func(string) string{strings.ToLower, strings.ToUpper, http.CanonicalHeaderKey} {
		header := http.Header{}
		for name, values := range verifySigned(t, time.Now(), "b", webhookSecretNew, webhookSecretOld) {
			header[spell(name)] = values
		}
		_, err := notifyq.VerifyWebhook(header, []byte("b"), []string{webhookSecretOld}, 0)
		require.NoError(t, err)
	}
	header := verifySigned(t, time.Now(), "b", webhookSecretNew, webhookSecretOld)
	header["Webhook-Signature"] = strings.Fields(header.Get("webhook-signature")) // a line each
	_, err := notifyq.VerifyWebhook(header, []byte("b"), []string{webhookSecretOld}, 0)
	require.NoError(t, err)
}

func TestVerifyWebhookRefusesBadSettings(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		secrets   []string
		tolerance time.Duration
		field     string
	}{
		{nil, 0, "secrets"},
		{[]string{""}, 0, "secrets"},
		{[]string{"whsec_"}, 0, "secrets"},
		{[]string{webhookSecretOld, "hunter2"}, 0, "secrets"},
		{[]string{webhookSecretOld}, -1, "tolerance"},
	} {
		_, err := notifyq.VerifyWebhook(verifySigned(t, time.Now(), "b", webhookSecretOld), []byte("b"), c.secrets, c.tolerance)
		var broken *notifyq.InvalidError
		require.ErrorAs(t, err, &broken)
		require.Equal(t, c.field, broken.Field)
		require.NotErrorIs(t, err, notifyq.ErrWebhookSignature)
		require.NotContains(t, err.Error(), "hunter2")
	}
}

func FuzzVerifyWebhook(f *testing.F) {
	f.Add(webhookTestID, "1614265330", "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=", []byte("b"))
	f.Add("", "-1", "v1, v2,", []byte(nil))
	f.Fuzz(func(t *testing.T, id, timestamp, signatures string, body []byte) {
		header := http.Header{"Webhook-Id": {id}, "Webhook-Timestamp": {timestamp}, "Webhook-Signature": {signatures}}
		_, err := notifyq.VerifyWebhook(header, body, []string{webhookSecretThird}, 0)
		require.ErrorIs(t, err, notifyq.ErrWebhookSignature)
	})
}

func ExampleVerifyWebhook() {
	secrets := []string{webhookSecretNew, webhookSecretOld}
	seen := map[string]bool{} // a table, in earnest

	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 2<<20))
		if err != nil {
			http.Error(w, "bad request", http.StatusBadRequest)
			return
		}
		id, err := notifyq.VerifyWebhook(r.Header, body, secrets, 0)
		switch {
		case errors.Is(err, notifyq.ErrWebhookSignature):
			http.Error(w, "unauthorized", http.StatusUnauthorized)
		case err != nil: // the secrets are wrong
			http.Error(w, "internal error", http.StatusInternalServerError)
		case seen[id]:
			w.WriteHeader(http.StatusNoContent)
		default:
			seen[id] = true
			fmt.Println(string(body))
		}
	})
	request := httptest.NewRequest(http.MethodPost, "/webhooks", strings.NewReader("{}"))
	handler.ServeHTTP(httptest.NewRecorder(), request) // nobody signed this one
	// Output:
}
