package webhook

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/notifyq/notifyq"
	"github.com/notifyq/notifyq/internal/signature"
)

// Names of the headers that the standard does not have.
const (
	headerEventID = "X-Webhook-Event-Id"
	headerTopic   = "X-Webhook-Topic"
	headerKey     = "X-Webhook-Key"
)

var errTopic = errors.New("webhook: the topic can't stand in a header")

// request makes the request of one attempt. It copies the body: the transport may still read from it when the attempt
// is over.
func (p *Publisher) request(ctx context.Context, e notifyq.Event, now time.Time) (*http.Request, error) {
	if !headerSafe(e.Topic) {
		return nil, errTopic
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url.String(), bytes.NewReader(bytes.Clone(e.Body)))
	if err != nil {
		return nil, errors.New("webhook: the request can't be made") // the error quotes the URL
	}
	id := e.ID.String()
	req.Header = http.Header{
		"Content-Type": {p.cfg.ContentType},
		"User-Agent":   {p.cfg.UserAgent},
		headerEventID:  {id},
		headerTopic:    {e.Topic},
		// Written to the map as they are, these three keep the standard's spelling over HTTP/1.1 too, for receivers
		// that take it to the letter.
		signature.HeaderID:        {id},
		signature.HeaderTimestamp: {strconv.FormatInt(now.Unix(), 10)},
		signature.HeaderSignature: {signature.Sign(p.keys, id, now, e.Body)},
	}
	if headerSafe(e.Key) {
		req.Header[headerKey] = []string{e.Key}
	}
	return req, nil
}
