package projection_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/eventstore"
	"github.com/weir-es/weir/internal/testkit"
	"github.com/weir-es/weir/projection"
)

var inlined = projection.View[list]{Name: "inlined", Types: lists.Types, Inline: true}

func inlineStore(t *testing.T) *eventstore.Store {
	t.Helper()
	s := store(t)
	if err := inlined.Prepare(testkit.Context(t), s); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestP4_InlineViewsAreNeverBehind: the row is there when the append returns, and is
// the same that a worker makes.
func TestP4_InlineViewsAreNeverBehind(t *testing.T) {
	t.Parallel()
	s := inlineStore(t)
	ctx := testkit.Context(t)
	w, _ := start(t, s, lists)
	follower, _ := start(t, s, inlined)
	var wait sync.WaitGroup
	for n := range 8 {
		wait.Go(func() {
			random := rand.New(rand.NewPCG(uint64(n), 1))
			for i := range 30 {
				stream := weir.StreamID(fmt.Sprintf("a-%d", random.IntN(5)))
				m := add(stream, 100*n+i)
				if _, err := s.Append(ctx, stream, weir.AnyVersion, m); err != nil {
					t.Error(err)
				}
				r, err := inlined.Row(ctx, s, string(stream))
				if err != nil || !slices.Contains(r.State.Seen, 100*n+i) {
					t.Errorf("after an append the row is %+v: %v", r, err)
				}
			}
		})
	}
	wait.Wait()
	facts := shuffled(5, 60) // many of them late
	for part := range slices.Chunk(facts, 20) {
		ingest(t, s, part...)
	}
	settle(t, s, w)
	settle(t, s, follower)
	same(t, dump(t, s, "lists"), dump(t, s, "inlined"))
	if found := verified(t, s, inlined); found.Wrong != 0 || found.Rows != 5 {
		t.Errorf("verify found %+v", found)
	}
	if p := follower.Progress(); p.Rewinds != 0 || p.Skipped != 0 {
		t.Errorf("the follower had to do %+v", p)
	}
	checkSnapshots(t, s, "inlined")
}

func TestInlineViewsAreFoldedInTheCallersTransaction(t *testing.T) {
	t.Parallel()
	s := inlineStore(t)
	ctx := testkit.Context(t)
	appendOne := func(tx pgx.Tx, n int) {
		t.Helper()
		if _, err := s.AppendTx(ctx, tx, eventstore.Append{Stream: "a-1", Expected: weir.AnyVersion, Messages: []weir.Message{add("a-1", n)}}); err != nil {
			t.Fatal(err)
		}
	}
	tx, err := s.Pool().Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	appendOne(tx, 1)
	appendOne(tx, 2)
	if err := tx.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := inlined.Row(ctx, s, "a-1"); !errors.Is(err, weir.ErrNotFound) {
		t.Errorf("after a rollback: %v", err)
	}
	err = pgx.BeginFunc(ctx, s.Pool(), func(tx pgx.Tx) error {
		appendOne(tx, 3)
		appendOne(tx, 4)
		return nil
	})
	if r := row(t, s, inlined, "a-1"); err != nil || !slices.Equal(r.State.Seen, []int{3, 4}) {
		t.Errorf("the row is %+v: %v", r, err)
	}
}

// TestAFailingInlineViewFailsItsAppendAlone, and says which view it was. A fact is
// stored all the same, and its stream parked.
func TestAFailingInlineViewFailsItsAppendAlone(t *testing.T) {
	t.Parallel()
	s := inlineStore(t)
	ctx := testkit.Context(t)
	var wait sync.WaitGroup
	for n := range 20 {
		stream := weir.StreamID(fmt.Sprintf("a-%d", n))
		wait.Go(func() {
			m := add(stream, n)
			if n == 7 {
				m = fact(stream, "test.failing", failing{})
			}
			_, err := s.Append(ctx, stream, weir.NewStream, m)
			var refused *eventstore.InlineError
			switch {
			case n != 7 && err != nil:
				t.Error(err)
			case n == 7 && (!errors.As(err, &refused) || refused.Name != "inlined" || !strings.Contains(err.Error(), "a-7 version 1")):
				t.Errorf("the append that cannot be folded: %v", err)
			}
		})
	}
	wait.Wait()
	counts, err := s.Counts(ctx)
	if err != nil || counts.Events != 19 {
		t.Errorf("%+v are stored: %v", counts, err)
	}
	ingest(t, s, fact("b-1", "test.failing", failing{}), add("b-2", 1))
	if r := row(t, s, inlined, "b-2"); !slices.Equal(r.State.Seen, []int{1}) {
		t.Errorf("the row of a fact beside is %+v", r)
	}
	follower, _ := start(t, s, inlined)
	settle(t, s, follower)
	parked, err := s.Parked(ctx, "inlined")
	if err != nil || len(parked) != 1 || parked[0].Stream != "b-1" {
		t.Errorf("parked are %+v: %v", parked, err)
	}
}

// marten#4041: rebuilding an inline projection leaves a row of progress behind.
func TestInlineViewsOfOldEventsAndTheirRebuild(t *testing.T) {
	t.Parallel()
	s := store(t)
	ctx := testkit.Context(t)
	facts := shuffled(10, 20)
	ingest(t, s, facts[:150]...) // before the view is there
	if err := inlined.Prepare(ctx, s); err != nil {
		t.Fatal(err)
	}
	ingest(t, s, facts[150:]...)
	follower, _ := start(t, s, inlined)
	settle(t, s, follower)
	if found := verified(t, s, inlined); found.Wrong != 0 || found.Rows != 10 {
		t.Errorf("verify found %+v", found)
	}
	before := dump(t, s, "inlined")
	execute(t, s, `update weir.view_inlined set state = '{}' where key = 'a-1'`)
	writing, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() {
		for n := 0; writing.Err() == nil; n++ {
			if _, err := s.Append(ctx, "live-1", weir.AnyVersion, add("live-1", n)); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	for range 3 {
		if _, err := inlined.Rebuild(ctx, s, projection.Rebuild{}); err != nil {
			t.Fatal(err)
		}
	}
	stop()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	settle(t, s, follower)
	after := dump(t, s, "inlined")
	delete(after, "live-1")
	same(t, before, after)
	if found := verified(t, s, inlined); found.Wrong != 0 || found.Rows != 11 {
		t.Errorf("verify found %+v", found)
	}
	var rebuilds int
	if err := s.Pool().QueryRow(ctx, s.Qualify("select count(*) from weir.rebuilds")).Scan(&rebuilds); err != nil || rebuilds != 0 {
		t.Errorf("%d rebuilds are noted: %v", rebuilds, err)
	}
	byKey := sums
	byKey.Inline = true
	if err := byKey.Prepare(ctx, s); err == nil {
		t.Error("a view by key took to be inline")
	}
}
