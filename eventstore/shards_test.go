package eventstore_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/eventstore"
	"github.com/weir-es/weir/internal/testkit"
)

func leases(t *testing.T, s *eventstore.Store) []eventstore.Held {
	t.Helper()
	all, err := s.Leases(testkit.Context(t))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestP7_LeasesSayWhoseAndHowFar by the clock of the database, for owners that live, are
// silent, are forgotten, and for nobody; the lag is that of the slowest reader.
func TestP7_LeasesSayWhoseAndHowFar(t *testing.T) {
	t.Parallel()
	ctx := testkit.Context(t)
	s := testkit.Store(t, eventstore.Config{Schema: "leases", Shards: 4})
	if got := leases(t, s); len(got) != 0 {
		t.Errorf("a new store has leases: %+v", got)
	}
	a, b := join(t, s, "a"), join(t, s, "b")
	claim(t, a, 4)
	if _, err := b.Claim(ctx, "view:whole_1", []weir.Shard{eventstore.WholeLog}); err != nil {
		t.Fatal(err)
	}
	exec(t, s, "update weir.leases set taken_at = clock_timestamp() - interval '1 hour' where scope = 'scope' and shard = 0")
	exec(t, s, "update weir.leases set owner = null, taken_at = null where scope = 'scope' and shard = 1")
	exec(t, s, "update weir.leases set owner = $1 where scope = 'scope' and shard = 2", [16]byte(weir.NewID()))
	exec(t, s, "update weir.instances set heartbeat_at = clock_timestamp() - interval '1 minute' where name = 'b'")
	for range 3 {
		if _, err := s.Append(ctx, "seat-1", weir.AnyVersion, messages("seat-1", 1)...); err != nil {
			t.Fatal(err)
		}
	}
	shard := weir.StreamID("seat-1").Shard(4)
	exec(t, s, `insert into weir.checkpoints (consumer, shard, position)
		select c, n, p from (values ('fast', 3), ('slow', 1)) r (c, p), generate_series(0, 3) n
		union all select 'whole_1', -1, 2 union all select 'wholex1', -1, 0`)
	exec(t, s, "update weir.events set recorded_at = recorded_at - interval '1 hour' where position = 2")

	got := leases(t, s)
	if len(got) != 5 {
		t.Fatalf("%+v", got)
	}
	if l := got[0]; l.Owner != a.ID() || l.Name != "a" || l.Epoch != 1 || l.Taken < time.Hour || l.Taken > 2*time.Hour || l.Beat < 0 || l.IsStale() {
		t.Errorf("of one that lives: %+v", l)
	}
	if l := got[1]; l.Owner != (weir.ID{}) || l.Taken >= 0 || l.Beat >= 0 || l.IsStale() {
		t.Errorf("of nobody: %+v", l)
	}
	if l := got[2]; l.Owner == (weir.ID{}) || l.Name != "" || l.Beat >= 0 || !l.IsStale() {
		t.Errorf("of one that is forgotten: %+v", l)
	}
	if l := got[4]; l.Name != "b" || l.Beat < time.Minute || !l.IsStale() || l.LagEvents != 1 || l.Slowest != "whole_1" || l.LagTime > time.Minute {
		t.Errorf("of one that is silent: %+v", l)
	}
	for _, l := range got[:4] {
		switch {
		case l.Shard == shard && (l.LagEvents != 2 || l.Slowest != "slow" || l.LagTime < time.Hour):
			t.Errorf("the shard with events: %+v", l)
		case l.Shard != shard && (l.LagEvents != 0 || l.Slowest != "" || l.LagTime != 0):
			t.Errorf("a shard without events: %+v", l)
		}
	}
	exec(t, s, "delete from weir.checkpoints where consumer = 'slow' and shard = $1", shard)
	if l := leases(t, s)[shard]; l.LagEvents != 3 || l.Slowest != "slow" {
		t.Errorf("a reader that has not begun: %+v", l)
	}
}

// TestP7_ReleaseFencesTheOldOwner: a write that is under way is waited for, and every
// later one is refused; what has changed hands since it was looked at stays.
func TestP7_ReleaseFencesTheOldOwner(t *testing.T) {
	t.Parallel()
	ctx := testkit.Context(t)
	s := testkit.Store(t, eventstore.Config{})
	a, b := join(t, s, "a"), join(t, s, "b")
	fence := a.Guard("scope", claim(t, a, 3))
	enter := func(tx pgx.Tx) error {
		var batch pgx.Batch
		s.QueueFence(&batch, fence, shards(1))
		return tx.SendBatch(ctx, &batch).Close()
	}
	seen := leases(t, s)
	tx, err := s.Pool().Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	if err := enter(tx); err != nil {
		t.Fatal(err)
	}
	done := make(chan []eventstore.Held)
	go func() {
		released, err := s.ReleaseLeases(ctx, seen[:2]...)
		if err != nil {
			t.Error(err)
		}
		done <- released
	}()
	testkit.Await(t, 5*time.Second, "the release waits for the write", func() bool { return blocked(t, s) == 1 })
	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	released := <-done
	if len(released) != 2 || released[0].Shard != 0 || released[0].Epoch != 2 || released[0].Owner != (weir.ID{}) {
		t.Errorf("%+v", released)
	}
	if err := pgx.BeginFunc(ctx, s.Pool(), enter); !errors.Is(err, weir.ErrLeaseLost) {
		t.Errorf("the old owner writes on: %v", err)
	}
	if got := leases(t, s); got[0].Owner != (weir.ID{}) || got[2].Owner != a.ID() || got[2].Epoch != 1 {
		t.Errorf("%+v", got)
	}
	if got := claim(t, b, 3); len(got) != 2 || got[0].Epoch != 3 {
		t.Errorf("another takes %+v", got)
	}
	again, err := s.ReleaseLeases(ctx, append(seen[:2:2], released...)...)
	if err != nil || len(again) != 0 {
		t.Errorf("what has changed hands was released: %+v, %v", again, err)
	}
}
