package weir

import (
	"errors"
	"fmt"
	"time"
)

// Errors to ask for with errors.Is.
var (
	// ErrNotFound: there is no such stream, row or event.
	ErrNotFound = errors.New("not found")
	// ErrConflict: the stream was not at the expected version. As a
	// *ConflictError it says where the stream is.
	ErrConflict = errors.New("stream is not at the expected version")
	// ErrLeaseLost: another owner works on the shard now; nothing was written.
	ErrLeaseLost = errors.New("lease lost: another owner works on this shard")
	// ErrUnknownType: no Go type is registered for the message type, or no
	// message type for the Go type.
	ErrUnknownType = errors.New("type is not registered")
)

// ConflictError says that an append found its stream at another version.
// Nothing of that append is stored. Load the stream and decide again.
type ConflictError struct {
	Stream   StreamID
	Expected ExpectedVersion
	Actual   Version
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf("stream %q is at version %d, expected %d", e.Stream, e.Actual, e.Expected)
}

// Is makes errors.Is(err, ErrConflict) true.
func (e *ConflictError) Is(target error) bool { return target == ErrConflict }

// EmptyStreamError says that a message names no stream. Nothing is stored. A
// message that truly has none says so with Singleton.
type EmptyStreamError struct {
	ID     ID
	Type   string
	Stream StreamID
}

func (e *EmptyStreamError) Error() string {
	return fmt.Sprintf("message %s of type %q has an empty stream id %q: name its stream, or weir.Singleton if it has none", e.ID, short(e.Type), short(string(e.Stream)))
}

// InvalidStreamError says why a name cannot be a stream.
type InvalidStreamError struct {
	Stream StreamID
	Reason string
}

func (e *InvalidStreamError) Error() string {
	return fmt.Sprintf("stream %q %s", short(string(e.Stream)), e.Reason)
}

// InvalidMessageError says why a message cannot be stored. Sending it again
// cannot succeed.
type InvalidMessageError struct {
	ID     ID
	Type   string
	Reason string
}

func (e *InvalidMessageError) Error() string {
	return fmt.Sprintf("message %s of type %q %s", e.ID, short(e.Type), e.Reason)
}

// TooLargeError says that a message is over a limit, in bytes.
type TooLargeError struct {
	ID          ID
	What        string
	Size, Limit int
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("%s of message %s is %d bytes, the limit is %d", e.What, e.ID, e.Size, e.Limit)
}

// BatchTooLargeError says that one append holds more than a transaction should.
// Divide it.
type BatchTooLargeError struct {
	What        string // "messages" or "bytes of payload"
	Size, Limit int
}

func (e *BatchTooLargeError) Error() string {
	return fmt.Sprintf("one append of %d %s, the limit is %d", e.Size, e.What, e.Limit)
}

// FutureIDError says that an id lies absurdly far in the future of this
// machine's clock.
type FutureIDError struct {
	ID           ID
	Ahead, Limit time.Duration
}

func (e *FutureIDError) Error() string {
	return fmt.Sprintf("id %s is %s ahead of this clock, the limit is %s", e.ID, e.Ahead, e.Limit)
}

// InvalidTimeError says that a time does not fit an id.
type InvalidTimeError struct{ Time time.Time }

func (e *InvalidTimeError) Error() string {
	return fmt.Sprintf("time %s does not fit an id: it must lie between 1970 and 10889", e.Time.Format(time.RFC3339Nano))
}

// short keeps a hostile name from filling the log.
func short(text string) string {
	const most = 80
	if len(text) <= most {
		return text
	}
	return text[:most] + "…"
}
