package eventstore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/eventstore"
	"github.com/weir-es/weir/internal/testkit"
)

// message is a small event of its own id.
func message(stream weir.StreamID, n int) weir.Message {
	return weir.Message{ID: weir.NewID(), Stream: stream, Type: "test.happened", Data: fmt.Appendf(nil, `{"n": %d}`, n)}
}

func messages(stream weir.StreamID, n int) []weir.Message {
	all := make([]weir.Message, n)
	for i := range all {
		all[i] = message(stream, i)
	}
	return all
}

func read(t *testing.T, s *eventstore.Store, stream weir.StreamID) (events []weir.Event) {
	t.Helper()
	for e, err := range s.Stream(testkit.Context(t), stream, 0) {
		if err != nil {
			t.Fatal(err)
		}
		events = append(events, e)
	}
	return events
}

func ids(events []weir.Event) (all []weir.ID) {
	for _, e := range events {
		all = append(all, e.ID)
	}
	return all
}

func TestAppendNumbersAndReturnsWhatIsStored(t *testing.T) {
	t.Parallel()
	s := testkit.Store(t, eventstore.Config{})
	want := messages("seat-A1", 3)
	want[1].Metadata = weir.Metadata{Correlation: "c", Causation: "d", Producer: "p", TraceParent: "00-1-2-01",
		TraceState: "x=y", Extra: map[string]string{"a b": "ü\n\\u0000"}}
	want[2].Data = []byte("{ \"z\":1e2 ,\n\"a\":9007199254740993, \"nul\":\"\\u0000\" }")

	got, err := s.Append(testkit.Context(t), "seat-A1", weir.NewStream, want...)
	if err != nil {
		t.Fatal(err)
	}
	stored := read(t, s, "seat-A1")
	for i, e := range stored {
		g := got[i]
		if e.Version != weir.Version(i+1) || g.Version != e.Version || g.Position != e.Position || !g.Recorded.Equal(e.Recorded) {
			t.Errorf("event %d: stored %d at %d %s, returned %d at %d %s", i, e.Version, e.Position, e.Recorded, g.Version, g.Position, g.Recorded)
		}
		if fmt.Sprint(e.Message) != fmt.Sprint(want[i]) || fmt.Sprint(g.Message) != fmt.Sprint(want[i]) {
			t.Errorf("event %d: got %v, want %v", i, e.Message, want[i])
		}
	}
	if len(stored) != 3 {
		t.Fatalf("stored %d events", len(stored))
	}
}

// TestP3_RepeatedAppendReturnsWhatIsStored also with the old expected version
// and for a part of a batch.
func TestP3_RepeatedAppendReturnsWhatIsStored(t *testing.T) {
	t.Parallel()
	s := testkit.Store(t, eventstore.Config{})
	ctx := testkit.Context(t)
	all := messages("seat-A1", 5)
	first, err := s.Append(ctx, "seat-A1", weir.NewStream, all[:3]...)
	if err != nil {
		t.Fatal(err)
	}
	for name, repeat := range map[string][]weir.Message{"whole": all[:3], "part": all[1:2], "twice in one call": {all[0], all[0]}} {
		again, err := s.Append(ctx, "seat-A1", weir.NewStream, repeat...)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for i, e := range again {
			at := slices.Index(ids(first), repeat[i].ID)
			if e.Version != first[at].Version || e.Position != first[at].Position {
				t.Errorf("%s: got version %d at %d, want %d at %d", name, e.Version, e.Position, first[at].Version, first[at].Position)
			}
		}
	}
	longer, err := s.Append(ctx, "seat-A1", weir.NewStream, all...)
	if err != nil {
		t.Fatal(err)
	}
	if got := read(t, s, "seat-A1"); len(got) != 5 || longer[4].Version != 5 {
		t.Errorf("%d events stored, last answered as version %d", len(got), longer[4].Version)
	}
}

func TestAppendConflict(t *testing.T) {
	t.Parallel()
	s := testkit.Store(t, eventstore.Config{})
	ctx := testkit.Context(t)
	if _, err := s.Append(ctx, "seat-A1", weir.NewStream, messages("seat-A1", 2)...); err != nil {
		t.Fatal(err)
	}
	for _, expected := range []weir.ExpectedVersion{weir.NewStream, 1, 3} {
		_, err := s.AppendAll(ctx,
			eventstore.Append{Stream: "seat-A0", Expected: weir.AnyVersion, Messages: messages("seat-A0", 1)},
			eventstore.Append{Stream: "seat-A1", Expected: expected, Messages: messages("seat-A1", 1)})
		var conflict *weir.ConflictError
		if !errors.As(err, &conflict) || conflict.Stream != "seat-A1" || conflict.Expected != expected || conflict.Actual != 2 {
			t.Errorf("expected %d: got %v", expected, err)
		}
	}
	if got := len(read(t, s, "seat-A0")); got != 0 {
		t.Errorf("a conflict in one stream left %d events in another", got)
	}
	if _, err := s.Append(ctx, "seat-A1", weir.Exactly(2), message("seat-A1", 3)); err != nil {
		t.Error(err)
	}
}

// TestP5_VersionsFollowIDsInsideAnAppend whatever the caller's order, and a
// decision that would sort too early gets an order id.
func TestP5_VersionsFollowIDsInsideAnAppend(t *testing.T) {
	t.Parallel()
	s := testkit.Store(t, eventstore.Config{})
	ctx := testkit.Context(t)
	early, late := message("seat-A1", 0), messages("seat-A1", 3)
	given := []weir.Message{late[2], late[0], late[1]}
	if _, err := s.Append(ctx, "seat-A1", weir.NewStream, given...); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Append(ctx, "seat-A1", weir.Exactly(3), early); err != nil {
		t.Fatal(err)
	}
	got := read(t, s, "seat-A1")
	if want := []weir.ID{late[0].ID, late[1].ID, late[2].ID, early.ID}; !slices.Equal(ids(got), want) {
		t.Errorf("got %v, want %v", ids(got), want)
	}
	if got[3].OrderID == (weir.ID{}) || !slices.IsSortedFunc(got, weir.CompareEvents) {
		t.Errorf("the late decision sorts before what it knew: order id %s", got[3].OrderID)
	}
}

// TestP3_FactsAreStoredOnce however often and in whatever company they come, and
// keep their place in time.
func TestP3_FactsAreStoredOnce(t *testing.T) {
	t.Parallel()
	s := testkit.Store(t, eventstore.Config{})
	ctx := testkit.Context(t)
	facts := append(messages("case-1", 4), messages("case-2", 4)...)
	steps := []struct {
		facts []weir.Message
		want  eventstore.Ingested
	}{
		{facts[2:3], eventstore.Ingested{Stored: 1}},
		{facts[:4], eventstore.Ingested{Stored: 3, Duplicates: 1}},
		{append(facts[3:], facts[3:]...), eventstore.Ingested{Stored: 4, Duplicates: 6}},
		{facts, eventstore.Ingested{Duplicates: 8}},
	}
	for i, step := range steps {
		got, err := s.Ingest(ctx, false, step.facts...)
		if err != nil || got != step.want {
			t.Errorf("step %d: got %+v, %v, want %+v", i, got, err, step.want)
		}
	}
	stored := read(t, s, "case-1")
	if want := []weir.ID{facts[2].ID, facts[0].ID, facts[1].ID, facts[3].ID}; !slices.Equal(ids(stored), want) {
		t.Errorf("got %v, want %v", ids(stored), want)
	}
	for _, e := range stored {
		if e.OrderID != (weir.ID{}) {
			t.Errorf("fact at version %d got an order id", e.Version)
		}
	}
}

func TestAppendRefusesBeforeAnythingIsSent(t *testing.T) {
	t.Parallel()
	s := testkit.Store(t, eventstore.Config{})
	bad := message("seat-A1", 0)
	bad.Data = []byte(`{"a":`)
	var invalid *weir.InvalidMessageError
	if _, err := s.Append(testkit.Context(t), "seat-A1", weir.AnyVersion, message("seat-A1", 0), bad); !errors.As(err, &invalid) {
		t.Errorf("not JSON: %v", err)
	}
	var empty *weir.EmptyStreamError
	if _, err := s.Append(testkit.Context(t), "", weir.AnyVersion, message("", 0)); !errors.As(err, &empty) {
		t.Errorf("no stream: %v", err)
	}
	if got := len(read(t, s, "seat-A1")); got != 0 {
		t.Errorf("%d events of a refused append are stored", got)
	}
}

func TestSingletonsAreStreamsOfTheirOwn(t *testing.T) {
	t.Parallel()
	s := testkit.Store(t, eventstore.Config{})
	a, b := message(weir.Singleton, 1), message(weir.Singleton, 2)
	if _, err := s.Ingest(testkit.Context(t), false, a, b); err != nil {
		t.Fatal(err)
	}
	for _, m := range []weir.Message{a, b} {
		if got := read(t, s, weir.Singleton.Resolve(m.ID)); len(got) != 1 || got[0].ID != m.ID {
			t.Errorf("singleton %s: got %v", m.ID, got)
		}
	}
}

// TestAppendTxIsTheCallers to commit or to roll back, and then nothing of it is left.
// (hallgren/eventsourcing#146)
func TestAppendTxIsTheCallers(t *testing.T) {
	t.Parallel()
	s := testkit.Store(t, eventstore.Config{})
	ctx := testkit.Context(t)
	m := message("seat-A1", 1)
	tx, err := s.Pool().Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.AppendTx(ctx, tx, eventstore.Append{Stream: "seat-A1", Messages: []weir.Message{m}}); err != nil {
		t.Fatal(err)
	}
	if err := tx.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	if got := len(read(t, s, "seat-A1")); got != 0 {
		t.Fatalf("a rolled-back append left %d events", got)
	}
	err = pgx.BeginFunc(ctx, s.Pool(), func(tx pgx.Tx) error {
		_, err := s.AppendTx(ctx, tx, eventstore.Append{Stream: "seat-A1", Messages: []weir.Message{m}})
		return err
	})
	if got := read(t, s, "seat-A1"); err != nil || len(got) != 1 || got[0].Version != 1 {
		t.Errorf("got %v, %v", got, err)
	}
}

// TestGroupAppend: many writers at once, on streams of their own and on one;
// conflicts and repeats among them are their own business.
func TestGroupAppend(t *testing.T) {
	t.Parallel()
	s := testkit.Store(t, eventstore.Config{})
	ctx := testkit.Context(t)
	const writers, each = 16, 25
	var wg sync.WaitGroup
	var won sync.Map
	for w := range writers {
		wg.Go(func() {
			own := weir.Stream("own", fmt.Sprint(w))
			for i := range each {
				m := message(own, i)
				for range 2 { // the second is a repeat
					if _, err := s.Append(ctx, own, weir.ExpectedVersion(i), m); err != nil {
						t.Errorf("own stream: %v", err)
					}
				}
				if _, err := s.Append(ctx, "shared-1", weir.AnyVersion, message("shared-1", i)); err != nil {
					t.Errorf("shared stream: %v", err)
				}
				race := message("race-1", i)
				switch _, err := s.Append(ctx, "race-1", weir.ExpectedVersion(i), race); {
				case err == nil:
					won.Store(race.ID, i)
				case !errors.Is(err, weir.ErrConflict):
					t.Errorf("race: %v", err)
				}
			}
		})
	}
	wg.Wait()
	contiguous := func(stream weir.StreamID, want int) []weir.Event {
		events := read(t, s, stream)
		if want >= 0 && len(events) != want {
			t.Errorf("%s has %d events, want %d", stream, len(events), want)
		}
		for i, e := range events {
			if e.Version != weir.Version(i+1) || i > 0 && (e.Position <= events[i-1].Position || weir.CompareEvents(e, events[i-1]) <= 0) {
				t.Fatalf("%s: event %d is version %d, position %d", stream, i, e.Version, e.Position)
			}
		}
		return events
	}
	for w := range writers {
		contiguous(weir.Stream("own", fmt.Sprint(w)), each)
	}
	contiguous("shared-1", writers*each)
	raced := 0
	won.Range(func(any, any) bool { raced++; return true })
	for _, e := range contiguous("race-1", raced) {
		if _, ok := won.Load(e.ID); !ok {
			t.Errorf("event %s is stored, but its writer was told it conflicts", e.ID)
		}
	}
}

// TestP9_CallerWhoGivesUpTakesNobodyAlong: the append goes on for the others.
func TestP9_CallerWhoGivesUpTakesNobodyAlong(t *testing.T) {
	t.Parallel()
	s := testkit.Store(t, eventstore.Config{})
	ctx := testkit.Context(t)
	gone, cancel := context.WithCancel(ctx)
	cancel()
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			s.Append(gone, "seat-A1", weir.AnyVersion, message("seat-A1", i))
		})
		wg.Go(func() {
			if _, err := s.Append(ctx, "seat-A2", weir.AnyVersion, message("seat-A2", i)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if got := len(read(t, s, "seat-A2")); got != 20 {
		t.Errorf("%d events stored, want 20", got)
	}
}
