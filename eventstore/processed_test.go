package eventstore_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/eventstore"
	"github.com/weir-es/weir/internal/testkit"
)

func processed(t *testing.T, s *eventstore.Store, tx pgx.Tx, id weir.ID) bool {
	t.Helper()
	first, err := s.Processed(testkit.Context(t), tx, "billing", id)
	if err != nil {
		t.Fatal(err)
	}
	return first
}

func begin(t *testing.T, s *eventstore.Store) pgx.Tx {
	t.Helper()
	tx, err := s.Pool().Begin(testkit.Context(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(testkit.Context(t)) })
	return tx
}

// TestP3_OneOfManyDeliveriesIsTheFirst: eight deliveries of one message at once,
// each in a transaction of its own, have one winner. (hatchet#4130: two control loops
// picked the same row)
func TestP3_OneOfManyDeliveriesIsTheFirst(t *testing.T) {
	t.Parallel()
	s := testkit.Store(t, eventstore.Config{})
	for range 20 {
		id := weir.NewID()
		var winners atomic.Int32
		var group sync.WaitGroup
		start := make(chan struct{})
		for range 8 {
			group.Go(func() {
				<-start
				err := pgx.BeginFunc(testkit.Context(t), s.Pool(), func(tx pgx.Tx) error {
					first, err := s.Processed(testkit.Context(t), tx, "billing", id)
					if first {
						winners.Add(1)
					}
					return err
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		close(start)
		group.Wait()
		if winners.Load() != 1 {
			t.Fatalf("%d of 8 were the first", winners.Load())
		}
	}
}

// TestP3_RolledBackIsNotProcessed: the note is a part of what was done, not a thing
// beside it. (wolverine#1677: inbox mark and user data in different transactions)
func TestP3_RolledBackIsNotProcessed(t *testing.T) {
	t.Parallel()
	s := testkit.Store(t, eventstore.Config{})
	id := weir.NewID()
	tx := begin(t, s)
	if !processed(t, s, tx, id) || processed(t, s, tx, id) {
		t.Error("within a transaction: the first is the first, the second is not")
	}
	if err := tx.Rollback(testkit.Context(t)); err != nil {
		t.Fatal(err)
	}
	tx = begin(t, s)
	if !processed(t, s, tx, id) {
		t.Error("it was rolled back, and counts as processed")
	}
	first, err := s.Processed(testkit.Context(t), tx, "shipping", id)
	if !first || err != nil {
		t.Errorf("another consumer of it: first %t, %v", first, err)
	}
}

// TestP9_ProcessedIsForgotten by age, and of one consumer only. (wolverine#689: sent
// rows were never deleted)
func TestP9_ProcessedIsForgotten(t *testing.T) {
	t.Parallel()
	s := testkit.Store(t, eventstore.Config{})
	ctx := testkit.Context(t)
	_, err := s.Pool().Exec(ctx, s.Qualify(`
		insert into weir.processed (consumer, message_id, at)
		select c, gen_random_uuid(), now() - n * interval '1 second'
		  from generate_series(1, 25000) n, unnest(array['billing', 'shipping']) c`))
	if err != nil {
		t.Fatal(err)
	}
	n, err := s.ForgetProcessed(ctx, "billing", time.Now().Add(-1000*time.Second))
	if err != nil || n < 23_990 || n > 24_100 {
		t.Errorf("%d were forgotten, %v, want about 24000", n, err)
	}
	var left int
	if err := s.Pool().QueryRow(ctx, s.Qualify("select count(*) from weir.processed")).Scan(&left); err != nil || left != 50_000-int(n) {
		t.Errorf("%d are left, %v", left, err)
	}
}

// TestP4_CheckpointThatWasSentBackIsNotPassed: a consumer that does not know yet
// that it was sent back cannot move on from where it believes to be.
func TestP4_CheckpointThatWasSentBackIsNotPassed(t *testing.T) {
	t.Parallel()
	s := testkit.Store(t, eventstore.Config{})
	ctx := testkit.Context(t)
	advance := func(from, to weir.Position) (moved int64) {
		var b pgx.Batch
		s.QueueAdvance(&b, "relay", map[weir.Shard]weir.Position{1: from, 2: from}, to)
		results := s.Pool().SendBatch(ctx, &b)
		defer results.Close()
		tag, err := results.Exec()
		if err != nil {
			t.Fatal(err)
		}
		return tag.RowsAffected()
	}
	if n := advance(7, 9); n != 0 {
		t.Errorf("%d checkpoints moved from 7 that were never there", n)
	}
	if n := advance(0, 10); n != 2 {
		t.Errorf("%d moved from the beginning, want 2", n)
	}
	if n := advance(10, 20); n != 2 {
		t.Errorf("%d moved on, want 2", n)
	}
	if n, err := s.RewindCheckpoints(ctx, "relay", 15); n != 2 || err != nil {
		t.Errorf("%d sent back, %v", n, err)
	}
	if n, err := s.RewindCheckpoints(ctx, "relay", 15); n != 0 || err != nil {
		t.Errorf("%d sent back once more, %v", n, err)
	}
	if n := advance(20, 30); n != 0 {
		t.Errorf("%d passed by what they were sent back to", n)
	}
	at, err := s.Checkpoints(ctx, "relay")
	if err != nil || at[1] != 14 || at[2] != 14 {
		t.Errorf("they are at %v, %v", at, err)
	}
}

// TestP4_FurtherThanNotedIsSentBack: a consumer is sent back although its checkpoint is
// not above that place, or is not there yet: it may have gone on since.
func TestP4_FurtherThanNotedIsSentBack(t *testing.T) {
	t.Parallel()
	s := testkit.Store(t, eventstore.Config{})
	ctx := testkit.Context(t)
	move := func(from, to weir.Position) int64 {
		var b pgx.Batch
		s.QueueAdvance(&b, "relay", map[weir.Shard]weir.Position{3: from}, to)
		results := s.Pool().SendBatch(ctx, &b)
		defer results.Close()
		tag, err := results.Exec()
		if err != nil {
			t.Fatal(err)
		}
		return tag.RowsAffected()
	}
	for _, step := range []struct{ noted, back weir.Position }{{0, 0}, {100, 100}, {100, 105}} { // and it is at 110
		if n, err := s.RewindCheckpoints(ctx, "relay", step.back); n != 0 || err != nil {
			t.Fatalf("%d above %d were sent back, %v", n, step.back, err)
		}
		if n := move(step.noted, 110); n != 0 {
			t.Errorf("it was sent back to %d, and moved from %d to 110", step.back, step.noted)
		}
		marks, err := s.Checkpoints(ctx, "relay")
		if err != nil || marks[3] >= max(step.back, 1) || move(marks[3], 100) != 1 {
			t.Errorf("sent back to %d it goes on from %d, %v", step.back, marks[3], err)
		}
	}
}

// TestPositionBeforeATime leaves nothing below it that was recorded later.
func TestPositionBeforeATime(t *testing.T) {
	t.Parallel()
	s := testkit.Store(t, eventstore.Config{})
	ctx := testkit.Context(t)
	for i := range 3 {
		if _, err := s.Append(ctx, "seat-A1", weir.AnyVersion, messages("seat-A1", 1)...); err != nil {
			t.Fatal(i, err)
		}
	}
	events := read(t, s, "seat-A1")
	for i, e := range events {
		want := weir.Position(0)
		if i > 0 {
			want = events[i-1].Position
		}
		if at, err := s.PositionBefore(ctx, e.Recorded); at != want || err != nil {
			t.Errorf("before event %d: %d, %v, want %d", i, at, err, want)
		}
	}
	if at, err := s.PositionBefore(ctx, time.Now().Add(time.Hour)); at != events[2].Position || err != nil {
		t.Errorf("before the future: %d, %v", at, err)
	}
}
