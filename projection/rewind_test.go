package projection_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/eventstore"
	"github.com/weir-es/weir/internal/testkit"
	"github.com/weir-es/weir/projection"
)

// late moves some facts to the back, by up to so many places.
func late(random *rand.Rand, facts []weir.Message, places, every int) []weir.Message {
	type place struct {
		m  weir.Message
		at int
	}
	var all []place
	for i, m := range facts {
		at := i
		if random.IntN(every) == 0 {
			at += 1 + random.IntN(places)
		}
		all = append(all, place{m, at})
	}
	slices.SortStableFunc(all, func(a, b place) int { return cmp.Compare(a.at, b.at) })
	moved := make([]weir.Message, len(all))
	for i, p := range all {
		moved[i] = p.m
	}
	return moved
}

// seenBy are the numbers that a sorted fold sees.
func seenBy(facts []weir.Message) (seen []int) {
	sorted := slices.Clone(facts)
	slices.SortFunc(sorted, weir.CompareMessages)
	for _, m := range sorted {
		seen = append(seen, numberIn(m))
	}
	return seen
}

// checkSnapshots folds the events of each snapshot again.
func checkSnapshots(t testing.TB, s *eventstore.Store, name string) (snapshots int) {
	t.Helper()
	ctx := testkit.Context(t)
	rows, err := s.Pool().Query(ctx, s.Qualify(`
		select key, last, state->'Seen', (select count(*) from weir.snap_`+name+` o where o.key = s.key),
		       (select array_agg((e.data->>'N')::int order by coalesce(e.order_id, e.event_id))
		          from weir.events e join weir.streams st on st.id = e.stream_id
		         where st.name = s.key and e.type = 'test.added' and coalesce(e.order_id, e.event_id) <= s.last)
		  from weir.snap_`+name+` s`))
	if err != nil {
		t.Fatal(err)
	}
	var key string
	var last [16]byte
	var state []byte
	var of int
	var folded []int
	_, err = pgx.ForEachRow(rows, []any{&key, &last, &state, &of, &folded}, func() error {
		snapshots++
		var seen []int
		if err := json.Unmarshal(state, &seen); err != nil {
			return err
		}
		if !slices.Equal(seen, folded) {
			t.Errorf("the snapshot of %s at %s holds %d events, the log has %d up to there", key, weir.ID(last), len(seen), len(folded))
		}
		if of > 8 {
			t.Errorf("%s has %d snapshots", key, of)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return snapshots
}

func TestP5_RewindsFromSnapshotsEqualTheSortedFold(t *testing.T) {
	t.Parallel()
	s := store(t)
	w, _ := startWith(t, s, lists, func(w *projection.Worker) { w.SetLongest(150) })
	round := 0
	rapid.Check(t, func(r *rapid.T) {
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(r, "seed"), 1))
		n := rapid.IntRange(1, 2000).Draw(r, "events")
		places := rapid.SampledFrom([]int{1, 5, 50, 500}).Draw(r, "places")
		batch := rapid.SampledFrom([]int{20, 100, 500}).Draw(r, "batch")
		streams := map[weir.StreamID][]weir.Message{}
		facts := make([]weir.Message, n)
		for i := range facts {
			stream := weir.StreamID(fmt.Sprintf("a-%d", round+random.IntN(4)))
			facts[i] = add(stream, i)
			streams[stream] = append(streams[stream], facts[i])
		}
		round += 4
		for part := range slices.Chunk(late(random, facts, places, 5), batch) {
			ingest(t, s, part...)
			if random.IntN(2) == 0 {
				settle(t, s, w)
			}
		}
		settle(t, s, w)
		for stream, facts := range streams {
			if got := row(t, s, lists, string(stream)); !slices.Equal(got.State.Seen, seenBy(facts)) || got.Version != weir.Version(len(facts)) {
				r.Fatalf("the row of %d events is at version %d and has seen %v", len(facts), got.Version, got.State.Seen)
			}
		}
	})
	if found := verified(t, s, lists); found.Wrong != 0 {
		t.Errorf("verify found %+v", found)
	}
	snapshots := checkSnapshots(t, s, "lists")
	if p := w.Progress(); p.FromSnapshot == 0 || p.FromSnapshot == p.Rewinds || snapshots == 0 || p.SnapshotsFailed > 0 {
		t.Errorf("of %d rewinds %d began with one of %d snapshots; %d batches went without", p.Rewinds, p.FromSnapshot, snapshots, p.SnapshotsFailed)
	}
}

// TestP5_LateByAnyDistance is one late event in a long stream.
func TestP5_LateByAnyDistance(t *testing.T) {
	t.Parallel()
	s := store(t)
	counts := projection.View[trail]{Name: "trails"}
	w, _ := start(t, s, counts)
	const n = 20_000
	facts := make([]weir.Message, n+3)
	for i := range facts {
		facts[i] = add("a-1", i)
	}
	stored := slices.Clone(facts)
	var lates []weir.Message
	for _, distance := range []int{n - 1, 1000, 10} {
		at := len(stored) - 1 - distance
		lates = append(lates, stored[at])
		stored = slices.Delete(stored, at, at+1)
	}
	for part := range slices.Chunk(stored, 5000) {
		ingest(t, s, part...)
	}
	settle(t, s, w)
	replayed := int64(0)
	for i, most := range []int64{210, 3000, n + 3} {
		ingest(t, s, lates[len(lates)-1-i])
		settle(t, s, w)
		p := w.Progress()
		if got := p.Replayed - replayed; p.Rewinds != int64(i)+1 || got > most {
			t.Errorf("late event number %d: %d rewinds, %d events replayed", i, p.Rewinds, got)
		}
		replayed = p.Replayed
	}
	// What was folded from the beginning has left snapshots for the next.
	tardy := add("a-1", len(facts))
	for n := range 10 {
		ingest(t, s, add("a-1", len(facts)+1+n))
	}
	settle(t, s, w)
	ingest(t, s, tardy)
	settle(t, s, w)
	if got := w.Progress().Replayed - replayed; got > 210 {
		t.Errorf("after a rewind from the beginning, the next replays %d events", got)
	}
	got, err := counts.Get(testkit.Context(t), s, "a-1")
	wanted := trail{}
	for i := range len(facts) + 11 {
		wanted = wanted.Evolve(added{N: i})
	}
	if err != nil || got != wanted {
		t.Errorf("the row is %+v, want %+v: %v", got, wanted, err)
	}
}

// trail is a fold in which order shows, in few bytes.
type trail struct {
	Count int
	Hash  uint64
}

func (l trail) Evolve(event any) trail {
	e, ok := event.(added)
	if !ok {
		return l
	}
	return trail{l.Count + 1, l.Hash*1_000_003 + uint64(e.N)}
}

// gate is a fold that waits at one number.
type gate struct{ Seen []int }

var gates = struct {
	reached, open chan struct{}
	shut          atomic.Bool
}{reached: make(chan struct{}), open: make(chan struct{})}

func (g gate) Evolve(event any) gate {
	e := event.(added)
	if e.Text == "gate" && gates.shut.CompareAndSwap(true, false) {
		gates.reached <- struct{}{}
		<-gates.open
	}
	return gate{append(slices.Clone(g.Seen), e.N)}
}

// TestP8_ALongRewindHoldsNobodyUp, and what comes meanwhile is applied once.
func TestP8_ALongRewindHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	s := store(t)
	ctx := testkit.Context(t)
	view := projection.View[gate]{Name: "gates"}
	w, _ := startWith(t, s, view, func(w *projection.Worker) { w.SetLongest(20) })
	first := fact("a-1", "test.added", added{N: 1, Text: "gate"})
	tardy := add("a-1", 2)
	ingest(t, s, first)
	facts := []weir.Message{first, tardy}
	for n := 3; n < 80; n++ {
		facts = append(facts, add("a-1", n))
	}
	ingest(t, s, facts[2:]...)
	settle(t, s, w)

	gates.shut.Store(true)
	ingest(t, s, tardy)
	<-gates.reached
	for n := 80; n < 200; n++ {
		facts = append(facts, add("a-1", n))
		ingest(t, s, facts[len(facts)-1], add("b-1", n))
	}
	// The other stream is applied, and nobody believes that this one is.
	for done := false; !done; {
		b, err := view.Get(ctx, s, "b-1")
		if err != nil && !errors.Is(err, weir.ErrNotFound) {
			t.Fatal(err)
		}
		done = len(b.Seen) == 120
	}
	_, head, err := s.ReadHorizon(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if at := w.Progress().At; at >= head {
		t.Errorf("the worker says that it is at %d of %d", at, head)
	}
	close(gates.open)
	settle(t, s, w)
	got, err := view.Row(ctx, s, "a-1")
	if err != nil || !slices.Equal(got.State.Seen, seenBy(facts)) || got.Version != 199 {
		t.Errorf("the row is at version %d and has seen %v: %v", got.Version, got.State.Seen, err)
	}
	var left int
	if err := s.Pool().QueryRow(ctx, s.Qualify("select count(*) from weir.rewinding")).Scan(&left); err != nil || left != 0 {
		t.Errorf("%d streams are still beside the others: %v", left, err)
	}
}

// TestAfterIsCalledOnce for each event, whatever is rewound or rebuilt.
func TestAfterIsCalledOnce(t *testing.T) {
	t.Parallel()
	s := store(t)
	ctx := testkit.Context(t)
	execute(t, s, "create table weir.calls (key text, id uuid, version bigint)")
	view := hooked(lists)
	w, _ := startWith(t, s, view, func(w *projection.Worker) { w.SetLongest(30) })
	random := rand.New(rand.NewPCG(1, 1))
	var facts []weir.Message
	for n := range 400 {
		facts = append(facts, add(weir.StreamID(fmt.Sprintf("a-%d", n%3)), n))
	}
	for part := range slices.Chunk(late(random, facts, 100, 5), 20) {
		ingest(t, s, part...)
		if random.IntN(2) == 0 {
			settle(t, s, w)
		}
		if random.IntN(5) == 0 {
			if _, err := view.Rebuild(ctx, s, projection.Rebuild{}); err != nil {
				t.Fatal(err)
			}
			if err := view.RebuildKey(ctx, s, "a-1"); err != nil {
				t.Fatal(err)
			}
		}
	}
	settle(t, s, w)
	checkCalls(t, s, len(facts))
	if found := verified(t, s, view); found.Wrong != 0 || w.Progress().Rewinds == 0 {
		t.Errorf("verify found %+v, the worker %+v", found, w.Progress())
	}
}

// hooked notes each call of its hook.
func hooked(v projection.View[list]) projection.View[list] {
	v.After = func(ctx context.Context, tx pgx.Tx, e weir.Event, r projection.Row[list]) error {
		if !e.IsNew || len(r.State.Seen) == 0 {
			return fmt.Errorf("called for %+v with %+v", e, r)
		}
		_, err := tx.Exec(ctx, `insert into "weir".calls values ($1, $2, $3)`, r.Key, [16]byte(e.ID), int64(e.Version))
		return err
	}
	return v
}

func checkCalls(t *testing.T, s *eventstore.Store, want int) {
	t.Helper()
	var calls, distinct, events int
	row := s.Pool().QueryRow(testkit.Context(t), s.Qualify("select count(*), count(distinct id), (select count(*) from weir.events) from weir.calls"))
	if err := row.Scan(&calls, &distinct, &events); err != nil {
		t.Fatal(err)
	}
	if calls != want || distinct != want || events != want {
		t.Errorf("%d calls for %d of %d events", calls, distinct, events)
	}
}

// mortal is a store whose process can be ended at any statement.
func mortal(t *testing.T, url string) (*eventstore.Store, *testkit.Guillotine) {
	t.Helper()
	pool, g := testkit.Mortal(t, url)
	registry, err := weir.NewRegistry(types)
	if err != nil {
		t.Fatal(err)
	}
	return testkit.Store(t, eventstore.Config{URL: url, Pool: pool, Types: registry, Logger: slog.New(slog.DiscardHandler)}), g
}

// TestP4_RewindsSurviveADeathAtEveryStatement, and each event is applied, and its
// hook called, once.
func TestP4_RewindsSurviveADeathAtEveryStatement(t *testing.T) {
	t.Parallel()
	url := testkit.Database(t)
	registry, err := weir.NewRegistry(types)
	if err != nil {
		t.Fatal(err)
	}
	s := testkit.Store(t, eventstore.Config{URL: url, Types: registry})
	execute(t, s, "create table weir.calls (key text, id uuid, version bigint)")
	view, events := hooked(lists), 0
	deaths := 0
	for n := int64(1); ; n++ {
		stream := weir.StreamID(fmt.Sprintf("a-%d", n))
		facts := make([]weir.Message, 60)
		for i := range facts {
			facts[i] = add(stream, i)
		}
		events += len(facts)
		ingest(t, s, append(slices.Clone(facts[:10]), facts[12:]...)...)
		died := lifeUntil(t, s, url, view, n, func() { ingest(t, s, facts[10], facts[11]) })
		w, stop := startWith(t, s, view, func(w *projection.Worker) { w.SetLongest(20) })
		settle(t, s, w)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if got := row(t, s, view, string(stream)); !slices.Equal(got.State.Seen, seenBy(facts)) {
			t.Fatalf("after a death at statement %d the row has seen %v", n, got.State.Seen)
		}
		checkCalls(t, s, events)
		if !died {
			break
		}
		deaths++
	}
	if deaths < 10 {
		t.Errorf("%d deaths only", deaths)
	}
	if found := verified(t, s, view); found.Wrong != 0 {
		t.Errorf("verify found %+v", found)
	}
}

// lifeUntil runs a worker that dies at statement n after act, or settles before.
func lifeUntil(t *testing.T, s *eventstore.Store, url string, v projection.View[list], n int64, act func()) (died bool) {
	t.Helper()
	m, g := mortal(t, url)
	w, _ := claimed(t, m, v)
	w.SetLongest(20)
	return dieAt(t, s, w, g, n, act)
}

// dieAt runs a worker on a mortal store, as lifeUntil says; s sees what it does.
func dieAt(t *testing.T, s *eventstore.Store, w *projection.Worker, g *testkit.Guillotine, n int64, act func()) (died bool) {
	t.Helper()
	ctx, cancel := context.WithCancel(testkit.Context(t))
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	settle(t, s, w)
	g.At(n)
	act()
	_, head, err := s.ReadHorizon(ctx)
	if err != nil {
		t.Fatal(err)
	}
	settled := make(chan struct{})
	go func() {
		defer close(settled)
		w.Wait(ctx, head)
	}()
	select {
	case <-settled:
		g.At(-1)
	case <-g.Fell:
		died = true
	}
	cancel()
	<-done
	<-settled
	execute(t, s, "update weir.leases set owner = null")
	return died
}

func TestRetainedSnapshotsAreNearAnyLateEvent(t *testing.T) {
	t.Parallel()
	var at []weir.Version
	for head := weir.Version(100); head <= 100_000; head += 100 {
		at = append(at, head)
		var kept []weir.Version
		for _, i := range projection.Retain(at, head) {
			kept = append(kept, at[i])
		}
		at = kept
	}
	if len(at) != 8 || at[7] != 100_000 {
		t.Fatalf("kept %v", at)
	}
	for late := weir.Version(1); late < 100_000; late++ {
		from := weir.Version(0)
		for _, v := range at {
			if v < late {
				from = v
			}
		}
		if needed, replayed := 100_000-late+1, 100_000-from; replayed > 6*needed+200 {
			t.Fatalf("an event late by %d replays %d, from %v", needed, replayed, at)
		}
	}
}

// TestP4_EventsThatArriveDuringARewind are applied once, and the row is at the head
// of its stream when the rewind commits.
func TestP4_EventsThatArriveDuringARewind(t *testing.T) {
	t.Parallel()
	s := store(t)
	ctx := testkit.Context(t)
	view := projection.View[trail]{Name: "trails"}
	w, _ := startWith(t, s, view, func(w *projection.Worker) { w.SetLongest(100) })
	var facts []weir.Message
	more := func(n int) []weir.Message {
		for range n {
			facts = append(facts, add("a-1", len(facts)))
		}
		return facts[len(facts)-n:]
	}
	first := more(5000)
	ingest(t, s, first[3:]...)
	settle(t, s, w)
	execute(t, s, "delete from weir.snap_trails") // so that each begins at the beginning
	done := make(chan error, 1)
	arriving, stop := context.WithCancel(ctx)
	go func() {
		for arriving.Err() == nil { // as fast as it goes, which is more than 1,000 a second
			if _, err := s.Ingest(ctx, false, more(20)...); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	for _, tardy := range first[:3] {
		rewinds := w.Progress().Rewinds
		ingest(t, s, tardy)
		testkit.Await(t, time.Minute, "the rewind lands", func() bool { return w.Progress().Rewinds > rewinds })
	}
	stop()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	settle(t, s, w)
	wanted := trail{}
	for i := range facts {
		wanted = wanted.Evolve(added{N: i})
	}
	got, err := view.Row(ctx, s, "a-1")
	if err != nil || got.State != wanted || got.Version != weir.Version(len(facts)) {
		t.Errorf("of %d events the row is %+v, want %+v: %v", len(facts), got, wanted, err)
	}
}

// TestTwoViewsOfOneStream are each right, and a rebuild of one leaves the other alone.
func TestTwoViewsOfOneStream(t *testing.T) {
	t.Parallel()
	s := store(t)
	ctx := testkit.Context(t)
	counts := projection.View[trail]{Name: "trails", Types: []string{"test.added"}}
	facts := shuffled(5, 40)
	facts = append(facts, fact("a-1", "test.dropped", dropped{}))
	for range 2 {
		for part := range slices.Chunk(facts, 30) {
			ingest(t, s, part...)
		}
		for _, p := range []projection.Projection{lists, counts} {
			w, stop := start(t, s, p)
			settle(t, s, w)
			if err := stop(); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := counts.Rebuild(ctx, s, projection.Rebuild{}); err != nil {
			t.Fatal(err)
		}
		facts = []weir.Message{add("a-1", 7)}
	}
	want(t, s, "a-1", 7)
	if got, err := counts.Get(ctx, s, "a-1"); err != nil || got.Count != 41 {
		t.Errorf("the other view has %+v: %v", got, err)
	}
	if found := verified(t, s, lists); found.Wrong != 0 {
		t.Errorf("verify found %+v", found)
	}
}

// TestSnapshotsOfAStreamWhoseFirstEventSortsLast: everything before it is late, and
// every snapshot lacks it.
func TestSnapshotsOfAStreamWhoseFirstEventSortsLast(t *testing.T) {
	t.Parallel()
	s := store(t)
	w, _ := start(t, s, lists)
	facts := make([]weir.Message, 200)
	for i := range facts {
		facts[i] = add("a-1", i)
	}
	ingest(t, s, facts[199])
	for part := range slices.Chunk(facts[:199], 7) {
		ingest(t, s, part...)
		settle(t, s, w)
	}
	want(t, s, "a-1", seenBy(facts)...)
	if p := w.Progress(); p.SnapshotsFailed > 0 || p.FromSnapshot == 0 {
		t.Errorf("it counted %+v", p)
	}
	checkSnapshots(t, s, "lists")
}
