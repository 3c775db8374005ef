package store

import (
	"errors"
	"strings"

	"github.com/jackc/pgx/v5"
)

// IsMisfit tells an error that a statement and the code around it caused: an argument that can't be sent, a row that
// can't be read, one too few or too many. It stays until somebody mends the one or the other, while what else is not the
// server's own error is a connection that broke or was never made. pgx has no types for arguments.
func IsMisfit(err error) bool {
	var unread pgx.ScanArgError
	if errors.As(err, &unread) || errors.Is(err, pgx.ErrNoRows) || errors.Is(err, pgx.ErrTooManyRows) {
		return true
	}
	for ; err != nil; err = errors.Unwrap(err) {
		text := err.Error()
		for _, prefix := range []string{"failed to encode args[", "mismatched param and argument count", "number of field descriptions"} {
			if strings.HasPrefix(text, prefix) {
				return true
			}
		}
	}
	return false
}
