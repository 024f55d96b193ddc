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

// smuggle stores an event behind every reader, at a position that was drawn and
// rolled back, past the trigger.
func smuggle(t *testing.T, s *eventstore.Store, stream weir.StreamID, position weir.Position) {
	t.Helper()
	ctx := testkit.Context(t)
	_, err := s.Pool().Exec(ctx, "alter table weir.events disable trigger events_require_registration")
	if err == nil {
		_, err = s.Pool().Exec(ctx, `insert into weir.events (position, stream_id, version, event_id, shard, type, data)
			select $2, id, version + 1, $3, shard, 'test.added', '{"N": 100}' from weir.streams where name = $1`,
			string(stream), int64(position), [16]byte(weir.NewID()))
	}
	if err == nil {
		_, err = s.Pool().Exec(ctx, "update weir.streams set version = version + 1 where name = $1", string(stream))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestP6_AuditFindsWhatTurnedUpBehind although it cannot happen: a view that is
// keyed by stream repairs itself, and others say so.
func TestP6_AuditFindsWhatTurnedUpBehind(t *testing.T) {
	t.Parallel()
	s := store(t)
	ctx := testkit.Context(t)
	handled := 0
	handler := projection.Handler{Name: "handler", WholeLog: true, Handle: func(context.Context, pgx.Tx, weir.Event, any) error {
		handled++
		return nil
	}}
	view, _ := startAudited(t, s, lists)
	other, _ := startAudited(t, s, handler)

	ingest(t, s, add("a-1", 1))
	tx, err := s.Pool().Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.AppendTx(ctx, tx, eventstore.Append{Stream: "b-1", Messages: []weir.Message{add("b-1", 0)}}); err != nil {
		t.Fatal(err)
	}
	if err := tx.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	ingest(t, s, add("b-1", 2))
	settle(t, s, view)
	settle(t, s, other)
	smuggle(t, s, "a-1", 2)

	for name, w := range map[string]*projection.Worker{"view": view, "handler": other} {
		testkit.Await(t, 5*time.Second, fmt.Sprint("the ", name, " raises an alarm"), func() bool { return w.Progress().Alarms == 1 })
	}
	testkit.Await(t, 5*time.Second, "the row is repaired", func() bool { return row(t, s, lists, "a-1").Version == 2 })
	want(t, s, "a-1", 1, 100)
	want(t, s, "b-1", 2)
}

func startAudited(t *testing.T, s *eventstore.Store, p projection.Projection) (*projection.Worker, func() error) {
	t.Helper()
	return startWith(t, s, p, func(w *projection.Worker) { w.Audit = 300 * time.Millisecond })
}
