package eventstore_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/eventstore"
	"github.com/weir-es/weir/internal/testkit"
)

// TestFilteredReadsEqualFilteringInMemory: every combination of direction, start,
// as-of, filter and limit gives what reading everything and leaving out gives.
func TestFilteredReadsEqualFilteringInMemory(t *testing.T) {
	t.Parallel()
	s := testkit.Store(t, eventstore.Config{})
	ctx := testkit.Context(t)
	importer := weir.Import("read")
	start := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
	random := rand.New(rand.NewPCG(1, 1))
	var facts []weir.Message
	for n := range 300 {
		m := message(weir.Stream(fmt.Sprintf("cat%d", n%3), fmt.Sprint(n%7)), n)
		m.Type = fmt.Sprintf("type.%d", random.IntN(4))
		m.ID, _ = importer.At(start.Add(time.Duration(random.IntN(100)) * time.Second))
		facts = append(facts, m)
	}
	for part := range slices.Chunk(facts, 13) {
		if _, err := s.Ingest(ctx, false, part...); err != nil {
			t.Fatal(err)
		}
	}
	var log []weir.Event
	for e, err := range s.Log(ctx, 0) {
		if err != nil {
			t.Fatal(err)
		}
		log = append(log, e)
	}
	if len(log) != len(facts) {
		t.Fatalf("the log has %d events, want %d", len(log), len(facts))
	}
	rapid.Check(t, func(rt *rapid.T) {
		var r eventstore.Read
		r.Backward = rapid.Bool().Draw(rt, "backward")
		r.Limit = rapid.SampledFrom([]int{0, 0, 1, 5, 100}).Draw(rt, "limit")
		r.Types = rapid.SampledFrom([][]string{nil, nil, {"type.1"}, {"type.0", "type.3"}, {"no.such"}}).Draw(rt, "types")
		r.Categories = rapid.SampledFrom([][]string{nil, nil, {"cat1"}, {"cat0", "cat2"}}).Draw(rt, "categories")
		ofStream := rapid.Bool().Draw(rt, "stream")
		source := log
		stream := log[0].Stream
		if ofStream {
			source = slices.DeleteFunc(slices.Clone(log), func(e weir.Event) bool { return e.Stream != stream })
		}
		point := func(name string) (eventstore.Point, func(weir.Event) int) {
			at := rapid.SampledFrom(log).Draw(rt, name)
			switch kind := rapid.IntRange(0, 4).Draw(rt, name+" kind"); {
			case kind == 1 && ofStream:
				return eventstore.AtVersion(at.Version), func(e weir.Event) int { return int(e.Version - at.Version) }
			case kind == 2:
				return eventstore.AtPosition(at.Position), func(e weir.Event) int { return int(e.Position - at.Position) }
			case kind == 3:
				return eventstore.AtID(at.ID), func(e weir.Event) int { return e.Order().Compare(at.ID) }
			case kind == 4:
				when := weir.Event{Message: weir.Message{ID: at.ID}}.Order().Time()
				return eventstore.AtTime(time.UnixMilli(int64(when))), func(e weir.Event) int { return int(int64(e.Order().Time()) - int64(when)) }
			}
			return eventstore.Point{}, nil
		}
		from, fromOf := point("from")
		asOf, asOfOf := point("as of")
		r.From, r.AsOf = from, asOf

		want := slices.DeleteFunc(slices.Clone(source), func(e weir.Event) bool {
			return fromOf != nil && (r.Backward && fromOf(e) > 0 || !r.Backward && fromOf(e) < 0) ||
				asOfOf != nil && asOfOf(e) > 0 ||
				r.Types != nil && !slices.Contains(r.Types, e.Type) ||
				r.Categories != nil && !slices.Contains(r.Categories, e.Stream.Category())
		})
		if r.Backward {
			slices.Reverse(want)
		}
		if r.Limit > 0 {
			want = want[:min(len(want), r.Limit)]
		}
		read := s.ReadLog(ctx, r)
		if ofStream {
			read = s.ReadStream(ctx, stream, r)
		}
		var got []weir.ID
		for e, err := range read {
			if err != nil {
				rt.Fatal(err)
			}
			got = append(got, e.ID)
		}
		if !slices.Equal(got, ids(want)) {
			rt.Errorf("got %d events, want %d", len(got), len(want))
		}
	})
}

// TestReadsStopAtOnceAndKeepNoConnection when the loop ends or the context does.
func TestReadsStopAtOnceAndKeepNoConnection(t *testing.T) {
	t.Parallel()
	s := testkit.Store(t, eventstore.Config{})
	if _, err := s.Append(testkit.Context(t), "seat-A1", weir.NewStream, messages("seat-A1", 2500)...); err != nil {
		t.Fatal(err)
	}
	n := 0
	for range s.Log(testkit.Context(t), 0) {
		if n++; n == 3 {
			break
		}
		if held := s.Pool().Stat().AcquiredConns(); held > 1 { // the horizon may be looking
			t.Fatalf("%d connections are held while the loop runs", held)
		}
	}
	if n != 3 {
		t.Errorf("read %d events after the loop ended", n)
	}
}
