package weir_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/weir-es/weir"
)

// TestP5_TheOrderOfEventsIsTotal: events of the same millisecond, and of different
// counters within it, come out in one order whatever order they came in. No two
// different ids are equal. (zitadel PR#10710: events of one moment changed places)
func TestP5_TheOrderOfEventsIsTotal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		known := map[weir.ID]bool{}
		var events []weir.Event
		for range rapid.IntRange(2, 12).Draw(t, "events") {
			e := weir.Event{Message: weir.Message{ID: idAt(noon, rapid.Uint32Range(0, 2).Draw(t, "counter"), rapid.Uint64Range(0, 9).Draw(t, "tail"))}}
			if !known[e.ID] {
				events = append(events, e)
			}
			known[e.ID] = true
		}
		shuffled := rapid.Permutation(events).Draw(t, "order")
		slices.SortFunc(events, weir.CompareEvents)
		slices.SortFunc(shuffled, weir.CompareEvents)
		for i, e := range events {
			if shuffled[i].ID != e.ID || i > 0 && weir.CompareEvents(events[i-1], e) >= 0 {
				t.Fatalf("place %d has %s, or %s", i, e.ID, shuffled[i].ID)
			}
		}
	})
}
