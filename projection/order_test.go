package projection_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/internal/testkit"
	"github.com/weir-es/weir/projection"
)

// TestP5_TheFeedHandsOverInTheOrderOfIDs, of several streams and whatever the order
// in which they were stored.
func TestP5_TheFeedHandsOverInTheOrderOfIDs(t *testing.T) {
	t.Parallel()
	s := store(t)
	var facts []weir.Message
	for n := range 30 {
		facts = append(facts, add(weir.StreamID(fmt.Sprintf("a-%d", n%4)), n))
	}
	for _, m := range slices.Backward(facts) {
		ingest(t, s, m)
	}
	var seen []int
	h := projection.Handler{Name: "seen", Handle: func(_ context.Context, _ pgx.Tx, _ weir.Event, value any) error {
		seen = append(seen, value.(added).N)
		return nil
	}}
	w, stop := start(t, s, h)
	settle(t, s, w)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if !slices.IsSorted(seen) || len(seen) != 30 {
		t.Errorf("the handler was given %v", seen)
	}
}

// TestP5_ApplySortsWhatItIsGiven together with what it had to read for it.
func TestP5_ApplySortsWhatItIsGiven(t *testing.T) {
	t.Parallel()
	s := store(t)
	first, second, third := add("a-1", 1), add("a-1", 2), add("a-1", 3)
	ingest(t, s, first)
	ingest(t, s, third)
	if err := lists.Prepare(testkit.Context(t), s); err != nil {
		t.Fatal(err)
	}
	execute(t, s, "insert into weir.checkpoints (consumer, shard, position) select 'lists', n, 2 from generate_series(0, 31) n")
	w, _ := start(t, s, lists)
	ingest(t, s, second)
	settle(t, s, w)
	want(t, s, "a-1", 1, 2, 3)
	if p := w.Progress(); p.Rewinds != 0 || p.Applied != 1 {
		t.Errorf("that took %+v", p)
	}
}

func TestViewsByVersionAreNeverRewound(t *testing.T) {
	t.Parallel()
	s := store(t)
	view := projection.View[list]{Name: "lists", Order: projection.ByVersion}
	w, _ := start(t, s, view)
	facts := []weir.Message{add("a-1", 1), add("a-1", 2), add("a-1", 3)}
	for _, m := range slices.Backward(facts) {
		ingest(t, s, m)
		settle(t, s, w)
	}
	want(t, s, "a-1", 3, 2, 1)
	if p := w.Progress(); p.Rewinds != 0 || p.Inversions != 0 {
		t.Errorf("it counted %+v", p)
	}
	if found := verified(t, s, view); found.Wrong != 0 || found.Rows != 1 {
		t.Errorf("verify found %+v", found)
	}
	if done, err := view.Rebuild(testkit.Context(t), s, projection.Rebuild{}); err != nil || done.Changed != 0 {
		t.Errorf("the rebuild came to %+v: %v", done, err)
	}
	byKey := sums
	byKey.Order = projection.ByVersion
	if err := byKey.Prepare(testkit.Context(t), s); err == nil {
		t.Error("a view by key took an order")
	}
}

func TestSnapshotsThatCannotBeWrittenCostNothingElse(t *testing.T) {
	t.Parallel()
	s := store(t)
	if err := lists.Prepare(testkit.Context(t), s); err != nil {
		t.Fatal(err)
	}
	execute(t, s, `create function weir.refuse() returns trigger language plpgsql as $$begin raise exception 'no room'; end$$`)
	execute(t, s, "create trigger refuse before insert on weir.snap_lists for each statement execute function weir.refuse()")
	w, _ := start(t, s, lists)
	var seen []int
	for n := range 250 {
		seen = append(seen, n)
		ingest(t, s, add("a-1", n))
	}
	settle(t, s, w)
	want(t, s, "a-1", seen...)
	if p := w.Progress(); p.SnapshotsFailed == 0 || p.Parked != 0 || p.Applied != 250 {
		t.Errorf("it counted %+v", p)
	}
}

func TestSnapshotsOfAnotherSchemaAreDropped(t *testing.T) {
	t.Parallel()
	s := store(t)
	w, stop := start(t, s, lists)
	tardy := add("a-1", -1)
	for range 3 {
		var facts []weir.Message
		for n := range 100 {
			facts = append(facts, add("a-1", n))
		}
		ingest(t, s, facts...)
		settle(t, s, w)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	execute(t, s, `update weir.snap_lists set state = '{"Seen": [666]}'`)
	newer := lists
	newer.Schema = 7
	w, _ = start(t, s, newer)
	ingest(t, s, tardy)
	settle(t, s, w)
	if got := row(t, s, newer, "a-1"); len(got.State.Seen) != 301 || got.State.Seen[0] != -1 {
		t.Errorf("the row has seen %v", got.State.Seen)
	}
	checkSnapshots(t, s, "lists")
	if p := w.Progress(); p.Rewinds != 1 || p.FromSnapshot != 0 {
		t.Errorf("it counted %+v", p)
	}
}
