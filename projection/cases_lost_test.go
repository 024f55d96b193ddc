package projection_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/eventstore"
	"github.com/weir-es/weir/internal/testkit"
	"github.com/weir-es/weir/projection"
)

// openAppend is an append in a transaction that is still open.
func openAppend(t *testing.T, s *eventstore.Store, m ...weir.Message) (pgx.Tx, []weir.Event) {
	t.Helper()
	ctx := testkit.Context(t)
	tx, err := s.Pool().Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tx.Rollback(context.Background()) })
	events, err := s.AppendTx(ctx, tx, eventstore.Append{Stream: m[0].Stream, Expected: weir.AnyVersion, Messages: m})
	if err != nil {
		t.Fatal(err)
	}
	return tx, events
}

// wantCheckpoints fails if a shard's checkpoint is above most.
func wantCheckpoints(t *testing.T, s *eventstore.Store, consumer string, most weir.Position) {
	t.Helper()
	at, err := s.Checkpoints(testkit.Context(t), consumer)
	if err != nil {
		t.Fatal(err)
	}
	for shard, position := range at {
		if position > most {
			t.Errorf("%s: the checkpoint of shard %d is %d, want %d at most", consumer, shard, position, most)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestP6_RestartAfterEachEvent: a worker that stops between any two events begins with
// the second of them, in whatever order its shards are checkpointed. (Eventuous#291:
// the first event after a restart was skipped)
func TestP6_RestartAfterEachEvent(t *testing.T) {
	t.Parallel()
	for _, whole := range []bool{false, true} {
		t.Run(fmt.Sprint("whole log ", whole), func(t *testing.T) {
			t.Parallel()
			s := store(t)
			name := fmt.Sprint("restart_", whole)
			for n := range 8 {
				w, stop := start(t, s, journal(name, whole))
				ingest(t, s, add(weir.Stream("a", fmt.Sprint(n%3)), n))
				settle(t, s, w)
				must(t, stop())
				ingest(t, s, add(weir.Stream("b", fmt.Sprint(n%3)), n)) // while nobody runs
			}
			w, _ := start(t, s, journal(name, whole))
			settle(t, s, w)
			if rows, events := noted(t, s, name); rows != 16 || events != 16 {
				t.Errorf("16 events were handled %d times, %d different ones", rows, events)
			}
		})
	}
}

// TestP6_CheckpointsStayBelowWhatIsOpen also when everything above it was looked at and
// nothing of it was wanted: where the log ends is not how far it was read.
// (Eventuous#560: the head was taken for a checkpoint when a reader had caught up)
func TestP6_CheckpointsStayBelowWhatIsOpen(t *testing.T) {
	t.Parallel()
	s := store(t)
	w, stop := start(t, s, lists)
	ingest(t, s, add("a-1", 1))
	settle(t, s, w)
	tx, early := openAppend(t, s, add("a-2", 2))
	for range 20 {
		ingest(t, s, fact("b-1", "test.unknown", 0))
	}
	if _, _, err := s.ReadHorizon(testkit.Context(t)); err != nil {
		t.Fatal(err)
	}
	must(t, stop())
	wantCheckpoints(t, s, "lists", early[0].Position-1)
	must(t, tx.Commit(testkit.Context(t)))
	w, _ = start(t, s, lists)
	settle(t, s, w)
	want(t, s, "a-2", 2)
}

// TestP6_CheckpointsAreStoredEvents: numbers behind the last event that were drawn and
// rolled back are no place to wait at, since a crash may give them out again.
// (KurrentDB#4970: a checkpoint above the last event swallowed the next one)
// (akka-persistence-r2dbc#463: a place was noted, its event rolled back)
func TestP6_CheckpointsAreStoredEvents(t *testing.T) {
	t.Parallel()
	s := store(t)
	w, stop := start(t, s, lists)
	ingest(t, s, add("a-1", 1))
	settle(t, s, w)
	tx, _ := openAppend(t, s, add("a-1", 2), add("a-1", 3))
	must(t, tx.Rollback(testkit.Context(t)))
	at, _, err := s.ReadHorizon(testkit.Context(t))
	must(t, err)
	must(t, w.Wait(testkit.Context(t), at))
	must(t, stop())
	wantCheckpoints(t, s, "lists", 1)
	// As after a crash, which makes the sequence forget.
	_, err = s.Pool().Exec(testkit.Context(t), "select setval('weir.position', 1)")
	must(t, err)
	ingest(t, s, add("a-1", 4))
	w, _ = start(t, s, lists)
	settle(t, s, w)
	want(t, s, "a-1", 1, 4)
}

// TestP8_FailingEventPinsItsCheckpoint through any number of restarts, though other
// shards have nothing to do or go on: when it succeeds at last it is handled once.
// (AxonFramework#4253: segments without work moved the place of a failing event)
func TestP8_FailingEventPinsItsCheckpoint(t *testing.T) {
	t.Parallel()
	for _, whole := range []bool{false, true} {
		t.Run(fmt.Sprint("whole log ", whole), func(t *testing.T) {
			t.Parallel()
			registry, err := weir.NewRegistry(types)
			must(t, err)
			s := testkit.Store(t, eventstore.Config{URL: testkit.Empty(t), Shards: 4, Types: registry})
			name := fmt.Sprint("pinned_", whole)
			failed, healed := make(chan bool, 100), make(chan bool)
			h := journal(name, whole)
			write := h.Handle
			h.Handle = func(ctx context.Context, tx pgx.Tx, event weir.Event, value any) error {
				select {
				case <-healed:
				default:
					if value.(added).N == 13 {
						failed <- true
						return errors.New("not yet")
					}
				}
				return write(ctx, tx, event, value)
			}
			must(t, h.Prepare(testkit.Context(t), s))
			ingest(t, s, add("a-1", 1), add("b-1", 2))
			ingest(t, s, add("poison-1", 13))
			poison := weir.Position(3)
			for n := range 20 {
				ingest(t, s, add(weir.Stream("a", fmt.Sprint(n)), 100+n), fact("b-1", "test.unknown", 0))
				_, stop := start(t, s, h)
				<-failed
				must(t, stop())
				at, err := s.Checkpoints(testkit.Context(t), name)
				must(t, err)
				shard := weir.StreamID("poison-1").Shard(4)
				if whole {
					shard = eventstore.WholeLog
				}
				if at[shard] >= poison {
					t.Fatalf("after restart %d the checkpoint is %d, the failing event at %d", n, at[shard], poison)
				}
			}
			close(healed)
			w, _ := start(t, s, h)
			settle(t, s, w)
			if rows, events := noted(t, s, name); rows != 23 || events != 23 {
				t.Errorf("23 events were handled %d times, %d different ones", rows, events)
			}
			if parked, err := s.Parked(testkit.Context(t), name); err != nil || len(parked) != 0 {
				t.Errorf("parked: %v, %v", parked, err)
			}
		})
	}
}

// TestP6_NewViewPassesAllGaps of a log, small and large, at its start and at its end:
// catching up stops at none of them, and follows on. (marten PR#2313,
// prooph/pdo-event-store#189, PR#221)
func TestP6_NewViewPassesAllGaps(t *testing.T) {
	t.Parallel()
	s := store(t)
	var seen []int
	for n, gap := range []int{3, 1, 0, 5000, 1, 2_000_000, 0} {
		_, err := s.Pool().Exec(testkit.Context(t), "select setval('weir.position', (select last_value from weir.position) + $1)", gap)
		must(t, err)
		tx, _ := openAppend(t, s, add("b-1", n))
		must(t, tx.Rollback(testkit.Context(t)))
		ingest(t, s, add("a-1", n))
		seen = append(seen, n)
	}
	tx, _ := openAppend(t, s, add("b-1", 0))
	must(t, tx.Rollback(testkit.Context(t)))
	for _, limit := range []int{1, 2, 0} {
		began := time.Now()
		w, stop := startWith(t, s, lists, func(w *projection.Worker) { w.Limit = limit })
		settle(t, s, w)
		want(t, s, "a-1", seen...)
		ingest(t, s, add("a-1", 100+limit))
		seen = append(seen, 100+limit)
		settle(t, s, w)
		want(t, s, "a-1", seen...)
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("in pages of %d it took %s", limit, took)
		}
		must(t, stop())
		_, err := s.Pool().Exec(testkit.Context(t), "delete from weir.checkpoints; delete from weir.view_lists", pgx.QueryExecModeSimpleProtocol)
		must(t, err)
	}
}

// TestP7_SlowHandlerHoldsNobodyElse: while one handler sits in its transaction, other
// readers and all writers go on, for the horizon does not ask how old the oldest
// transaction is. (watermill-sql's AckDeadline: a handler inside a transaction stalled
// every consumer)
func TestP7_SlowHandlerHoldsNobodyElse(t *testing.T) {
	t.Parallel()
	s := store(t)
	inside, goOn := make(chan bool, 1), make(chan bool)
	slow, stop := start(t, s, projection.Handler{Name: "slow", WholeLog: true, Handle: func(ctx context.Context, tx pgx.Tx, _ weir.Event, value any) error {
		if _, err := tx.Exec(ctx, "select pg_current_xact_id()"); err != nil || value.(added).N != 1 {
			return err
		}
		inside <- true
		<-goOn
		return nil
	}})
	quick, _ := start(t, s, lists)
	ingest(t, s, add("a-1", 1))
	<-inside
	began := time.Now()
	for n := range 10 {
		ingest(t, s, add("a-1", 2+n))
		settle(t, s, quick)
	}
	took := time.Since(began)
	close(goOn)
	if took > 3*time.Second { // it would be 4 s until the server ends the slow one
		t.Errorf("ten events took %s beside a slow handler", took)
	}
	want(t, s, "a-1", 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)
	settle(t, s, slow)
	must(t, stop())
}

// TestTimesAreInstants: every column of time, in the tables of the store and in those
// of views, says which instant it is, in any time zone. (watermill#631,
// watermill-sql#53: local times beside instants)
func TestTimesAreInstants(t *testing.T) {
	t.Parallel()
	s := store(t)
	prepared(t, s, lists)
	rows, err := s.Pool().Query(testkit.Context(t), `select table_name || '.' || column_name, data_type from information_schema.columns
		where table_schema = 'weir' and (data_type like 'time%' or data_type = 'date') order by 1`)
	must(t, err)
	var column, kind string
	n := 0
	_, err = pgx.ForEachRow(rows, []any{&column, &kind}, func() error {
		if n++; kind != "timestamp with time zone" {
			t.Errorf("%s is a %s", column, kind)
		}
		return nil
	})
	must(t, err)
	if n < 10 {
		t.Errorf("%d columns of time only", n)
	}
}
