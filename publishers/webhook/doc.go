// Package webhook publishes events to an HTTP endpoint, as Standard Webhooks 1.0.0.
//
//	publisher, err := webhook.New(webhook.Config{
//		URL:     "https://shop.example/webhooks",
//		Secrets: []string{os.Getenv("WEBHOOK_SECRET")}, // whsec_…
//	})
//
// # What goes out
//
// One POST an attempt. The body is the event's Body, byte for byte, and the same on every attempt. The headers are
//
//	webhook-id            the event's id, the same on every attempt: receivers de-duplicate by it
//	webhook-timestamp     the time of this attempt, in seconds since 1970
//	webhook-signature     "v1," and a signature for each secret, separated by spaces, over id.timestamp.body
//	X-Webhook-Event-Id    the event's id once more
//	X-Webhook-Topic       the event's topic
//	X-Webhook-Key         the event's key, unless it is empty or can't stand in a header
//	Content-Type          application/json, or as configured
//	User-Agent            notifyq, or as configured
//
// Header names have no case: HTTP/2 sends all of them in lower case. Topic and key are sent as UTF-8 and are not signed;
// what a receiver relies on belongs into the body. A topic that can't stand in a header, because it is empty or has
// control characters or outer blanks, is permanent. Receivers in Go check a request with notifyq.VerifyWebhook, those
// in other languages with the libraries of Standard Webhooks.
//
// To change a secret, put the new one before the old one, give receivers both, and take the old one away a while later.
//
// # Outcomes
//
//	what happened                                             outcome
//	any 2xx, when its headers have been read                  acknowledged
//	410                                                       notifyq.Gone: the endpoint is disabled
//	3xx                                                       rejected; redirects are not followed
//	502, 504: from a gateway, which does not know either      unknown
//	every other status                                        rejected
//	  any of them but 410, with a usable Retry-After          and notifyq.RetryAfter, at most 24 h
//	the address is not allowed, the name does not resolve,    not sent
//	  there is no connection or no TLS, the context had ended
//	timeout or lost connection after that, no valid answer    unknown
//	the topic can't stand in a header                         permanent
//
// Retry-After is whole seconds or an HTTP date, by the local clock. Anything else in it, a time that has passed and a
// repeated header are ignored: the relay's own backoff holds then, and it does in any case, as the least wait.
//
// After a 2xx up to 64 KB of the body are read, so that the connection can be used again; whatever comes of that, the
// event is acknowledged. Of another answer 4 KB are read and kept in an [AnswerError], without what they repeat of the
// event, the URL's path or the secrets, and the connection is not used again. Errors never tell the URL, the secrets,
// the body or the key; those of connections tell nothing of what the other side sent.
//
// # Where it does not go
//
// Connections are made only to addresses of the public internet. Loopback, private, link-local, carrier-grade NAT,
// multicast, documentation and translation ranges are refused by New, if the URL names one, and in any case after the
// name was resolved and before the connection is made, so that a name can't lead there. Config.AllowCIDRs is the
// operator's exception. Redirects are not followed, no proxy is taken from the environment, and the ports that browsers
// refuse, 25 among them, are refused here too.
//
// # Caveats
//
//   - Events come at least once and in no order.
//   - Over http:// everybody on the way reads the events. Their signature still shows changes.
//   - The body is never compressed, and an answer's is never decompressed.
package webhook
