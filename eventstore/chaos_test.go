package eventstore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/devserver"
	"github.com/weir-es/weir/eventstore"
	"github.com/weir-es/weir/internal/testkit"
)

// appenders append to streams of their own and to one that they share, each
// message with an id of its own, until ctx ends. They return the ids that were
// acknowledged, and those whose outcome they do not know.
func appenders(t *testing.T, ctx context.Context, n int, stores ...*eventstore.Store) (known, unknown map[weir.ID]bool) {
	var mu sync.Mutex
	known, unknown = map[weir.ID]bool{}, map[weir.ID]bool{}
	var wg sync.WaitGroup
	for w := range n {
		wg.Go(func() {
			s := stores[w%len(stores)]
			for i := 0; ctx.Err() == nil; i++ {
				own := weir.Stream("own", fmt.Sprint(w))
				mine, shared := message(own, i), message("shared-1", i)
				_, err := s.AppendAll(testkit.Context(t),
					eventstore.Append{Stream: own, Expected: weir.ExpectedVersion(i), Messages: []weir.Message{mine}},
					eventstore.Append{Stream: "shared-1", Expected: weir.AnyVersion, Messages: []weir.Message{shared}})
				mu.Lock()
				for _, id := range []weir.ID{mine.ID, shared.ID} {
					if err == nil {
						known[id] = true
					} else {
						unknown[id] = true
					}
				}
				mu.Unlock()
				if err != nil {
					t.Errorf("append %d of writer %d: %v", i, w, err)
					return
				}
			}
		})
	}
	wg.Wait()
	return known, unknown
}

// audit checks that what was acknowledged is stored once, in whole streams.
func audit(t *testing.T, s *eventstore.Store, known, unknown map[weir.ID]bool) {
	t.Helper()
	events := logged(t, s)
	seen := map[weir.ID]bool{}
	versions := map[weir.StreamID]weir.Version{}
	for _, e := range events {
		if seen[e.ID] || e.Version != versions[e.Stream]+1 || !known[e.ID] && !unknown[e.ID] {
			t.Errorf("event %s, version %d of %s: seen before: %v, version before: %d", e.ID, e.Version, e.Stream, seen[e.ID], versions[e.Stream])
		}
		seen[e.ID] = true
		versions[e.Stream] = e.Version
	}
	lost := 0
	for id := range known {
		if !seen[id] {
			lost++
		}
	}
	if lost > 0 || len(known) < 40 {
		t.Errorf("%d of %d acknowledged events are lost", lost, len(known))
	}
}

// TestP1_DatabaseCrashes under eight appenders, twice: everything acknowledged is
// stored, nothing twice, and everybody goes on. (marten#3503)
func TestP1_DatabaseCrashes(t *testing.T) {
	t.Parallel()
	ctx := testkit.Context(t)
	server, err := devserver.StartPostgres(ctx, devserver.PostgresConfig{Durable: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	url, err := server.NewDatabase(ctx)
	if err != nil {
		t.Fatal(err)
	}
	s := testkit.Store(t, eventstore.Config{URL: url})
	writing, stop := context.WithCancel(ctx)
	go func() {
		defer stop()
		for range 2 {
			before := horizonNow(s)
			testkit.Within(time.Second, func() bool { return horizonNow(s) > before+50 })
			if err := server.Restart(ctx, "immediate"); err != nil {
				t.Error(err)
			}
		}
		before := horizonNow(s)
		testkit.Within(2*time.Second, func() bool { return horizonNow(s) > before+50 })
	}()
	known, unknown := appenders(t, writing, 8, s)
	audit(t, s, known, unknown)
}

// TestP1_AcknowledgedIsDurable also where the database does not wait for its disk
// by default: the broker forgets what is acknowledged to it.
func TestP1_AcknowledgedIsDurable(t *testing.T) {
	t.Parallel()
	ctx := testkit.Context(t)
	server, err := devserver.StartPostgres(ctx, devserver.PostgresConfig{
		Settings: map[string]string{"synchronous_commit": "off", "wal_writer_delay": "10s", "autovacuum": "off"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	url, err := server.NewDatabase(ctx)
	if err != nil {
		t.Fatal(err)
	}
	s := testkit.Store(t, eventstore.Config{URL: url})
	appendOne(t, s, "a-1")
	exec(t, s, "checkpoint")
	if _, err := s.Append(ctx, "a-1", weir.AnyVersion, messages("a-1", 5)...); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Ingest(ctx, false, messages("a-2", 5)...); err != nil {
		t.Fatal(err)
	}
	if err := s.KeepDeadLetter(ctx, eventstore.DeadLetter{Reason: "r"}); err != nil {
		t.Fatal(err)
	}
	if err := server.Restart(ctx, "immediate"); err != nil {
		t.Fatal(err)
	}
	again := testkit.Store(t, eventstore.Config{URL: url})
	if got := len(logged(t, again)); got != 11 {
		t.Errorf("%d of 11 acknowledged events survived a crash of the server", got)
	}
	if n := scalar[int](t, again, "select count(*) from weir.dead_letters"); n != 1 {
		t.Errorf("%d of 1 acknowledged dead letters survived", n)
	}
}

func horizonNow(s *eventstore.Store) weir.Position { return s.Horizon() }

// TestP1_BackendsAreTerminated under eight appenders, one after the other.
func TestP1_BackendsAreTerminated(t *testing.T) {
	t.Parallel()
	url := testkit.Database(t)
	s, other := testkit.Store(t, eventstore.Config{URL: url}), testkit.Store(t, eventstore.Config{URL: url})
	ctx, stop := context.WithTimeout(testkit.Context(t), 1500*time.Millisecond)
	defer stop()
	var killed atomic.Int32
	go func() {
		killer := testkit.Store(t, eventstore.Config{URL: url})
		for ctx.Err() == nil {
			tag, err := killer.Pool().Exec(ctx, `select pg_terminate_backend(pid) from (select pid from pg_stat_activity
				where datname = current_database() and pid <> pg_backend_pid() and query not like '%pg_terminate%' order by random() limit 1) p, pg_sleep(0.02)`)
			if err == nil {
				killed.Add(int32(tag.RowsAffected()))
			}
		}
	}()
	known, unknown := appenders(t, ctx, 8, s, other)
	audit(t, s, known, unknown)
	if killed.Load() < 10 {
		t.Errorf("%d backends terminated: the test tests nothing", killed.Load())
	}
}

// TestP3_AnswersAreLost after the commit: the append finds what it has stored.
func TestP3_AnswersAreLost(t *testing.T) {
	t.Parallel()
	wire := testkit.NewWire(t, testkit.Database(t))
	s := testkit.Store(t, eventstore.Config{Pool: wire.Pool})
	for n := range 10 {
		wire.Cut(1 + n%3)
		events, err := s.Append(testkit.Context(t), "a-1", weir.ExpectedVersion(n), message("a-1", n))
		if err != nil || len(events) != 1 || events[0].Version != weir.Version(n+1) {
			t.Fatalf("append %d: %v, %v", n, events, err)
		}
		wire.Cut(0)
	}
	if got := len(read(t, s, "a-1")); got != 10 || wire.Lost() < 10 {
		t.Errorf("%d events stored by 10 appends, %d answers were lost", got, wire.Lost())
	}
}

// TestNoDeadlocks between appends to overlapping sets of new and old streams, by
// two processes. (zitadel#3671, and the same design in another language)
func TestNoDeadlocks(t *testing.T) {
	t.Parallel()
	url := testkit.Database(t)
	stores := []*eventstore.Store{testkit.Store(t, eventstore.Config{URL: url}), testkit.Store(t, eventstore.Config{URL: url})}
	var wg sync.WaitGroup
	var appended atomic.Int64
	for w := range 8 {
		wg.Go(func() {
			dice := rand.New(rand.NewPCG(uint64(w), 3))
			for round := range 25 {
				var appends []eventstore.Append
				for _, n := range dice.Perm(10)[:5] {
					stream := weir.Stream("s", fmt.Sprint(n))
					if n < 3 { // new in each round
						stream = weir.Stream("s", fmt.Sprint(n, "_", round))
					}
					appends = append(appends, eventstore.Append{Stream: stream, Expected: weir.AnyVersion, Messages: messages(stream, 1+dice.IntN(2))})
				}
				if err := overlapping(t, stores[w%2], appends, w%3 == 0); err != nil {
					t.Error(err)
				}
				for _, a := range appends {
					appended.Add(int64(len(a.Messages)))
				}
			}
		})
	}
	wg.Wait()
	if got := int64(len(logged(t, stores[0]))); got != appended.Load() {
		t.Errorf("%d of %d events are stored", got, appended.Load())
	}
	exec(t, stores[0], "select pg_stat_force_next_flush()")
	if n := scalar[int](t, stores[0], "select deadlocks from pg_stat_database where datname = current_database()"); n > 0 {
		t.Errorf("%d deadlocks", n)
	}
}

// overlapping appends, in a transaction of the caller's or in the store's.
func overlapping(t *testing.T, s *eventstore.Store, appends []eventstore.Append, own bool) error {
	ctx := testkit.Context(t)
	if !own {
		_, err := s.AppendAll(ctx, appends...)
		return err
	}
	tx, err := s.Pool().Begin(ctx)
	if err != nil {
		return err
	}
	_, err = s.AppendTx(ctx, tx, appends...)
	return errors.Join(err, tx.Commit(ctx))
}
