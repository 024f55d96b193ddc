package ops

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/eventstore"
)

// What a program exits with.
const (
	// Done: it was done, and nothing is wrong.
	Done = 0
	// Problem: something is wrong with what was looked at, or it was refused.
	Problem = 1
	// Unable: it could not be tried: the command line, the connection, rights,
	// a schema that is not there.
	Unable = 2
	// Conflict: the stream is not at the expected version; nothing was stored.
	Conflict = 3
	// Interrupted: it was told to stop before it was done.
	Interrupted = 130
)

// errProblems says that what was printed is the error.
var errProblems = errors.New("there are problems")

// unableError is something that could not be tried.
type unableError struct{ err error }

func (e *unableError) Error() string { return e.err.Error() }
func (e *unableError) Unwrap() error { return e.err }

func statusOf(ctx context.Context, err error) int {
	var unable *unableError
	switch {
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		return Interrupted
	case errors.Is(err, weir.ErrConflict):
		return Conflict
	case errors.As(err, &unable), eventstore.IsTransient(err), isShutOut(err), isMissing(err):
		return Unable
	}
	return Problem
}

// isShutOut reports that the server did not let us in, or not as far as needed.
func isShutOut(err error) bool {
	var connect *pgconn.ConnectError
	var pg *pgconn.PgError
	const insufficientPrivilege = "42501"
	return errors.As(err, &connect) || errors.As(err, &pg) && pg.Code == insufficientPrivilege
}

// isMissing reports a table or a column that is not there: those of a view are made
// by its application.
func isMissing(err error) bool {
	var pg *pgconn.PgError
	const undefinedTable, undefinedColumn = "42P01", "42703"
	return errors.As(err, &pg) && (pg.Code == undefinedTable || pg.Code == undefinedColumn)
}

// explain is the error for the eyes of an operator: what to do, and no password.
func explain(ctx context.Context, err error) string {
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return "interrupted"
	}
	text := err.Error()
	var conflict *weir.ConflictError
	if errors.As(err, &conflict) {
		text += fmt.Sprintf("\nlook at what happened since; then say --expected %d to append after it, or --expected any", conflict.Actual)
	}
	if isMissing(err) {
		text += "\na table is missing or older than this program: start the application once, it brings those of its views up to date"
	}
	return redact(text)
}

// secrets are passwords in URLs and in settings, wherever they turn up: also in a
// command line that was not understood.
var secrets = regexp.MustCompile(`(?i)(://[^\s:/@]*:)\S*@|(password\s*=\s*)('(?:[^'\\]|\\.)*'|[^\s&]+)`)

func redact(text string) string {
	return secrets.ReplaceAllStringFunc(text, func(found string) string {
		m := secrets.FindStringSubmatch(found)
		if m[1] != "" {
			return m[1] + "xxxxx@"
		}
		return m[2] + "xxxxx"
	})
}

// redactor is redact for what is logged.
type redactor struct{ w io.Writer }

func (r redactor) Write(b []byte) (int, error) {
	_, err := io.WriteString(r.w, redact(string(b)))
	return len(b), err
}
