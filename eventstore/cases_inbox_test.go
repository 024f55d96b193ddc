package eventstore_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/eventstore"
	"github.com/weir-es/weir/internal/testkit"
)

// TestP3_OneIDTwiceInOneTransaction is one event by every door, and no error that ends
// the transaction: the key of the row is its position, which nobody else chooses.
// (Altinn/altinn-storage#788: equal ids that users had chosen collided in the primary key
// of an outbox)
func TestP3_OneIDTwiceInOneTransaction(t *testing.T) {
	t.Parallel()
	s := testkit.Store(t, eventstore.Config{})
	ctx := testkit.Context(t)
	chosen := message("order-1", 1)
	other := message("order-1", 2)
	tx := begin(t, s)
	once := eventstore.Append{Stream: "order-1", Expected: weir.AnyVersion, Messages: []weir.Message{chosen}}
	first, err := s.AppendTx(ctx, tx, once)
	if err != nil {
		t.Fatal(err)
	}
	again, err := s.AppendTx(ctx, tx, once)
	if err != nil || len(again) != 1 || again[0].Position != first[0].Position {
		t.Fatalf("the second time in a transaction gives %+v, %v, the first gave %+v", again, err, first)
	}
	if !processed(t, s, tx, chosen.ID) || processed(t, s, tx, chosen.ID) {
		t.Error("noted twice in a transaction: the first is the first, the second is not")
	}
	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	done, err := s.Ingest(ctx, false, other, other, chosen, other)
	if want := (eventstore.Ingested{Stored: 1, Duplicates: 3}); err != nil || done != want {
		t.Errorf("twice among facts: %+v, %v, want %+v", done, err, want)
	}
	if got := ids(logged(t, s)); len(got) != 2 || got[0] != chosen.ID || got[1] != other.ID {
		t.Errorf("stored are %v", got)
	}
}

// old notes that a consumer dealt with n messages long ago.
func old(t *testing.T, s *eventstore.Store, n int) {
	t.Helper()
	_, err := s.Pool().Exec(testkit.Context(t), s.Qualify(`insert into weir.processed (consumer, message_id, at)
		select 'billing', gen_random_uuid(), now() - interval '1 day' from generate_series(1, $1)`), n)
	if err != nil {
		t.Fatal(err)
	}
}

func notes(t *testing.T, s *eventstore.Store) (n int64) {
	t.Helper()
	if err := s.Pool().QueryRow(testkit.Context(t), s.Qualify("select count(*) from weir.processed")).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestP9_ReapersAtTheSameTime forget each note once, and are in nobody's way, while
// messages are noted beside them. (hatchet#4130: two control loops picked the same row)
func TestP9_ReapersAtTheSameTime(t *testing.T) {
	t.Parallel()
	s := testkit.Store(t, eventstore.Config{})
	ctx := testkit.Context(t)
	for range 5 {
		old(t, s, 35_000)
		before := notes(t, s)
		var forgotten, noted atomic.Int64
		var group sync.WaitGroup
		start := make(chan struct{})
		for range 6 {
			group.Go(func() {
				<-start
				n, err := s.ForgetProcessed(ctx, "billing", time.Now().Add(-time.Hour))
				if err != nil {
					t.Error(err)
				}
				forgotten.Add(n)
			})
			group.Go(func() {
				<-start
				err := pgx.BeginFunc(ctx, s.Pool(), func(tx pgx.Tx) error {
					first, err := s.Processed(ctx, tx, "billing", weir.NewID())
					if first {
						noted.Add(1)
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
		left := notes(t, s)
		if before-left+noted.Load() != forgotten.Load() || noted.Load() != 6 {
			t.Errorf("of %d notes %d are left, %d were added, and %d are said to be forgotten", before, left, noted.Load(), forgotten.Load())
		}
	}
	if _, err := s.ForgetProcessed(ctx, "billing", time.Now().Add(-time.Hour)); err != nil || notes(t, s) != 30 {
		t.Errorf("%d notes are left, %v, want the 30 new ones", notes(t, s), err)
	}
}

// TestP3_InterruptedForgettingLeavesNothingByHalves: a note is one row, so a message is
// known or it is not, wherever the forgetting was interrupted; doing it again does the
// rest, and what comes under a forgotten id is new in every respect.
// (dbos-transact-py#769: an interrupted clearing left outputs that were replayed when an id
// was used again)
func TestP3_InterruptedForgettingLeavesNothingByHalves(t *testing.T) {
	t.Parallel()
	url := testkit.Database(t)
	s := testkit.Store(t, eventstore.Config{URL: url})
	id := weir.NewID()
	tx := begin(t, s)
	if !processed(t, s, tx, id) {
		t.Error("it was never noted")
	}
	if err := tx.Commit(testkit.Context(t)); err != nil {
		t.Fatal(err)
	}
	old(t, s, 45_000)
	pool, guillotine := testkit.Mortal(t, url)
	dying := testkit.Store(t, eventstore.Config{Pool: pool, Poll: time.Hour})
	ctx := testkit.Context(t)
	guillotine.At(3)
	n, err := dying.ForgetProcessed(ctx, "billing", time.Now().Add(time.Hour))
	if !errors.Is(err, context.Canceled) || n < 10_000 || n > 40_000 || notes(t, s) != 45_001-n {
		t.Fatalf("%d were forgotten and %d are left, %v", n, notes(t, s), err)
	}
	rest, err := s.ForgetProcessed(ctx, "billing", time.Now().Add(time.Hour))
	if err != nil || n+rest != 45_001 {
		t.Errorf("%d and %d were forgotten, %v", n, rest, err)
	}
	if tx := begin(t, s); !processed(t, s, tx, id) || processed(t, s, tx, id) {
		t.Error("what is forgotten is not new")
	}
}
