package weir

import (
	"bytes"
	"time"
)

// Event is a message that the store has numbered.
type Event struct {
	Message
	// Version is its contiguous place in its stream, from 1.
	Version Version
	// Position is its place in the whole store: increasing, with gaps.
	Position Position
	// OrderID takes the place of ID in every sort, where the store gave one
	// because ID would have sorted before an event that was already decided.
	// Zero means that ID is the order.
	OrderID ID
	// Recorded is when its transaction began, by the database's clock, UTC,
	// in microseconds.
	Recorded time.Time
	// IsNew is true the first time a consumer is given the event, and false
	// when it is replayed.
	IsNew bool
}

// Order is the id that the event sorts by.
func (e Event) Order() ID {
	if e.OrderID != (ID{}) {
		return e.OrderID
	}
	return e.ID
}

// CompareEvents orders events as they were emitted.
func CompareEvents(a, b Event) int {
	x, y := a.Order(), b.Order()
	return bytes.Compare(x[:], y[:])
}

// CompareMessages orders messages as they were emitted.
func CompareMessages(a, b Message) int {
	return bytes.Compare(a.ID[:], b.ID[:])
}

// Version is a place in a stream: 1 for its first event, without gaps.
type Version int64

// Position is a place in the whole store. Positions grow and have gaps.
type Position int64

// ExpectedVersion is what a writer believes the version of a stream to be. A
// non-negative number is that version; see also AnyVersion and NewStream.
type ExpectedVersion int64

const (
	// AnyVersion appends whatever the version of the stream is.
	AnyVersion ExpectedVersion = -1
	// NewStream appends only if the stream has no event.
	NewStream ExpectedVersion = 0
)

// Exactly expects the stream at version v.
func Exactly(v Version) ExpectedVersion { return ExpectedVersion(v) }
