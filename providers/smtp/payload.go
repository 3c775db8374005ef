package smtp

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
)

// maxSubjectBytes is about what fits RFC 5322's longest line; readers show a tenth of it.
const maxSubjectBytes = 1000

// payload is what a notification says.
type payload struct {
	subject string
	text    string
	html    string
	replyTo address // zero for none
}

// The rules of a payload. Their texts never hold its contents.
var (
	errPayloadForm      = errors.New("payload: must be one JSON object")
	errPayloadDuplicate = errors.New("payload: must not repeat a member")
	errPayloadString    = errors.New("payload: subject, text, body, html and replyTo must be strings")
	errPayloadBody      = errors.New("payload: body is another name for text, give only one")
	errPayloadEmpty     = errors.New("payload: text or html is required")
	errSubjectEmpty     = errors.New("payload: subject is required")
	errSubjectLength    = errors.New("payload: subject must be at most 1000 bytes")
	errSubjectControl   = errors.New("payload: subject must not have control characters or line separators")
)

func parsePayload(raw json.RawMessage) (payload, error) {
	members, err := stringMembers(raw, "subject", "text", "body", "html", "replyTo")
	if err != nil {
		return payload{}, err
	}
	p := payload{subject: members["subject"], text: members["text"], html: members["html"]}
	if body := members["body"]; body != "" {
		if p.text != "" {
			return payload{}, errPayloadBody
		}
		p.text = body
	}
	switch {
	case strings.TrimSpace(p.subject) == "":
		return payload{}, errSubjectEmpty
	case len(p.subject) > maxSubjectBytes:
		return payload{}, errSubjectLength
	case !isHeaderSafe(p.subject):
		return payload{}, errSubjectControl
	case p.text == "" && p.html == "":
		return payload{}, errPayloadEmpty
	}
	if replyTo := members["replyTo"]; replyTo != "" {
		if p.replyTo, err = parseAddress(replyTo); err != nil {
			return payload{}, errors.New("payload: replyTo " + err.Error())
		}
	}
	return p, nil
}

// stringMembers reads the named members of a JSON object, exactly as spelt: encoding/json alone would take "Subject"
// for "subject", and the last of two.
func stringMembers(raw json.RawMessage, names ...string) (map[string]string, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	if token, err := dec.Token(); err != nil || token != json.Delim('{') {
		return nil, errPayloadForm
	}
	seen := map[string]bool{}
	members := make(map[string]string, len(names))
	for dec.More() {
		token, err := dec.Token()
		if err != nil {
			return nil, errPayloadForm
		}
		name, _ := token.(string) // a member's name can be nothing else
		if seen[name] {
			return nil, errPayloadDuplicate
		}
		seen[name] = true
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return nil, errPayloadForm
		}
		for _, known := range names {
			if name != known {
				continue
			}
			var s string // stays empty for null
			if err := json.Unmarshal(value, &s); err != nil {
				return nil, errPayloadString
			}
			members[name] = s
		}
	}
	if token, err := dec.Token(); err != nil || token != json.Delim('}') {
		return nil, errPayloadForm
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errPayloadForm
	}
	return members, nil
}
