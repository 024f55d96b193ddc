package projection_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/eventstore"
	"github.com/weir-es/weir/internal/testkit"
	"github.com/weir-es/weir/projection"
)

type added struct {
	N    int
	Text string `json:",omitempty"`
}

type dropped struct{}

type failing struct{ Left *int }

var types = weir.Types{
	"test.added":   weir.EventOf[added](),
	"test.dropped": weir.EventOf[dropped](),
	"test.failing": weir.EventOf[failing](),
}

// list is a fold in which order and multiplicity show.
type list struct {
	Seen []int
	Gone bool `json:",omitempty"`
}

func (l list) Evolve(event any) list {
	switch e := event.(type) {
	case added:
		return list{Seen: append(slices.Clone(l.Seen), e.N)}
	case dropped:
		return list{Gone: true}
	case failing:
		panic("cannot fold this")
	}
	return l
}

func (l list) Deleted() bool { return l.Gone }

var lists = projection.View[list]{Name: "lists", Types: []string{"test.added", "test.dropped", "test.failing"}}

func store(t *testing.T) *eventstore.Store {
	registry, err := weir.NewRegistry(types)
	if err != nil {
		t.Fatal(err)
	}
	return testkit.Store(t, eventstore.Config{Types: registry})
}

// worker makes a worker for a projection with all its leases, which are given back
// when the test ends.
func worker(t *testing.T, s *eventstore.Store, p projection.Projection) *projection.Worker {
	t.Helper()
	w, _ := claimed(t, s, p)
	return w
}

func claimed(t *testing.T, s *eventstore.Store, p projection.Projection) (*projection.Worker, *eventstore.Instance) {
	t.Helper()
	ctx := testkit.Context(t)
	if err := p.Prepare(ctx, s); err != nil {
		t.Fatal(err)
	}
	instance := s.Join("test")
	t.Cleanup(func() { instance.Disconnect(context.Background()) })
	if _, err := instance.Heartbeat(ctx); err != nil {
		t.Fatal(err)
	}
	scope, shards := "shards of "+p.ProjectionName(), make([]weir.Shard, s.Shards())
	for i := range shards {
		shards[i] = weir.Shard(i)
	}
	if p.FollowsWholeLog() {
		scope, shards = "view:"+p.ProjectionName(), []weir.Shard{eventstore.WholeLog}
	}
	leases, err := instance.Claim(ctx, scope, shards)
	if err != nil || len(leases) != len(shards) {
		t.Fatalf("claimed %d of %d leases: %v", len(leases), len(shards), err)
	}
	return &projection.Worker{Store: s, Projection: p, Fence: instance.Guard(scope, leases)}, instance
}

// start runs a projection with all its leases, and returns the worker, and a stop
// that waits for its end.
func start(t *testing.T, s *eventstore.Store, p projection.Projection) (*projection.Worker, func() error) {
	t.Helper()
	return startWith(t, s, p, func(*projection.Worker) {})
}

func startWith(t *testing.T, s *eventstore.Store, p projection.Projection, set func(*projection.Worker)) (*projection.Worker, func() error) {
	t.Helper()
	w, instance := claimed(t, s, p)
	set(w)
	ctx := testkit.Context(t)
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	stopped := false
	stop := func() error {
		if stopped {
			return nil
		}
		stopped = true
		cancel()
		err := <-done
		if leaveErr := instance.Leave(context.Background()); leaveErr != nil {
			t.Error(leaveErr)
		}
		return err
	}
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
	return w, stop
}

// settle waits until the worker has applied everything that is stored now.
func settle(t *testing.T, s *eventstore.Store, w *projection.Worker) {
	t.Helper()
	ctx := testkit.Context(t)
	_, head, err := s.ReadHorizon(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Wait(ctx, head); err != nil {
		t.Fatalf("waited for position %d: %v, worker is at %+v", head, err, w.Progress())
	}
}

func fact(stream weir.StreamID, typ string, value any) weir.Message {
	data, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return weir.Message{ID: weir.NewID(), Stream: stream, Type: typ, Data: data}
}

func add(stream weir.StreamID, n int) weir.Message { return fact(stream, "test.added", added{N: n}) }

func ingest(t *testing.T, s *eventstore.Store, facts ...weir.Message) {
	t.Helper()
	if _, err := s.Ingest(testkit.Context(t), false, facts...); err != nil {
		t.Fatal(err)
	}
}

func row(t *testing.T, s *eventstore.Store, v projection.View[list], key string) projection.Row[list] {
	t.Helper()
	r, err := v.Row(testkit.Context(t), s, key)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func want(t *testing.T, s *eventstore.Store, key string, seen ...int) {
	t.Helper()
	if got := row(t, s, lists, key); !slices.Equal(got.State.Seen, seen) {
		t.Errorf("row %s has seen %v, want %v", key, got.State.Seen, seen)
	}
}

func TestViewFoldsEachStreamIntoARow(t *testing.T) {
	t.Parallel()
	s := store(t)
	w, _ := start(t, s, lists)
	ingest(t, s, add("a-1", 1), add("b-1", 10), add("a-1", 2), fact("a-1", "test.unknown", 0), fact("c-1", "test.unknown", 0))
	settle(t, s, w)
	want(t, s, "a-1", 1, 2)
	want(t, s, "b-1", 10)
	if _, err := lists.Get(testkit.Context(t), s, "c-1"); !errors.Is(err, weir.ErrNotFound) {
		t.Errorf("an event of a foreign type made a row: %v", err)
	}
	ingest(t, s, add("a-1", 3))
	settle(t, s, w)
	want(t, s, "a-1", 1, 2, 3)
	var keys []string
	for r, err := range lists.All(testkit.Context(t), s) {
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, r.Key)
	}
	if !slices.Equal(keys, []string{"a-1", "b-1"}) {
		t.Errorf("All gives %v", keys)
	}
}

// TestP5_LateEventComesOutAsIfOnTime at the front, in the middle, across batches.
func TestP5_LateEventComesOutAsIfOnTime(t *testing.T) {
	t.Parallel()
	s := store(t)
	w, _ := start(t, s, lists)
	var facts []weir.Message
	for n := range 10 {
		facts = append(facts, add("a-1", n))
	}
	for _, n := range []int{5, 7, 9, 0, 8, 1, 6, 4, 2, 3} {
		ingest(t, s, facts[n])
		settle(t, s, w)
	}
	want(t, s, "a-1", 0, 1, 2, 3, 4, 5, 6, 7, 8, 9)
	got := row(t, s, lists, "a-1")
	if got.Version != 10 || got.EventID != facts[9].ID {
		t.Errorf("row ends at version %d, id %s; want 10, %s", got.Version, got.EventID, facts[9].ID)
	}
	if c := w.Progress().Counts; c.Inversions != 7 || c.Rewinds != 7 {
		t.Errorf("%d inversions, %d rewinds; want 7 of each", c.Inversions, c.Rewinds)
	}
}

// TestP4_AppliedOnce whatever is replayed: a worker that starts over from an old
// checkpoint, with and without late events, changes nothing twice.
func TestP4_AppliedOnce(t *testing.T) {
	t.Parallel()
	s := store(t)
	ctx := testkit.Context(t)
	w, stop := start(t, s, lists)
	var facts []weir.Message
	for n := range 50 {
		facts = append(facts, add(weir.Stream("a", fmt.Sprint(n%3)), n))
	}
	shuffled := slices.Clone(facts)
	rand.New(rand.NewPCG(1, 2)).Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
	for part := range slices.Chunk(shuffled, 7) {
		ingest(t, s, part...)
		settle(t, s, w)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Pool().Exec(ctx, "delete from weir.checkpoints"); err != nil {
		t.Fatal(err)
	}
	ingest(t, s, add("a-0", 100))
	w, _ = start(t, s, lists)
	settle(t, s, w)
	for k := range 3 {
		var seen []int
		for n := k; n < 50; n += 3 {
			seen = append(seen, n)
		}
		if k == 0 {
			seen = append(seen, 100)
		}
		want(t, s, fmt.Sprintf("a-%d", k), seen...)
	}
}

// TestP4_CheckpointGuardsAHandler: its rows, checkpoint and fence are one
// transaction, so each event is handled once across restarts.
func TestP4_CheckpointGuardsAHandler(t *testing.T) {
	t.Parallel()
	s := store(t)
	handler := projection.Handler{
		Name: "audit",
		Setup: func(ctx context.Context, s *eventstore.Store) error {
			_, err := s.Pool().Exec(ctx, s.Qualify("create table if not exists weir.audit (id uuid, n int)"))
			return err
		},
		Handle: func(ctx context.Context, tx pgx.Tx, event weir.Event, value any) error {
			_, err := tx.Exec(ctx, s.Qualify("insert into weir.audit values ($1, $2)"), [16]byte(event.ID), value.(added).N)
			return err
		},
	}
	for round := range 4 {
		w, stop := start(t, s, handler)
		for n := range 20 {
			ingest(t, s, add(weir.Stream("a", fmt.Sprint(n)), round*20+n))
		}
		settle(t, s, w)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
	}
	var rows, distinct int
	err := s.Pool().QueryRow(testkit.Context(t), s.Qualify("select count(*), count(distinct id) from weir.audit")).Scan(&rows, &distinct)
	if err != nil || rows != 80 || distinct != 80 {
		t.Errorf("%d rows of %d events, want 80 of 80; %v", rows, distinct, err)
	}
}

func TestViewByAnyKey(t *testing.T) {
	t.Parallel()
	s := store(t)
	parity := projection.View[list]{Name: "parity", Types: []string{"test.added"},
		Key: projection.By(func(_ weir.Event, value any) string {
			switch n := value.(added).N; {
			case n < 0:
				return ""
			case n%2 == 0:
				return "even"
			}
			return "odd"
		})}
	w, stop := start(t, s, parity)
	for n := -2; n < 6; n++ {
		ingest(t, s, add(weir.Stream("a", fmt.Sprint(n)), n))
	}
	settle(t, s, w)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Pool().Exec(testkit.Context(t), "delete from weir.checkpoints"); err != nil {
		t.Fatal(err)
	}
	ingest(t, s, add("a-7", 7))
	w, _ = start(t, s, parity)
	settle(t, s, w)
	for key, seen := range map[string][]int{"even": {0, 2, 4}, "odd": {1, 3, 5, 7}} {
		got := row(t, s, parity, key)
		if !slices.Equal(got.State.Seen, seen) || got.Version != weir.Version(len(seen)) {
			t.Errorf("%s has seen %v at version %d, want %v", key, got.State.Seen, got.Version, seen)
		}
	}
}

// TestDeletedRowKeepsItsLedger: a tombstone is not seen, and what was folded
// before it is not folded again.
func TestDeletedRowKeepsItsLedger(t *testing.T) {
	t.Parallel()
	s := store(t)
	w, _ := start(t, s, lists)
	late := add("a-1", 2)
	ingest(t, s, add("a-1", 1), add("a-1", 3), fact("a-1", "test.dropped", dropped{}))
	settle(t, s, w)
	if _, err := lists.Get(testkit.Context(t), s, "a-1"); !errors.Is(err, weir.ErrNotFound) {
		t.Errorf("a deleted row is seen: %v", err)
	}
	ingest(t, s, late) // before the deletion, in time
	settle(t, s, w)
	if _, err := lists.Get(testkit.Context(t), s, "a-1"); !errors.Is(err, weir.ErrNotFound) {
		t.Errorf("a late event brought a deleted row back: %v", err)
	}
	ingest(t, s, add("a-1", 4))
	settle(t, s, w)
	want(t, s, "a-1", 4)
}

// TestHolesAreFilledFromTheStore: when events of a stream did not come by the
// feed, they are read before anything is written.
func TestHolesAreFilledFromTheStore(t *testing.T) {
	t.Parallel()
	s := store(t)
	w, stop := start(t, s, lists)
	ingest(t, s, add("a-1", 1))
	settle(t, s, w)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	ingest(t, s, add("a-1", 2), add("a-1", 3))
	// The checkpoint moves past them, as after a parked stream was released.
	if _, err := s.Pool().Exec(testkit.Context(t), "update weir.checkpoints set position = 3"); err != nil {
		t.Fatal(err)
	}
	w, _ = start(t, s, lists)
	ingest(t, s, add("a-1", 4))
	settle(t, s, w)
	want(t, s, "a-1", 1, 2, 3, 4)
}

// TestP8_FailingEventParksItsStreamOnly with the reason, and the others go on.
// (dbos-transact-py#805: one that was stuck blocked a queue)
func TestP8_FailingEventParksItsStreamOnly(t *testing.T) {
	t.Parallel()
	s := store(t)
	w, _ := start(t, s, lists)
	ingest(t, s, add("a-1", 1), add("b-1", 1), fact("a-1", "test.failing", failing{}), fact("c-1", "test.added", "not an object"),
		add("b-1", 2), add("a-1", 2), add("d-1", 1))
	settle(t, s, w)
	want(t, s, "a-1", 1)
	want(t, s, "b-1", 1, 2)
	want(t, s, "d-1", 1)
	parked, err := s.Parked(testkit.Context(t), "lists")
	if err != nil || len(parked) != 2 || parked[0].Stream != "a-1" || parked[0].Version != 2 || parked[1].Stream != "c-1" || parked[1].Version != 1 {
		t.Errorf("parked: %+v, %v", parked, err)
	}
	if got := w.Progress().Parked; got != 2 {
		t.Errorf("%d parked streams counted", got)
	}
}

// TestP8_StateThatTheDatabaseRefuses is one event's failure too: jsonb holds no
// NUL.
// (coder#22637, lily#741)
func TestP8_StateThatTheDatabaseRefuses(t *testing.T) {
	t.Parallel()
	s := store(t)
	w, _ := start(t, s, texts)
	ingest(t, s, fact("a-1", "test.added", added{Text: "fine"}), fact("b-1", "test.added", added{Text: "nul \x00"}), fact("c-1", "test.added", added{Text: "good"}))
	settle(t, s, w)
	ctx := testkit.Context(t)
	for _, key := range []string{"a-1", "c-1"} {
		if _, err := texts.Get(ctx, s, key); err != nil {
			t.Error(err)
		}
	}
	if parked, err := s.Parked(ctx, "texts"); err != nil || len(parked) != 1 || parked[0].Stream != "b-1" {
		t.Errorf("parked: %+v, %v", parked, err)
	}
}

type text struct{ Text string }

func (t text) Evolve(event any) text {
	if e, ok := event.(added); ok {
		return text{e.Text}
	}
	return t
}

var texts = projection.View[text]{Name: "texts", Types: []string{"test.added"}}

// TestP7_FencedWorkerWritesNothing after somebody else took the lease.
func TestP7_FencedWorkerWritesNothing(t *testing.T) {
	t.Parallel()
	s := store(t)
	w, stop := start(t, s, lists)
	ingest(t, s, add("a-1", 1))
	settle(t, s, w)
	if _, err := s.Pool().Exec(testkit.Context(t), "update weir.leases set epoch = epoch + 1"); err != nil {
		t.Fatal(err)
	}
	ingest(t, s, add("a-1", 2))
	testkit.Await(t, 5*time.Second, "the worker notices", func() bool { return w.Progress().Err != nil })
	if err := stop(); !errors.Is(err, weir.ErrLeaseLost) {
		t.Errorf("the fenced worker ended with %v", err)
	}
	want(t, s, "a-1", 1)
}

// TestQuietShardsAreCheckpointed so that a restart does not read the log from the
// start for them. (Eventuous#559: a filtered subscription never checkpoints.)
func TestQuietShardsAreCheckpointed(t *testing.T) {
	t.Parallel()
	s := store(t)
	w, stop := start(t, s, lists)
	ingest(t, s, fact("a-1", "test.unknown", 0), fact("a-2", "test.unknown", 0))
	settle(t, s, w)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	at, err := s.Checkpoints(testkit.Context(t), "lists")
	if err != nil || len(at) != s.Shards() {
		t.Fatalf("%d shards have a checkpoint, %v", len(at), err)
	}
	for shard, position := range at {
		if position != 2 {
			t.Errorf("shard %d is at %d", shard, position)
		}
	}
}

func TestNamesThatCannotBeTablesAreRefused(t *testing.T) {
	t.Parallel()
	s := store(t)
	for _, name := range []string{"", "Upper", "1st", "with space", `quote"`, string(make([]byte, 60))} {
		v := projection.View[list]{Name: name}
		if err := v.Prepare(testkit.Context(t), s); err == nil {
			t.Errorf("name %q was accepted", name)
		}
	}
}

// TestHandlerEndsWithItsTransaction: what a failing handler wrote is gone.
func TestHandlerEndsWithItsTransaction(t *testing.T) {
	t.Parallel()
	s := store(t)
	ctx := testkit.Context(t)
	if _, err := s.Pool().Exec(ctx, "create table once (n int)"); err != nil {
		t.Fatal(err)
	}
	failures := 0
	w, _ := start(t, s, projection.Handler{Name: "once", Handle: func(ctx context.Context, tx pgx.Tx, _ weir.Event, value any) error {
		if _, err := tx.Exec(ctx, "insert into once values ($1)", value.(added).N); err != nil {
			return err
		}
		if failures < 3 {
			failures++
			return errors.New("not yet")
		}
		return nil
	}})
	began := time.Now()
	ingest(t, s, add("a-1", 1))
	settle(t, s, w)
	var n int
	if err := s.Pool().QueryRow(ctx, "select count(*) from once").Scan(&n); err != nil || n != 1 {
		t.Errorf("%d rows after 3 failures and a success in %s; %v", n, time.Since(began), err)
	}
}

// TestUnknownTypesByPolicy: skip, park or fail.
func TestUnknownTypesByPolicy(t *testing.T) {
	t.Parallel()
	facts := []weir.Message{add("a-1", 1), fact("a-1", "test.unknown", 0), add("a-1", 2), add("b-1", 3)}
	for name, c := range map[string]struct {
		policy projection.Unknown
		seen   []int // of a-1
		parked int
	}{
		"skip": {projection.Skip, []int{1, 2}, 0},
		"park": {projection.Park, []int{1}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := store(t)
			v := projection.View[list]{Name: "lists", Unknown: c.policy}
			w, _ := start(t, s, v)
			ingest(t, s, facts...)
			settle(t, s, w)
			want(t, s, "a-1", c.seen...)
			want(t, s, "b-1", 3)
			if parked, err := s.Parked(testkit.Context(t), "lists"); err != nil || len(parked) != c.parked {
				t.Errorf("parked: %v, %v", parked, err)
			}
		})
	}
	t.Run("fail", func(t *testing.T) {
		t.Parallel()
		s := store(t)
		ingest(t, s, facts...)
		w := worker(t, s, projection.View[list]{Name: "lists", Unknown: projection.Fail})
		if err := w.Run(testkit.Context(t)); !errors.Is(err, weir.ErrUnknownType) {
			t.Errorf("the worker ended with %v", err)
		}
	})
}

// TestUpcastsReachFolds: one stored event that says several things now, or none.
func TestUpcastsReachFolds(t *testing.T) {
	t.Parallel()
	type pair struct{ First, Second int }
	registry, err := weir.NewRegistry(weir.Types{
		"test.added": weir.EventOf[added](),
		"test.pair":  weir.UpcastMany(func(p pair) []any { return []any{added{N: p.First}, added{N: p.Second}} }),
		"test.noise": weir.Dropped(),
	})
	if err != nil {
		t.Fatal(err)
	}
	s := testkit.Store(t, eventstore.Config{Types: registry})
	byParity := projection.View[list]{Name: "parity", Key: projection.By(func(_ weir.Event, value any) string {
		return fmt.Sprint(value.(added).N % 2)
	})}
	byStream := projection.View[list]{Name: "lists"}
	w, _ := start(t, s, byStream)
	p, _ := start(t, s, byParity)
	ingest(t, s, fact("a-1", "test.noise", 0), fact("a-1", "test.pair", pair{1, 2}), add("a-1", 4), fact("b-1", "test.noise", 0))
	settle(t, s, w)
	settle(t, s, p)
	want(t, s, "a-1", 1, 2, 4)
	if _, err := byStream.Get(testkit.Context(t), s, "b-1"); !errors.Is(err, weir.ErrNotFound) {
		t.Errorf("a dropped event made a row: %v", err)
	}
	for key, seen := range map[string][]int{"1": {1}, "0": {2, 4}} {
		if got := row(t, s, byParity, key); !slices.Equal(got.State.Seen, seen) {
			t.Errorf("parity %s has seen %v, want %v", key, got.State.Seen, seen)
		}
	}
}
