package xes

import (
	"fmt"
	"time"
)

// Trace is one case: what happened to it, in the order of the file.
type Trace struct {
	// Name is the case's concept:name. Never empty.
	Name string
	// AmountReq is the case's AMOUNT_REQ, the requested amount, or nil.
	AmountReq *int64
	Events    []Event
	// Line is where the trace begins in the file, from 1.
	Line int
}

// Event is one thing that happened to a case.
type Event struct {
	// Activity is the event's concept:name. Never empty.
	Activity string
	// Transition is its lifecycle:transition, such as COMPLETE, or empty.
	Transition string
	// Resource is its org:resource, who did it, or empty.
	Resource string
	// Time is its time:timestamp, from 1970 on.
	Time time.Time
	// Line is where the event begins in the file, from 1.
	Line int
}

// Limits of a log. What is over one is refused, not cut.
const (
	// MaxTokenBytes is the longest tag, text or comment, and so the longest
	// attribute of any kind.
	MaxTokenBytes = 1 << 20
	// MaxTextBytes is the longest value that is kept: a case's name, an
	// activity, a transition, a resource.
	MaxTextBytes = 32 << 10
	// MaxTraceEvents is how many events one trace may have.
	MaxTraceEvents = 1_000_000
	// MaxAmount is the largest amount: a million of them still have a sum.
	MaxAmount = 1_000_000_000_000
	// maxDepth is how deep elements may nest.
	maxDepth = 100
)

// Error says what is wrong with a log and where.
type Error struct {
	// Line is the line of the (unzipped) log, from 1.
	Line   int
	Reason string
	// Err is the cause, if it is another package's.
	Err error
}

func (e *Error) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("line %d: %s", e.Line, e.Reason)
	}
	return fmt.Sprintf("line %d: %s: %s", e.Line, e.Reason, e.Err)
}

func (e *Error) Unwrap() error { return e.Err }
