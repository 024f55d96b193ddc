package weir_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-es/weir"
)

func TestP5_EventsSortByOrderID(t *testing.T) {
	event := func(id, order uint32) weir.Event {
		e := weir.Event{Message: weir.Message{ID: idAt(noon, id, 0)}}
		if order > 0 {
			e.OrderID = idAt(noon, order, 0)
		}
		return e
	}
	// The third was decided after the second, by a clock that was behind.
	events := []weir.Event{event(9, 0), event(5, 0), event(1, 6), event(7, 0), event(3, 0)}
	slices.SortFunc(events, weir.CompareEvents)
	var got []uint32
	for _, e := range events {
		got = append(got, counterOf(e.ID))
	}
	if want := []uint32{3, 5, 1, 7, 9}; !slices.Equal(got, want) {
		t.Errorf("sorted as %v, want %v", got, want)
	}
}

func TestMessagesSortByID(t *testing.T) {
	a, b := weir.Message{ID: idAt(noon, 1, 9)}, weir.Message{ID: idAt(noon, 2, 0)}
	if weir.CompareMessages(a, b) >= 0 || weir.CompareMessages(b, a) <= 0 || weir.CompareMessages(a, a) != 0 {
		t.Error("messages do not sort by id")
	}
}

func TestExpectedVersions(t *testing.T) {
	if weir.Exactly(7) != 7 || weir.NewStream != weir.Exactly(0) || weir.AnyVersion >= 0 {
		t.Errorf("exactly 7 is %d, new %d, any %d", weir.Exactly(7), weir.NewStream, weir.AnyVersion)
	}
}

func TestConflictIsAskedForBothWays(t *testing.T) {
	var err error = &weir.ConflictError{Stream: "seat-A1", Expected: weir.Exactly(3), Actual: 4}
	if !errors.Is(err, weir.ErrConflict) || errors.Is(err, weir.ErrNotFound) {
		t.Error("a *ConflictError is not ErrConflict alone")
	}
}

// An error names the thing, so that its reader can find it.
func TestErrorsNameTheirSubject(t *testing.T) {
	id := idAt(noon, 1, 1)
	for _, c := range []struct {
		err  error
		want []string
	}{
		{&weir.ConflictError{Stream: "seat-A1", Expected: 3, Actual: 4}, []string{"seat-A1", "3", "4"}},
		{&weir.EmptyStreamError{ID: id, Type: "seat.held"}, []string{id.String(), "seat.held", "Singleton"}},
		{&weir.InvalidStreamError{Stream: "seat", Reason: "has no dash"}, []string{"seat", "has no dash"}},
		{&weir.InvalidMessageError{ID: id, Type: "seat.held", Reason: "has no id"}, []string{id.String(), "seat.held", "has no id"}},
		{&weir.TooLargeError{ID: id, What: "payload", Size: 12, Limit: 10}, []string{id.String(), "payload", "12", "10"}},
		{&weir.FutureIDError{ID: id, Ahead: time.Hour, Limit: time.Minute}, []string{id.String(), "1h0m0s", "1m0s"}},
		{&weir.InvalidTimeError{Time: time.Unix(-1, 0).UTC()}, []string{"1969-12-31T23:59:59Z", "1970"}},
	} {
		for _, want := range c.want {
			if !strings.Contains(c.err.Error(), want) {
				t.Errorf("%T says %q, without %q", c.err, c.err, want)
			}
		}
	}
}
