// Package smtp delivers notifications as email through an SMTP server.
//
//	cfg, err := smtp.ParseURL(os.Getenv("SMTP_URL")) // smtp://user:password@mail.example.com:587
//	cfg.From = "Shop <no-reply@shop.example>"
//	provider, err := smtp.New(cfg)
//
// # Payload
//
// The payload is a JSON object whose values are strings:
//
//	subject   required, not blank, at most 1,000 bytes
//	text      the plain text; "body" is another name for it, not to be used beside it
//	html      the HTML; text, html or both are required, and with both the reader's program chooses
//	replyTo   optional, one bare address
//
// A member that is null counts as absent. Other members are ignored, so that one payload can serve several channels.
// A duplicate member, a value of another type and anything else that breaks a rule is permanent.
//
// # What goes out
//
// One message to one recipient per call, in a connection of its own: there is no pool, so that no message meets a
// connection that went stale, and a worker holds at most as many connections as it delivers at once. Nothing is retried
// in here; that is the queue's work.
//
// The Message-ID is <delivery key@domain>, equal in every attempt and after a redrive. SMTP has no idempotency keys: a
// receiver that keeps Message-IDs can drop the second copy; none has to. The Message-ID is also the receipt's
// ProviderID. Messages carry "Auto-Submitted: auto-generated" (RFC 3834), so that holiday notices stay away.
//
// The recipient, the sender, replyTo and the subject never carry a control character or a line separator into a header
// or a command: such a notification is refused before a connection is opened. Addresses must be plain: no display name,
// no comment, no quoted local part (`"a b"@example.com`), no address literal. A domain outside ASCII is sent in its
// xn-- form. A local part outside ASCII is sent only to a server that offers SMTPUTF8, and is permanent otherwise.
//
// # Outcomes
//
// An enhanced status code (RFC 3463), where a reply begins with one, decides over the basic code by its first digit.
// "The dot" is the line that ends the message; until it is written, nothing was sent.
//
//	what happened                                                    outcome
//	the recipient or the payload breaks a rule                       permanent, nothing is sent
//	name lookup, connecting, TLS handshake, lost connection, timeout transient
//	4yz at any stage (421, 450, 451, 452, 454 …)                     transient; from MAIL on, after RetryDelay if set
//	5yz to the greeting, EHLO, STARTTLS or AUTH                      misconfigured
//	5yz to MAIL: it names only the configured sender                 misconfigured
//	5yz to MAIL that asked for SMTPUTF8                              permanent
//	5yz to RCPT, DATA or the message                                 permanent, but for the two rows below
//	  530, 534, 535, 538: authentication or encryption is wanted     misconfigured
//	  5.1.7, 5.1.8, 5.4.5, 5.7.8 to 5.7.14, 5.7.20 to 5.7.27,        misconfigured
//	  5.7.57, 5.7.60: the sender, the account or its quota
//	STARTTLS or AUTH is needed and not offered                       misconfigured, neither message nor password is sent
//	the server's certificate does not verify                         misconfigured
//	a non-ASCII local part, and no SMTPUTF8                          permanent
//	the context ends, or the connection is lost, before the dot      transient
//	the context ends, or the connection is lost, after the dot       ambiguous
//	something that is no reply, or a 1yz or 3yz, after the dot       ambiguous
//	any 2yz after the dot                                            accepted
//	QUIT fails after that                                            accepted
//
// 5.7.1 is permanent: it says both "relaying denied" and "this recipient does not want you", and one recipient must
// not pause the others.
//
// # Time
//
// Deliver returns when its context ends. RFC 5321 asks a client to wait ten minutes for the reply to the dot, and
// giving up early is what makes duplicates: give an email channel a provider timeout of a minute or two, not of
// seconds.
//
// # Caveats
//
//   - Accepted means that the server took the message. Bounces come later, to the sender's mailbox.
//   - No attachments, no further headers, no DKIM: the submission server signs.
//   - Authentication is PLAIN or LOGIN, and only over TLS or to the machine itself.
package smtp
