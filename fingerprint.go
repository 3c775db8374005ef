package notifyq

import (
	"crypto/sha256"
	"strconv"
	"time"

	"github.com/notifyq/notifyq/internal/store"
	"github.com/notifyq/notifyq/internal/strictjson"
)

// fingerprintVersion is the first byte of what is hashed, so that another form can be told from this one.
const fingerprintVersion = 1

// fingerprint tells two requests under one key apart: SHA-256 over a version byte and the request in canonical form. Its
// members are sorted, defaults are filled in, times are UTC microseconds, a delay is the delay, and the payload keeps
// its number literals while order of members, white space and escapes don't count. n has been checked.
func (n *Notification) fingerprint() []byte {
	b := make([]byte, 0, 256+len(n.Payload))
	b = append(b, fingerprintVersion)
	b = append(b, `{"channel":`...)
	b = strconv.AppendQuote(b, string(n.Channel))
	if n.SendAt.IsZero() {
		b = append(b, `,"delay":`...)
		b = strconv.AppendInt(b, n.Delay.Microseconds(), 10)
	}
	b = appendTime(b, `,"expiresAt":`, n.ExpiresAt)
	b = append(b, `,"maxAttempts":`...)
	b = strconv.AppendInt(b, int64(n.MaxAttempts), 10)
	b = append(b, `,"onAmbiguous":`...)
	b = strconv.AppendQuote(b, string(n.OnAmbiguous))
	b = append(b, `,"payload":`...)
	b = strictjson.AppendCanonical(b, n.Payload)
	b = append(b, `,"priority":`...)
	b = strconv.AppendInt(b, int64(n.Priority), 10)
	b = append(b, `,"recipient":`...)
	b = strconv.AppendQuote(b, n.Recipient)
	b = appendTime(b, `,"sendAt":`, n.SendAt)
	b = append(b, '}')
	sum := sha256.Sum256(b)
	return sum[:]
}

// sameRequest tells whether the holder of job's key was made by the request that job was. What a request leaves out is
// filled in from the settings of the client that it meets, and while a deployment rolls two meet different ones; so what
// job left out counts as what the holder got. Whether the holder's request had named that can't be told any more, and job
// does not ask for anything else.
func sameRequest(holder *store.Holder, job *store.NewJob) bool {
	if holder.Same(job.Fingerprint) {
		return true
	}
	as := *job
	if job.AttemptsLeftOut {
		as.MaxAttempts = holder.MaxAttempts
	}
	if job.ParkLeftOut {
		as.Park = holder.Park
	}
	if as.MaxAttempts == job.MaxAttempts && as.Park == job.Park {
		return false
	}
	n := Notification{
		Channel: Channel(as.Channel), Recipient: as.Recipient, Payload: as.Payload, Priority: Priority(as.Priority),
		MaxAttempts: int(as.MaxAttempts), OnAmbiguous: AmbiguousRetry, SendAt: as.SendAt, Delay: as.Delay, ExpiresAt: as.ExpiresAt,
	}
	if as.Park {
		n.OnAmbiguous = AmbiguousPark
	}
	return holder.Same(n.fingerprint())
}

func appendTime(b []byte, name string, t time.Time) []byte {
	if t.IsZero() {
		return b
	}
	b = append(b, name...)
	return strconv.AppendInt(b, t.UnixMicro(), 10)
}
