package projection_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/eventstore"
	"github.com/weir-es/weir/internal/testkit"
	"github.com/weir-es/weir/projection"
)

// wired is a store whose connections break when the test says so, and another on
// the same database whose connections do not.
func wired(t *testing.T) (s, producer *eventstore.Store, wire *testkit.Wire) {
	t.Helper()
	registry, err := weir.NewRegistry(types)
	if err != nil {
		t.Fatal(err)
	}
	url := testkit.Database(t)
	wire = testkit.NewWire(t, url)
	s = testkit.Store(t, eventstore.Config{Pool: wire.Pool, Types: registry, Poll: 20 * time.Millisecond})
	return s, testkit.Store(t, eventstore.Config{URL: url}), wire
}

// journal is a handler that is not idempotent: it notes what it is given, in the
// order in which it is given it.
func journal(name string, whole bool) projection.Handler {
	table := "weir.journal_" + name
	var schema func(string) string
	return projection.Handler{
		Name: name, Types: []string{"test.added"}, WholeLog: whole,
		Setup: func(ctx context.Context, s *eventstore.Store) error {
			schema = s.Qualify
			_, err := s.Pool().Exec(ctx, s.Qualify("create table if not exists "+table+" (at serial, position bigint, stream text, n int)"))
			return err
		},
		Handle: func(ctx context.Context, tx pgx.Tx, event weir.Event, value any) error {
			_, err := tx.Exec(ctx, schema("insert into "+table+" (position, stream, n) values ($1, $2, $3)"),
				int64(event.Position), string(event.Stream), value.(added).N)
			return err
		},
	}
}

// noted counts the rows of a journal, and the events among them.
func noted(t *testing.T, s *eventstore.Store, name string) (rows, events int) {
	t.Helper()
	sql := s.Qualify("select count(*), count(distinct position) from weir.journal_" + name)
	if err := s.Pool().QueryRow(testkit.Context(t), sql).Scan(&rows, &events); err != nil {
		t.Fatal(err)
	}
	return rows, events
}

// TestP4_CommitWhoseAnswerIsLost is done or not done, but never done twice: the
// worker finds out before it tries again. (wolverine#1677, akka-projection#906)
func TestP4_CommitWhoseAnswerIsLost(t *testing.T) {
	t.Parallel()
	for _, whole := range []bool{false, true} {
		t.Run(fmt.Sprint("handler, whole log ", whole), func(t *testing.T) {
			t.Parallel()
			s, producer, wire := wired(t)
			w, _ := start(t, s, journal("lost", whole))
			for n := range 5 {
				wire.Cut(1)
				ingest(t, producer, add("a-1", n))
				settle(t, s, w)
			}
			if rows, events := noted(t, s, "lost"); rows != 5 || events != 5 {
				t.Errorf("5 events were handled %d times, %d different ones; %d answers were lost", rows, events, wire.Lost())
			}
			if wire.Lost() != 5 {
				t.Errorf("%d answers were lost, want 5: the test tests nothing", wire.Lost())
			}
		})
	}
	t.Run("view by stream", func(t *testing.T) {
		t.Parallel()
		s, producer, wire := wired(t)
		w, _ := start(t, s, lists)
		for n := range 5 {
			wire.Cut(2)
			ingest(t, producer, add("a-1", n))
			settle(t, s, w)
		}
		want(t, s, "a-1", 0, 1, 2, 3, 4)
	})
}

// TestP4_BackendsAreTerminated under a handler and a view, again and again, at any
// moment of their transactions: rows equal events exactly.
func TestP4_BackendsAreTerminated(t *testing.T) {
	t.Parallel()
	s, producer, _ := wired(t)
	w, _ := start(t, s, journal("torn", true))
	ctx, stop := context.WithTimeout(testkit.Context(t), 1500*time.Millisecond)
	defer stop()
	killed := make(chan int64)
	go func() {
		n := int64(0)
		for ctx.Err() == nil {
			tag, err := producer.Pool().Exec(ctx, `select pg_terminate_backend(pid) from (select pid from pg_stat_activity
				where datname = current_database() and state <> 'idle' and query ~ 'journal_torn|checkpoints|commit' and pid <> pg_backend_pid() limit 1) p`)
			if err == nil {
				n += tag.RowsAffected()
			}
		}
		killed <- n
	}()
	events := 0
	for ctx.Err() == nil {
		ingest(t, producer, add(weir.Stream("a", fmt.Sprint(events%5)), events))
		events++
	}
	hits := <-killed
	settle(t, s, w)
	if rows, distinct := noted(t, s, "torn"); rows != events || distinct != events {
		t.Errorf("%d events were handled %d times, %d different ones; %d backends were terminated", events, rows, distinct, hits)
	}
	t.Logf("%d events, %d backends terminated", events, hits)
}
