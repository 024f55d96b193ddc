package projection_test

import (
	"testing"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/devserver"
	"github.com/weir-es/weir/eventstore"
	"github.com/weir-es/weir/internal/testkit"
)

// forgetful is a PostgreSQL that, when it crashes, forgets what no commit made it
// write down.
func forgetful(t *testing.T) *devserver.Postgres {
	t.Helper()
	server, err := devserver.StartPostgres(testkit.Context(t), devserver.PostgresConfig{
		Settings: map[string]string{"wal_writer_delay": "10s", "autovacuum": "off", "checkpoint_timeout": "1h"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	return server
}

// TestP6_CrashGivesPositionsAway a second time when they were drawn and never
// committed: a reader that went past them before the crash would miss the events
// that get them after it. (marten#3503)
// (KurrentDB#4970)
func TestP6_CrashGivesPositionsAway(t *testing.T) {
	t.Parallel()
	ctx := testkit.Context(t)
	server := forgetful(t)
	url, err := server.NewDatabase(ctx)
	if err != nil {
		t.Fatal(err)
	}
	registry, err := weir.NewRegistry(types)
	if err != nil {
		t.Fatal(err)
	}
	s := testkit.Store(t, eventstore.Config{URL: url, Types: registry})
	w, _ := start(t, s, lists)
	ingest(t, s, add("a-1", 0))
	settle(t, s, w)

	tx, err := s.Pool().Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var many []weir.Message
	for n := range 100 { // more than the sequence writes down ahead
		many = append(many, add("b-1", n))
	}
	if _, err := s.AppendTx(ctx, tx, eventstore.Append{Stream: "b-1", Expected: weir.AnyVersion, Messages: many}); err != nil {
		t.Fatal(err)
	}
	if err := tx.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	// A reader may go past the numbers that were rolled back, or not.
	if _, _, err := s.ReadHorizon(ctx); err != nil {
		t.Fatal(err)
	}
	if err := w.Wait(ctx, s.Horizon()); err != nil {
		t.Fatal(err)
	}
	if err := server.Restart(ctx, "immediate"); err != nil {
		t.Fatal(err)
	}
	seen := s.Horizon()
	ingest(t, s, add("a-1", 1))
	events, err := s.Page(ctx, 0, 1<<40, nil, 10)
	if err != nil || len(events) != 2 {
		t.Fatalf("%d events, %v", len(events), err)
	}
	if events[1].Position <= seen {
		t.Errorf("an event appeared at position %d, the horizon had been at %d", events[1].Position, seen)
	}
	settle(t, s, w)
	want(t, s, "a-1", 0, 1)
}
