package eventstore_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/eventstore"
	"github.com/weir-es/weir/internal/testkit"
)

// listed are the names that Streams lists.
func listed(t testing.TB, s *eventstore.Store, l eventstore.Streams) (names []weir.StreamID) {
	t.Helper()
	for head, err := range s.Streams(testkit.Context(t), l) {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, head.Stream)
	}
	return names
}

// TestStreamsListsEachStreamOnce, page by page, in the order of names, with its
// head.
func TestStreamsListsEachStreamOnce(t *testing.T) {
	t.Parallel()
	s := testkit.Store(t, eventstore.Config{})
	var facts []weir.Message
	var want []weir.StreamID
	for n := range 2500 {
		stream := weir.Stream("seat", fmt.Sprintf("%04d", n))
		want = append(want, stream)
		facts = append(facts, message(stream, 1))
	}
	others := []weir.StreamID{"sea-1", "seat.x-1", "seat!-1", "a-1", "seats-1", "\U0010FFFF-\U0010FFFF"}
	for _, stream := range others {
		facts = append(facts, message(stream, 1))
	}
	if _, err := s.Ingest(testkit.Context(t), false, facts...); err != nil {
		t.Fatal(err)
	}
	if got := listed(t, s, eventstore.Streams{Category: "seat"}); !slices.Equal(got, want) {
		t.Errorf("%d streams of the category, want %d: %.200q", len(got), len(want), got)
	}
	all := slices.Sorted(slices.Values(append(others, want...)))
	if got := listed(t, s, eventstore.Streams{}); !slices.Equal(got, all) {
		t.Errorf("%d streams, want %d", len(got), len(all))
	}
	if got := listed(t, s, eventstore.Streams{Category: "seat", After: want[1199], Limit: 1001}); !slices.Equal(got, want[1200:2201]) {
		t.Errorf("%d streams behind the 1200th", len(got))
	}
	if got := listed(t, s, eventstore.Streams{Category: "nothing"}); got != nil {
		t.Errorf("%q", got)
	}
}

// TestStreamsKnowsTheLastEvent of each, and shows no stream without one.
func TestStreamsKnowsTheLastEvent(t *testing.T) {
	t.Parallel()
	s := testkit.Store(t, eventstore.Config{})
	ctx := testkit.Context(t)
	events, err := s.Append(ctx, "seat-A1", weir.NewStream, messages("seat-A1", 3)...)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Append(ctx, "seat-A2", 7, message("seat-A2", 1)); err == nil {
		t.Fatal("no conflict")
	}
	last := events[2]
	seq := s.Streams(ctx, eventstore.Streams{})
	for range 2 { // it may be ranged over again
		n := 0
		for head, err := range seq {
			if n++; err != nil {
				t.Fatal(err)
			}
			if head.Stream != "seat-A1" || head.Version != 3 || head.ID != last.ID || head.Position != last.Position || head.Type != last.Type ||
				!head.Recorded.Equal(last.Recorded) || head.Shard != last.Stream.Shard(32) || head.Created.IsZero() {
				t.Errorf("%+v, last event %+v", head, last)
			}
		}
		if n != 1 {
			t.Errorf("%d streams", n)
		}
	}
	for _, err := range s.Streams(ctx, eventstore.Streams{Category: "a-b"}) {
		if err == nil {
			t.Error("a category with a dash lists something")
		}
	}
}
