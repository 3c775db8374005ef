// Package nats publishes events to NATS JetStream.
//
//	publisher, err := nats.New(nats.Config{URL: os.Getenv("NATS_URL"), SubjectPrefix: "shop.", Stream: "SHOP"})
//	defer publisher.Close() // after the relay has ended
//
// # The stream
//
// It is the operator's: the publisher creates none and changes none. Its subjects must take what is published, it must
// acknowledge (NoAck unset), and its window for duplicates should outlast the relay's first repetitions; 2 min is the
// server's default. To keep what it has acknowledged through the loss of a machine it needs three replicas.
//
// # What goes out
//
// One message per event. The data are the event's body, byte for byte. The subject is SubjectPrefix and the topic, or
// what Config.Subject makes of the event. The headers are
//
//	Nats-Msg-Id           the event's id, the same on every attempt
//	Notifyq-Topic         the topic
//	Notifyq-Key           the key, if there is one
//	Nats-Expected-Stream  Config.Stream, if it is set
//
// A subject must be 1 to 512 bytes of UTF-8 in tokens separated by dots, without spaces, control characters and wildcards
// (* and >), and a topic must not lead to subjects of the server's own ($JS.API.…, _INBOX.…). A topic or key must not
// have spaces at its ends or control characters, which would not arrive as they are. An event that breaks this is parked
// at once.
//
// # Connection
//
// The publisher has a connection of its own, set up like this whatever Config.Options say:
//
//   - nothing is buffered while there is no connection: what the client buffers goes out after it has been reported as
//     failed, or never;
//   - it reconnects for ever, when the first attempt fails and when credentials are refused, too;
//   - a write that fails costs the connection, and does not only lose what was to be written;
//   - when the client closes the connection for good, which it does at some complaints of the server, another is opened,
//     after nats.ReconnectWait.
//
// Defaults that Options may change are the name notifyq, 5 s for a write and a ping every 20 s.
//
// # Outcomes
//
//	what happened                                                  outcome
//	the subject, topic or key breaks a rule                        permanent, not sent
//	no connection: not yet, lost, or the publisher is closed       unavailable: the relay pauses
//	the context had ended before Start                             not sent
//	65,536 events wait for their acknowledgements, 200 ms long     not sent
//	over the server's max_payload, headers included                permanent, rejected
//	over the stream's MaxMsgSize                                   permanent, rejected
//	no stream takes the subject, or JetStream is off               rejected
//	any other refusal: the stream is full, not the expected one …  rejected
//	no acknowledgement within AckTimeout, or before ctx ends       unknown
//	the connection is lost, or Close called, before it             unknown
//	an answer that is no acknowledgement, or another stream's      unknown
//	acknowledged                                                   accepted
//	acknowledged as a duplicate: an earlier attempt is stored      accepted
//
// A missing permission to publish has no answer, so its outcome is unknown after AckTimeout; the server's complaint goes
// to Config.Logger. A server that lowers its max_payload announces that to new connections only, and cuts off whoever
// exceeds it: such an event costs the connection once, and everything on its way an unknown outcome, before it is parked.
//
// # Caveats
//
//   - The server recognizes a repetition only within its window, and forgets it earlier in some failures: receivers have
//     to de-duplicate by Nats-Msg-Id themselves.
//   - NATS Server 2.11 or later: older clusters could answer that a message is a duplicate when it was not stored.
//   - max_payload is 1 MiB by default, and the headers count: an event's body of up to 1 MiB may be too large.
//   - There is no order, not even among events of one key.
package nats
