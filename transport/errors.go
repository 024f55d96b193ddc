package transport

import (
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/weir-es/weir"
)

// Errors to ask for with errors.Is.
var (
	// ErrClosed: the connection or the publisher was closed. What was sent
	// before and not answered may have been stored or not.
	ErrClosed = errors.New("transport is closed")
	// ErrGone: the stream or a consumer is not there, or is not the one it was.
	// Declare, then try again. As a *GoneError it says which.
	ErrGone = errors.New("not declared, or deleted since")
	// ErrUnknownOutcome: the call ended before the broker answered. The messages
	// may have been stored or not; repeating with the same ids is safe.
	ErrUnknownOutcome = errors.New("outcome unknown, repeat with the same ids")
)

// ConfigError says which field of Config cannot be used.
type ConfigError struct{ Field, Reason string }

func (e *ConfigError) Error() string {
	return fmt.Sprintf("transport config: %s %s", e.Field, e.Reason)
}

// ConnectError says that there is no connection to the broker. Server is its
// address without user, password or token.
type ConnectError struct {
	Server string
	Waited time.Duration
	Err    error
}

func (e *ConnectError) Error() string {
	return fmt.Sprintf("connect to nats at %s (tried for %s): %v; is the server running there, and are Config.URL and the credentials right?",
		e.Server, e.Waited.Round(time.Millisecond), e.Err)
}

func (e *ConnectError) Unwrap() error { return e.Err }

// VersionError says that the server is too old.
type VersionError struct{ Have, Want string }

func (e *VersionError) Error() string {
	return fmt.Sprintf("nats-server is %s; %s or newer is needed", e.Have, e.Want)
}

// DriftError says that something declared on the broker differs from the
// configuration in a way that cannot or must not be corrected.
type DriftError struct {
	Name       string // of the stream or consumer
	Field      string
	Have, Want string
	Err        error // what the broker said, if it was asked
}

func (e *DriftError) Error() string {
	text := fmt.Sprintf("declare %s: %s is %s, wanted %s", e.Name, e.Field, e.Have, e.Want)
	if e.Err != nil {
		return text + ": " + e.Err.Error()
	}
	return text
}

func (e *DriftError) Unwrap() error { return e.Err }

// ShardsError says that the stream was declared with another number of shards.
// The number is fixed for ever, since it decides which owner sees which stream.
type ShardsError struct {
	Stream     string
	Have, Want int
}

func (e *ShardsError) Error() string {
	return fmt.Sprintf("declare %s: it was declared with %d shards, Config.Shards is %d; the number cannot change", e.Stream, e.Have, e.Want)
}

// GoneError says which stream or consumer is missing or was replaced.
type GoneError struct {
	Name   string
	Reason string
	Err    error
}

func (e *GoneError) Error() string {
	text := fmt.Sprintf("%s %s: declare again", e.Name, e.Reason)
	if e.Err != nil {
		return text + ": " + e.Err.Error()
	}
	return text
}

// Is makes errors.Is(err, ErrGone) true.
func (e *GoneError) Is(target error) bool { return target == ErrGone }

func (e *GoneError) Unwrap() error { return e.Err }

// SubjectTooLongError says that a stream name makes a subject that is too long,
// in bytes. A byte that is no letter, digit, '_' or '-' counts three.
type SubjectTooLongError struct {
	Stream      weir.StreamID
	Size, Limit int
}

func (e *SubjectTooLongError) Error() string {
	return fmt.Sprintf("stream %.100q makes a subject of %d bytes, the limit is %d", e.Stream, e.Size, e.Limit)
}

// RefusedError says that the broker will not store a message, now or later.
type RefusedError struct {
	ID      weir.ID
	Subject string
	Err     error
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("publish message %s to %s: refused: %v", e.ID, e.Subject, e.Err)
}

func (e *RefusedError) Unwrap() error { return e.Err }

// OmittedError says that an event came without its payload, which was more than the
// broker takes. Delivery.Event says which event it is: the store of the service that
// sent it has all of it.
type OmittedError struct {
	Event  weir.ID
	Reason string
}

func (e *OmittedError) Error() string {
	return fmt.Sprintf("event %s came without its payload: %s; the store it comes from has it", e.Event, e.Reason)
}

// UnreadableError holds a broker message that is not one of ours, whole, so that
// it can be kept before it is acknowledged.
type UnreadableError struct {
	Subject string
	Header  nats.Header
	Data    []byte
	Err     error
}

func (e *UnreadableError) Error() string {
	return fmt.Sprintf("read message on %.250q: %v", e.Subject, e.Err)
}

func (e *UnreadableError) Unwrap() error { return e.Err }
