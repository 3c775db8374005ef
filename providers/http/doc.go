// Package httpprovider hands notifications to an HTTP endpoint of one's own: a gateway, an adapter, a function that
// knows the email, SMS or push service behind it.
//
//	provider, err := httpprovider.New(httpprovider.Config{URL: "https://gateway.example/send"})
//
// # What goes out
//
// One POST an attempt, with Content-Type application/json and the delivery key in Idempotency-Key:
//
//	{"deliveryKey":"0199…","attempt":1,"recipient":"…","channel":"EMAIL","payload":{…}}
//
// A trace context that is a W3C traceparent goes out in the header of that name.
//
// The payload is the notification's, byte for byte. The key is the job's id, equal in every attempt and after a redrive:
// an endpoint that remembers keys delivers once, and one that does not may deliver twice when a worker dies between
// acceptance and record. A user and a password in the URL are sent as basic authentication, which needs https unless the
// host is the machine itself; any other credential is a header in Config.Header.
//
// # Outcomes
//
//	what happened                                               outcome
//	any 2xx, when its headers have been read                    accepted
//	429, 5xx                                                    transient, after Retry-After if that is usable
//	401, 403                                                    misconfigured
//	every other 4xx                                             permanent
//	3xx                                                         permanent; redirects are not followed
//	any other status, an answer that is no HTTP                 ambiguous
//	the name does not resolve, there is no connection, no TLS   transient
//	the server's certificate does not verify                    misconfigured
//	timeout or lost connection after that                       ambiguous
//
// A 5xx of a gateway in front of the endpoint is transient too, although the endpoint may have accepted: the key is what
// protects then.
//
// The member "id" of a JSON object in a 2xx, a string or a number, becomes the receipt's ProviderID. Of the rest of the
// answer nothing is kept, but for the member "code" of a refusal's JSON object: if it looks like a name and does not occur
// in the notification, it stands in the error. Errors hold nothing else of the answer, and nothing of the URL, the headers,
// the recipient and the payload.
//
// Retry-After is whole seconds or an HTTP date, by the local clock, and at most 24 h. Anything else in it, a time that
// has passed and a repeated header are ignored.
//
// # Connections
//
// They are kept and used again. No proxy is taken from the environment, answers are not decompressed, and no more than
// 64 KiB of one are read, for no longer than 2 s once the outcome is known. The context of Deliver bounds everything.
package httpprovider
