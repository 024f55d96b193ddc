package projection_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/eventstore"
	"github.com/weir-es/weir/internal/testkit"
	"github.com/weir-es/weir/projection"
)

// run is a worker that holds a lease of one scope over all shards.
func run(t *testing.T, s *eventstore.Store, p projection.Projection, name string) (w *projection.Worker, done chan error) {
	t.Helper()
	ctx, cancel := context.WithCancel(testkit.Context(t))
	instance := s.Join(name)
	t.Cleanup(func() { instance.Disconnect(context.Background()) })
	if _, err := instance.Heartbeat(ctx); err != nil {
		t.Fatal(err)
	}
	var all []weir.Shard
	for shard := range s.Shards() {
		all = append(all, weir.Shard(shard))
	}
	leases, err := instance.Claim(ctx, "shards", all)
	if err != nil || len(leases) != len(all) {
		t.Fatalf("%s claimed %d of %d leases: %v", name, len(leases), len(all), err)
	}
	w = &projection.Worker{Store: s, Projection: p, Fence: instance.Guard("shards", leases)}
	done = make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	t.Cleanup(cancel)
	return w, done
}

// TestP7_TakeoverWaitsForTheTransaction of an owner that was paused inside it, and
// afterwards that owner can change nothing. (marten#4005)
func TestP7_TakeoverWaitsForTheTransaction(t *testing.T) {
	t.Parallel()
	s := store(t)
	ctx := testkit.Context(t)
	inside, goOn := make(chan bool, 10), make(chan bool)
	handler := journal("fenced", false)
	write := handler.Handle
	handler.Handle = func(ctx context.Context, tx pgx.Tx, event weir.Event, value any) error {
		if value.(added).N == 1 {
			inside <- true
			<-goOn
		}
		return write(ctx, tx, event, value)
	}
	if err := handler.Prepare(ctx, s); err != nil {
		t.Fatal(err)
	}
	_, oldDone := run(t, s, handler, "old")
	ingest(t, s, add("a-1", 1))
	<-inside
	if _, err := s.Pool().Exec(ctx, s.Qualify("update weir.instances set heartbeat_at = heartbeat_at - interval '1 minute'")); err != nil {
		t.Fatal(err)
	}
	taken := make(chan *projection.Worker)
	go func() {
		w, _ := run(t, s, handler, "new")
		taken <- w
	}()
	testkit.Await(t, 5*time.Second, "the takeover waits", func() bool {
		var n int
		err := s.Pool().QueryRow(ctx, "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'").Scan(&n)
		return err == nil && n == 1
	})
	close(goOn)
	w := <-taken
	ingest(t, s, add("a-1", 2), add("b-1", 3))
	settle(t, s, w)
	if err := <-oldDone; !errors.Is(err, weir.ErrLeaseLost) {
		t.Errorf("the old owner ended with %v", err)
	}
	if rows, events := noted(t, s, "fenced"); rows != 3 || events != 3 {
		t.Errorf("3 events were handled %d times, %d different ones", rows, events)
	}
}

// TestP7_TransactionsUnderAFenceEnd by themselves: an owner that hangs inside one
// would otherwise keep its lease for ever, since a takeover waits for it. The
// server ends them sooner than a lease becomes stale.
// (watermill-sql's AckDeadline)
func TestP7_TransactionsUnderAFenceEnd(t *testing.T) {
	t.Parallel()
	s := store(t)
	limits := make(chan [2]time.Duration, 10)
	w, _ := start(t, s, projection.Handler{Name: "bounded", Handle: func(ctx context.Context, tx pgx.Tx, _ weir.Event, _ any) error {
		var l [2]time.Duration
		err := tx.QueryRow(ctx, "select current_setting('idle_in_transaction_session_timeout')::interval, current_setting('statement_timeout')::interval").Scan(&l[0], &l[1])
		limits <- l
		return err
	}})
	ingest(t, s, add("a-1", 1))
	settle(t, s, w)
	l := <-limits
	if l[0] == 0 || l[0] >= eventstore.Stale || l[1] == 0 || l[1] >= eventstore.Stale {
		t.Errorf("a transaction may be idle for %s and a statement take %s (0 is for ever); a lease is stale after %s", l[0], l[1], eventstore.Stale)
	}
}

// TestP7_OldEpochWritesNothing, not even a checkpoint, for any shard.
// (river#1161, #1077: a fencing token on writes)
func TestP7_OldEpochWritesNothing(t *testing.T) {
	t.Parallel()
	s := store(t)
	ctx := testkit.Context(t)
	w, done := run(t, s, prepared(t, s, lists), "old")
	ingest(t, s, add("a-1", 1))
	settle(t, s, w)
	testkit.Await(t, 5*time.Second, "quiet shards are noted", func() bool {
		at, err := s.Checkpoints(ctx, "lists")
		return err == nil && len(at) == s.Shards()
	})
	before, err := s.Checkpoints(ctx, "lists")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Pool().Exec(ctx, s.Qualify("update weir.leases set epoch = epoch + 1")); err != nil {
		t.Fatal(err)
	}
	ingest(t, s, fact("b-1", "test.unknown", 0)) // touches no row, but moves checkpoints
	ingest(t, s, add("a-1", 2))
	if err := <-done; !errors.Is(err, weir.ErrLeaseLost) {
		t.Errorf("ended with %v", err)
	}
	after, err := s.Checkpoints(ctx, "lists")
	if err != nil {
		t.Fatal(err)
	}
	for shard, at := range before {
		if after[shard] != at {
			t.Errorf("shard %d was moved from %d to %d", shard, at, after[shard])
		}
	}
	want(t, s, "a-1", 1)
}

func prepared(t *testing.T, s *eventstore.Store, p projection.Projection) projection.Projection {
	t.Helper()
	if err := p.Prepare(testkit.Context(t), s); err != nil {
		t.Fatal(err)
	}
	return p
}
