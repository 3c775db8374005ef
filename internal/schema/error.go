package schema

import (
	"errors"
	"fmt"
)

// ErrUnfit is what every *Error is, for errors.Is.
var ErrUnfit = errors.New("the database schema does not fit this version of notifyq")

// Problem is a reason why a schema can't be used.
type Problem int

// The problems, in the order in which they are looked for.
const (
	NameInvalid Problem = iota + 1
	EncodingNotUTF8
	SchemaMissing
	RightMissing // of Role: Right on Object, or on the schema if Object is empty
	VersionMissing
	Outdated // Found is less than Version
	ObjectMissing
)

// Error says why a schema can't be used, and what to do about it.
type Error struct {
	Problem  Problem
	Schema   string
	Object   string // of RightMissing and ObjectMissing
	Right    string // of RightMissing, such as SELECT
	Role     string // of RightMissing
	Encoding string // of EncodingNotUTF8
	Found    int    // of Outdated
}

func (e *Error) Error() string {
	switch e.Problem {
	case NameInvalid:
		return fmt.Sprintf("schema name %q: it must match [a-z_][a-z0-9_]*, have at most %d bytes and not begin with pg_",
			e.Schema, maxNameBytes)
	case EncodingNotUTF8:
		return fmt.Sprintf("the database's encoding is %s, which can't hold every text; create the database with "+
			"ENCODING 'UTF8' TEMPLATE template0", e.Encoding)
	case SchemaMissing:
		return fmt.Sprintf("schema %s does not exist; run the migrations", e.Schema)
	case RightMissing:
		return e.rightMissing()
	case VersionMissing:
		return fmt.Sprintf("table %s.%s does not exist; run the migrations", e.Schema, VersionTable)
	case Outdated:
		return fmt.Sprintf("schema %s has version %d and at least %d is needed; run the migrations", e.Schema, e.Found,
			Version)
	case ObjectMissing:
		return fmt.Sprintf("%s.%s does not exist, although %s.%s says that it was created; is the schema shared with "+
			"something else?", e.Schema, e.Object, e.Schema, VersionTable)
	default:
		return fmt.Sprintf("schema %s: problem %d", e.Schema, int(e.Problem))
	}
}

func (e *Error) rightMissing() string {
	if e.Object == "" {
		return fmt.Sprintf("role %s lacks the right %s on schema %s", e.Role, e.Right, e.Schema)
	}
	return fmt.Sprintf("role %s lacks the right %s on %s.%s", e.Role, e.Right, e.Schema, e.Object)
}

// Is makes errors.Is(err, ErrUnfit) hold.
func (e *Error) Is(target error) bool { return target == ErrUnfit }
