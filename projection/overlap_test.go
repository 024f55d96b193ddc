package projection_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/eventstore"
	"github.com/weir-es/weir/internal/testkit"
	"github.com/weir-es/weir/projection"
)

// slowCommit has a commit that writes 1 wait for a lock, also when it is told to give up, so that a
// worker is over before its last transaction is.
const slowCommit = `
create table overlapped (n int);
create function linger() returns trigger language plpgsql as $body$
begin
    perform pg_advisory_xact_lock(4711);
    return null;
exception when query_canceled then
    perform pg_advisory_xact_lock(4711);
    return null;
end $body$;
create constraint trigger linger after insert on overlapped deferrable initially deferred
    for each row when (new.n = 1) execute function linger()`

// TestP4_AnHeirOfTheSameLeasesWaitsForTheLastCommit: a worker is replaced by another of
// the same process under the same epochs, as when a lease comes to those it works on,
// while the answer to its last commit is on its way.
func TestP4_AnHeirOfTheSameLeasesWaitsForTheLastCommit(t *testing.T) {
	t.Parallel()
	s := store(t)
	ctx := testkit.Context(t)
	h := projection.Handler{Name: "overlapped",
		Setup: func(ctx context.Context, s *eventstore.Store) error { return s.Create(ctx, slowCommit) },
		Handle: func(ctx context.Context, tx pgx.Tx, e weir.Event, value any) error {
			_, err := tx.Exec(ctx, `insert into overlapped values ($1)`, value.(added).N)
			return err
		}}
	first, _ := claimed(t, s, h)
	ingest(t, s, add("room-1", 0))
	running, stop := context.WithCancel(ctx)
	over := make(chan error, 1)
	go func() { over <- first.Run(running) }()
	settle(t, s, first)

	gate, err := s.Pool().Begin(ctx)
	must(t, err)
	_, err = gate.Exec(ctx, `select pg_advisory_xact_lock(4711)`)
	must(t, err)
	ingest(t, s, add("room-1", 1))
	waits(t, s, 1)
	stop()
	must(t, <-over)
	ingest(t, s, add("room-1", 2))

	second := &projection.Worker{Store: s, Projection: h, Fence: first.Fence}
	running, stop = context.WithCancel(ctx)
	go func() { over <- second.Run(running) }()
	waits(t, s, 2) // for the row of the checkpoint
	must(t, gate.Rollback(ctx))
	settle(t, s, second)
	stop()
	must(t, <-over)
	if n := count(t, s, `select count(*) from overlapped`); n != 3 {
		t.Errorf("of 3 events %d were handled", n)
	}
}

// waits returns when so many transactions wait for a lock.
func waits(t *testing.T, s *eventstore.Store, n int) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(10 * time.Second)
	for count(t, s, `select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`) < n {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("%d transactions never waited", n)
		}
	}
}
