package batching

import (
	"testing"
	"time"
)

// Large slices that come back empty go to whatever key opens next. Were that
// unbounded, many keys of one item each could hold a thousand slots each.
func TestP9_RoomStaysInProportionToLimit(t *testing.T) {
	now := time.Now()
	window := Window{MaxItems: 1000, Limit: 5000}.orDefaults()
	s := newShelf[int, *int](window)
	for small := range 2000 {
		for range window.MaxItems {
			s.add(-1, now)
		}
		s.recycle()
		s.add(small, now)
		if most := 4*window.Limit + 2*window.MaxItems; s.slots > most || s.unused > spareSlots {
			t.Fatalf("after %d keys room for %d items and %d spare, want at most %d and %d",
				small, s.slots, s.unused, most, spareSlots)
		}
	}
}

// Were only one batch closed at the limit, 50,000 keys of one item each would
// leave in 50,000 calls.
func TestLimitFreesAFiftieth(t *testing.T) {
	s := newShelf[int, *int](Window{}.orDefaults())
	for key := range s.window.Limit {
		s.add(key, time.Now())
	}
	if len(s.closed) != 1000 || s.items != 49_000 {
		t.Fatalf("%d batches closed, %d items left; want 1000 and 49000", len(s.closed), s.items)
	}
	for i, e := range s.closed {
		if e.Key != i {
			t.Fatalf("key %d closed at place %d, want the oldest first", e.Key, i)
		}
	}
}

// What was flushed must not be held by the room that is kept.
func TestRecycledRoomPointsAtNothing(t *testing.T) {
	s := newShelf[int, *int](Window{}.orDefaults())
	s.add(1, time.Now())
	s.closeAll()
	s.recycle()
	for _, e := range s.spare {
		for _, p := range e.Items[:cap(e.Items)] {
			if p != nil {
				t.Fatal("a recycled item is still there")
			}
		}
	}
	if len(s.spare) != 1 {
		t.Fatalf("%d spare batches, want 1", len(s.spare))
	}
}

func (s *shelf[K, T]) add(key K, at time.Time) {
	e := s.open[key]
	if e == nil {
		e = s.start(key, at)
	}
	var item T
	if p, ok := any(&item).(**int); ok {
		*p = new(int)
	}
	s.put(e, item, 0, at)
}
