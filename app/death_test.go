package app_test

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/app"
	"github.com/weir-es/weir/eventstore"
	"github.com/weir-es/weir/internal/testkit"
	"github.com/weir-es/weir/projection"
)

var everyDeath = flag.Bool("every-death", false, "die at every statement, not at some of them")

// journal inserts a row for each event, so that one that is handled twice shows.
var journal = projection.Handler{Name: "journal",
	Setup: func(ctx context.Context, s *eventstore.Store) error {
		return s.Create(ctx, "create table if not exists weir.journal (id uuid, stream text, guest text)")
	},
	Handle: func(ctx context.Context, tx pgx.Tx, e weir.Event, value any) error {
		_, err := tx.Exec(ctx, `insert into journal values ($1, $2, $3)`, [16]byte(e.ID), string(e.Stream), value.(held).Guest)
		return err
	}}

// TestP1P3P4P7_ADeathAtAnyStatement of the path from the broker to the read models, the
// leases and the checkpoints included: what the broker has taken is stored once and
// applied once when somebody else goes on. (AxonFramework#4253, akka-projection#906)
func TestP1P3P4P7_ADeathAtAnyStatement(t *testing.T) {
	t.Parallel()
	config := service(t)
	config.Inbox, config.Schema = soon, "public"
	config.Logger = slog.New(slog.DiscardHandler)
	config.Projections = append(config.Projections, journal)
	publisher := open(t, config)
	step := int64(7)
	if *everyDeath {
		step = 1
	}
	deaths := 0
	var sent []string
	for at := int64(1); ; at += step {
		died := oneLife(t, config, at, func() {
			for n := range 6 {
				guest := fmt.Sprintf("%d-%d", at, n)
				publish(t, publisher, weir.StreamID(fmt.Sprint("seat-", n%3)), guest)
				sent = append(sent, guest)
			}
		})
		if !died {
			break
		}
		deaths++
	}
	t.Logf("%d deaths", deaths)
	if deaths < 4 {
		t.Errorf("%d deaths only", deaths)
	}
	heir := open(t, config)
	alter(t, heir, "update weir.instances set heartbeat_at = heartbeat_at - interval '1 minute'") // so that the test is short
	begin(t, heir)
	settle(t, heir, 30*time.Second)
	checkGuests(t, heir, sent)
}

// oneLife runs an app that dies at a statement after act, and says whether it did or
// came to rest before.
func oneLife(t *testing.T, config app.Config, at int64, act func()) (died bool) {
	t.Helper()
	pool, blade := testkit.Mortal(t, config.Postgres)
	config.Pool = pool
	a := open(t, config)
	alter(t, a, "update weir.instances set heartbeat_at = heartbeat_at - interval '1 minute'")
	ctx, cancel := context.WithCancel(testkit.Context(t))
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	ownsAll(t, a, 20*time.Second)
	blade.At(at)
	act()
	rest := make(chan struct{})
	go func() {
		defer close(rest)
		a.Settle(ctx)
		sleepUnless(blade.Fell, time.Second) // heartbeats, looks and checkpoints of quiet shards
	}()
	select {
	case <-blade.Fell:
		died = true
	case <-rest:
		blade.At(-1)
	}
	a.Kill()
	cancel()
	<-done
	<-rest
	a.Close()
	return died
}

// sleepUnless waits for something, so long at most.
func sleepUnless(fell <-chan struct{}, d time.Duration) {
	select {
	case <-fell:
	case <-time.After(d):
	}
}

func checkGuests(t *testing.T, a *app.App, sent []string) {
	t.Helper()
	ctx := testkit.Context(t)
	var seen []string
	for n := range 3 {
		s, err := seats.Get(ctx, a.Store, fmt.Sprint("seat-", n))
		if err != nil {
			t.Fatal(err)
		}
		seen = append(seen, s.Guests...)
	}
	var rows, distinct, events int
	row := a.Store.Pool().QueryRow(ctx, "select count(*), count(distinct id), (select count(*) from events) from journal")
	if err := row.Scan(&rows, &distinct, &events); err != nil {
		t.Fatal(err)
	}
	slices.Sort(seen)
	slices.Sort(sent)
	if !slices.Equal(seen, sent) {
		t.Errorf("of %d guests %d are in the view", len(sent), len(seen))
	}
	if rows != len(sent) || distinct != len(sent) || events != len(sent) {
		t.Errorf("of %d guests %d are stored, and the handler has %d rows of %d", len(sent), events, rows, distinct)
	}
}
