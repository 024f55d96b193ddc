package ops

import (
	"fmt"
	"strconv"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/eventstore"
)

// InStream is a place in a stream, written as a version, an id or a time.
type InStream struct{ eventstore.Point }

// InLog is a place in the log, written as a position, an id or a time.
type InLog struct {
	eventstore.Point
	// Position is set if that is how it was written.
	Position weir.Position
}

// UnmarshalText reads a place.
func (p *InStream) UnmarshalText(text []byte) (err error) {
	if n := number(text); n > 0 {
		p.Point = eventstore.AtVersion(weir.Version(n))
		return nil
	}
	p.Point, err = pointOf(string(text), "version")
	return err
}

// UnmarshalText reads a place.
func (p *InLog) UnmarshalText(text []byte) (err error) {
	if n := number(text); n > 0 {
		p.Position = weir.Position(n)
		p.Point = eventstore.AtPosition(p.Position)
		return nil
	}
	p.Point, err = pointOf(string(text), "position")
	return err
}

// number is what the text counts to, or 0.
func number(text []byte) int64 {
	n, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// layouts are the ways to write a time, in UTC unless they say otherwise.
var layouts = []string{time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02T15:04", "2006-01-02 15:04", "2006-01-02"}

func pointOf(text, count string) (eventstore.Point, error) {
	if id, err := ulid.ParseStrict(text); err == nil {
		return eventstore.AtID(id), nil
	}
	if ago, err := time.ParseDuration(text); err == nil && ago > 0 {
		return eventstore.AtTime(time.Now().Add(-ago)), nil
	}
	for _, layout := range layouts {
		if t, err := time.Parse(layout, text); err == nil {
			return eventstore.AtTime(t), nil
		}
	}
	return eventstore.Point{}, fmt.Errorf("%.60q is no place: write a %s from 1, an id of 26 characters, a time such as 2026-01-31T12:00:00Z, or how long ago, such as 15m", text, count)
}
