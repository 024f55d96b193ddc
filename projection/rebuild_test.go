package projection_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/eventstore"
	"github.com/weir-es/weir/internal/testkit"
	"github.com/weir-es/weir/projection"
)

// dump is the whole table of a view, as text, without the times.
func dump(t *testing.T, s *eventstore.Store, name string) map[string]string {
	t.Helper()
	rows, err := s.Pool().Query(testkit.Context(t), s.Qualify("select key, row(state, version, event_id, position, fingerprint)::text from weir.view_"+name))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	var key, text string
	if _, err := pgx.ForEachRow(rows, []any{&key, &text}, func() error { all[key] = text; return nil }); err != nil {
		t.Fatal(err)
	}
	return all
}

func same(t *testing.T, before, after map[string]string) {
	t.Helper()
	if len(before) != len(after) {
		t.Errorf("%d rows before, %d after", len(before), len(after))
	}
	for key, was := range before {
		if is := after[key]; is != was {
			t.Errorf("row %s\n was %s\n is  %s", key, was, is)
		}
	}
}

// shuffled are facts of some streams, of which many come late.
func shuffled(streams, each int) (facts []weir.Message) {
	for n := range each {
		for stream := range streams {
			facts = append(facts, add(weir.StreamID(fmt.Sprintf("a-%d", stream)), n))
		}
	}
	for i := 3; i < len(facts); i += 7 {
		facts[i], facts[i-3] = facts[i-3], facts[i]
	}
	return facts
}

func execute(t *testing.T, s *eventstore.Store, sql string, arguments ...any) {
	t.Helper()
	if _, err := s.Pool().Exec(testkit.Context(t), s.Qualify(sql), arguments...); err != nil {
		t.Fatal(err)
	}
}

func verified(t *testing.T, s *eventstore.Store, v projection.View[list]) projection.Verified {
	t.Helper()
	found, err := v.Verify(testkit.Context(t), s)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// marten#577: the second rebuild of a process does nothing but delete.
func TestARebuildMakesTheSameRows(t *testing.T) {
	t.Parallel()
	s := store(t)
	w, _ := start(t, s, lists)
	facts := shuffled(20, 30)
	for i := 0; i < len(facts); i += 50 {
		ingest(t, s, facts[i:min(i+50, len(facts))]...)
	}
	ingest(t, s, fact("a-3", "test.dropped", dropped{}), fact("f-1", "test.foreign", 1))
	settle(t, s, w)
	before := dump(t, s, "lists")
	for range 2 {
		done, err := lists.Rebuild(testkit.Context(t), s, projection.Rebuild{})
		if err != nil {
			t.Fatal(err)
		}
		if done.Added+done.Removed+done.Changed != 0 || done.Events < 601 || done.Rows != 19 {
			t.Errorf("the rebuild came to %+v", done)
		}
		same(t, before, dump(t, s, "lists"))
	}
	ingest(t, s, add("a-3", 7), add("a-1", 7))
	settle(t, s, w)
	want(t, s, "a-3", 7)
	if found := verified(t, s, lists); found.Wrong != 0 || found.Rows != 20 {
		t.Errorf("verify found %+v", found)
	}
}

func TestARebuildMendsWhatVerifyFinds(t *testing.T) {
	t.Parallel()
	s := store(t)
	w, _ := start(t, s, lists)
	ingest(t, s, shuffled(10, 10)...)
	settle(t, s, w)
	before := dump(t, s, "lists")
	execute(t, s, `update weir.view_lists set state = '{"Seen": [1]}' where key = 'a-1'`)
	execute(t, s, `update weir.view_lists set version = 3 where key = 'a-2'`)
	execute(t, s, `update weir.view_lists set fingerprint = '\x00112233445566778899aabbccddeeff' where key = 'a-3'`)
	execute(t, s, `delete from weir.view_lists where key = 'a-4'`)
	execute(t, s, `insert into weir.view_lists (key, state, version) values ('a-none', '{}', 1)`)
	found := verified(t, s, lists)
	got := map[string]string{}
	for _, d := range found.Differences {
		got[d.Key] = d.What
	}
	wanted := map[string]string{"a-1": "state", "a-2": "version", "a-3": "order", "a-4": "missing", "a-none": "extra"}
	if fmt.Sprint(got) != fmt.Sprint(wanted) || found.Wrong != 5 {
		t.Errorf("verify found %v, want %v", got, wanted)
	}
	if err := lists.RebuildKey(testkit.Context(t), s, "a-1"); err != nil {
		t.Fatal(err)
	}
	done, err := lists.Rebuild(testkit.Context(t), s, projection.Rebuild{})
	if err != nil {
		t.Fatal(err)
	}
	if done.Added != 1 || done.Removed != 1 || done.Changed != 2 {
		t.Errorf("the rebuild came to %+v", done)
	}
	same(t, before, dump(t, s, "lists"))
	ingest(t, s, add("a-2", 100))
	settle(t, s, w)
	if found := verified(t, s, lists); found.Wrong != 0 {
		t.Errorf("verify found %+v after the rebuild", found)
	}
}

func TestARebuildOfAViewByKey(t *testing.T) {
	t.Parallel()
	s := store(t)
	w, _ := start(t, s, sums)
	ingest(t, s, shuffled(10, 30)...)
	settle(t, s, w)
	before := dump(t, s, "sums")
	execute(t, s, `update weir.view_sums set state = '{"Sum": -1}' where key = '1'`)
	if found, err := sums.Verify(testkit.Context(t), s); err != nil || found.Wrong != 1 || found.Differences[0].Key != "1" {
		t.Errorf("verify found %+v: %v", found, err)
	}
	done, err := sums.Rebuild(testkit.Context(t), s, projection.Rebuild{})
	if err != nil || done.Changed != 1 || done.Events != 300 {
		t.Errorf("the rebuild came to %+v: %v", done, err)
	}
	same(t, before, dump(t, s, "sums"))
	ingest(t, s, add("a-1", 1))
	settle(t, s, w)
	if found, err := sums.Verify(testkit.Context(t), s); err != nil || found.Wrong != 0 {
		t.Errorf("verify found %+v: %v", found, err)
	}
}

// sums has rows of many streams.
var sums = projection.View[sum]{Name: "sums", Types: []string{"test.added"},
	Key: projection.By(func(_ weir.Event, value any) string { return fmt.Sprint(value.(added).N % 3) })}

type sum struct{ Sum, Count int }

func (s sum) Evolve(event any) sum { return sum{s.Sum + event.(added).N, s.Count + 1} }

func TestARebuildGoesOnBesideLiveEvents(t *testing.T) {
	t.Parallel()
	s := store(t)
	w, _ := start(t, s, lists)
	ingest(t, s, shuffled(50, 20)...)
	settle(t, s, w)
	ctx := testkit.Context(t)
	writing, stop := context.WithCancel(ctx)
	written := make(chan error, 1)
	go func() {
		for n := 0; writing.Err() == nil; n++ {
			facts := shuffled(50, 4)
			if _, err := s.Ingest(ctx, false, facts...); err != nil {
				written <- err
				return
			}
		}
		written <- nil
	}()
	for range 3 {
		done, err := lists.Rebuild(ctx, s, projection.Rebuild{})
		if err != nil {
			t.Fatal(err)
		}
		if done.Added+done.Removed+done.Changed != 0 {
			t.Errorf("live and rebuilt rows differ: %+v", done)
		}
	}
	stop()
	if err := <-written; err != nil {
		t.Fatal(err)
	}
	settle(t, s, w)
	if found := verified(t, s, lists); found.Wrong != 0 || found.Rows != 50 {
		t.Errorf("verify found %+v", found)
	}
}

func TestARebuildStopsAtAPoisonedEvent(t *testing.T) {
	t.Parallel()
	s := store(t)
	w, _ := start(t, s, lists)
	ingest(t, s, add("a-1", 1), fact("b-1", "test.failing", failing{}), add("c-1", 1))
	settle(t, s, w)
	before := dump(t, s, "lists")
	_, err := lists.Rebuild(testkit.Context(t), s, projection.Rebuild{})
	var stopped *projection.RebuildEventError
	if !errors.As(err, &stopped) || stopped.Stream != "b-1" || stopped.Version != 1 || stopped.Type != "test.failing" {
		t.Errorf("the rebuild ended with %v", err)
	}
	same(t, before, dump(t, s, "lists"))

	healed := projection.View[tolerant]{Name: "lists", Types: lists.Types, Schema: 1}
	done, err := healed.Rebuild(testkit.Context(t), s, projection.Rebuild{})
	if err != nil || done.Edition != 2 || done.Rows != 3 {
		t.Errorf("the rebuild with a better fold came to %+v: %v", done, err)
	}
	parked, err := s.Parked(testkit.Context(t), "lists")
	if err != nil || len(parked) != 0 {
		t.Errorf("after the rebuild %v is parked: %v", parked, err)
	}
}

// tolerant is list with a fold that can take everything.
type tolerant struct {
	Seen []int
	Gone bool `json:",omitempty"`
}

func (l tolerant) Evolve(event any) tolerant {
	if _, fails := event.(failing); fails {
		return l
	}
	return tolerant(list(l).Evolve(event))
}

// marten#2597: a rebuild with nothing to fold throws.
func TestARebuildOfNothing(t *testing.T) {
	t.Parallel()
	s := store(t)
	if err := lists.Prepare(testkit.Context(t), s); err != nil {
		t.Fatal(err)
	}
	rebuilt := func() {
		t.Helper()
		done, err := lists.Rebuild(testkit.Context(t), s, projection.Rebuild{})
		if err != nil || done.Rows != 0 {
			t.Errorf("the rebuild came to %+v: %v", done, err)
		}
	}
	rebuilt()
	w, _ := start(t, s, lists)
	ingest(t, s, fact("a-1", "test.foreign", 1))
	settle(t, s, w)
	rebuilt()
}

func TestTwoRebuildsOfAViewAreRefusedAndAnInterruptedOneGoesOn(t *testing.T) {
	t.Parallel()
	s := store(t)
	w, _ := start(t, s, lists)
	for range 20 {
		ingest(t, s, shuffled(100, 10)...)
	}
	settle(t, s, w)
	before := dump(t, s, "lists")
	ctx, interrupt := context.WithCancel(testkit.Context(t))
	var second error
	_, err := lists.Rebuild(ctx, s, projection.Rebuild{Progress: func(p projection.Progressed) {
		if second == nil {
			_, second = lists.Rebuild(testkit.Context(t), s, projection.Rebuild{})
		}
		interrupt()
	}})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("the interrupted rebuild ended with %v", err)
	}
	var running *projection.RebuildRunningError
	if !errors.As(second, &running) {
		t.Errorf("a second rebuild at the same time ended with %v", second)
	}
	var first *projection.Progressed
	done, err := lists.Rebuild(testkit.Context(t), s, projection.Rebuild{Progress: func(p projection.Progressed) {
		if first == nil {
			first = &p
		}
	}})
	if err != nil || done.Events != 20_000 || done.Changed+done.Added+done.Removed != 0 {
		t.Errorf("the rebuild came to %+v: %v", done, err)
	}
	if first.Done <= 8000 {
		t.Errorf("the rebuild did not go on where it was but at %+v", first)
	}
	same(t, before, dump(t, s, "lists"))
}

// hatchet#2573: what is stuck cannot be cancelled.
func TestACancelledRebuildLeavesNothing(t *testing.T) {
	t.Parallel()
	for _, phase := range []string{"streams", "check", "swap"} {
		t.Run(phase, func(t *testing.T) {
			t.Parallel()
			cancelIn(t, phase)
		})
	}
}

func cancelIn(t *testing.T, phase string) {
	s := store(t)
	w, _ := start(t, s, lists)
	for range 20 {
		ingest(t, s, shuffled(100, 10)...)
	}
	settle(t, s, w)
	_, err := lists.Rebuild(testkit.Context(t), s, projection.Rebuild{Progress: func(p projection.Progressed) {
		if p.Phase != phase {
			return
		}
		if err := lists.CancelRebuild(testkit.Context(t), s); err != nil {
			t.Error(err)
		}
	}})
	if !errors.Is(err, projection.ErrRebuildCancelled) {
		t.Errorf("the rebuild ended with %v", err)
	}
	var left int
	row := s.Pool().QueryRow(testkit.Context(t), s.Qualify("select (select count(*) from weir.next_lists) + (select count(*) from weir.rebuilds)"))
	if err := row.Scan(&left); err != nil || left != 0 {
		t.Errorf("%d rows are left: %v", left, err)
	}
}

func TestTimeTravel(t *testing.T) {
	t.Parallel()
	s := store(t)
	w, _ := start(t, s, lists)
	facts := make([]weir.Message, 500)
	for i := range facts {
		facts[i] = add("a-1", i)
	}
	// Every tenth comes a little late.
	stored := append([]weir.Message(nil), facts...)
	for i := 10; i < len(stored); i += 10 {
		stored[i-4], stored[i] = stored[i], stored[i-4]
	}
	for i := 0; i < len(stored); i += 25 {
		ingest(t, s, stored[i:i+25]...)
		settle(t, s, w)
	}
	if p := w.Progress(); p.Rewinds == 0 || p.FromSnapshot == 0 {
		t.Errorf("nothing was rewound from a snapshot: %+v", p)
	}
	ctx := testkit.Context(t)
	for _, n := range []int{1, 2, 77, 100, 101, 250, 499, 500} {
		got, err := lists.GetAt(ctx, s, "a-1", eventstore.AtID(facts[n-1].ID))
		if err != nil || len(got.Seen) != n || got.Seen[n-1] != n-1 {
			t.Errorf("at id %d it has seen %v: %v", n, got.Seen, err)
		}
		got, err = lists.GetAt(ctx, s, "a-1", eventstore.AtVersion(weir.Version(n)))
		if err != nil || len(got.Seen) != n {
			t.Errorf("at version %d it has seen %d: %v", n, len(got.Seen), err)
		}
	}
	if _, err := lists.GetAt(ctx, s, "a-none", eventstore.AtVersion(1)); !errors.Is(err, weir.ErrNotFound) {
		t.Errorf("a row that never was: %v", err)
	}
	n := 0
	for e, err := range lists.Explain(ctx, s, "a-1") {
		var data added
		if err != nil || json.Unmarshal(e.Data, &data) != nil || data.N != n {
			t.Fatalf("the event number %d that made the row is %s: %v", n, e.Data, err)
		}
		n++
	}
	if n != 500 {
		t.Errorf("%d events made the row", n)
	}
	if found := verified(t, s, lists); found.Wrong != 0 {
		t.Errorf("verify found %+v", found)
	}
}
