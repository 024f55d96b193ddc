package eventstore

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// IsTransient reports whether the same work may succeed when it is done again
// from the start of its transaction: the connection broke, the server is
// starting or stopping, or transactions were in each other's way. Whether the
// first try was committed may be unknown; repeat only what may be repeated.
func IsTransient(err error) bool { return isTransient(err) }

func isTransient(err error) bool {
	if err == nil || errors.Is(err, context.Canceled) {
		return false
	}
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return transientCode(pg.Code)
	}
	return isConnectionError(err)
}

// transientCode knows the SQLSTATEs that time or another try mends.
func transientCode(code string) bool {
	switch code {
	case "40001", "40P01", "55P03", // in each other's way
		"0A000",                   // cached plan must not change result type
		"57P01", "57P02", "57P03", // stopping, crashed, starting
		"53300", "53100", "53200", "53400", // no connection, disk, memory or other resource left
		"25P03", "57P05", "57014": // timed out
		return true
	}
	return strings.HasPrefix(code, "08") || strings.HasPrefix(code, "58")
}

func isConnectionError(err error) bool {
	var connect *pgconn.ConnectError
	var network *net.OpError
	return errors.As(err, &connect) || errors.As(err, &network) ||
		errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) ||
		pgconn.Timeout(err) || strings.Contains(err.Error(), "conn closed")
}

// IsRefused reports whether the database looked at the data and will never take
// it, whoever sends it and whenever.
func IsRefused(err error) bool {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return false
	}
	switch pg.Code[:min(2, len(pg.Code))] {
	case "22", "54":
		return true
	case "23": // but what is twice is twice in the store, not in the data
		return pg.Code != "23505"
	}
	return false
}

// isDuplicateEvent reports that an event id is stored already.
func isDuplicateEvent(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == "23505" && pg.ConstraintName == "events_event_id"
}

// isUndefined reports that a table or schema does not exist.
func isUndefined(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && (pg.Code == "42P01" || pg.Code == "3F000")
}
