package app_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/app"
	"github.com/weir-es/weir/batching"
	"github.com/weir-es/weir/internal/testkit"
	"github.com/weir-es/weir/projection"
)

// soon is a window that makes tests short.
var soon = batching.Fixed(batching.Window{Quiet: 5 * time.Millisecond, MaxAge: 50 * time.Millisecond})

// begin runs an app, and returns a stop that waits for its end.
func begin(t *testing.T, a *app.App) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(testkit.Context(t))
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	var err error
	ended := false
	stop = func() error {
		cancel()
		if !ended {
			err, ended = <-done, true
		}
		return err
	}
	t.Cleanup(func() {
		if err := stop(); err != nil && !errors.Is(err, app.ErrKilled) {
			t.Error(err)
		}
	})
	return stop
}

func publish(t *testing.T, a *app.App, stream weir.StreamID, guests ...string) {
	t.Helper()
	for _, guest := range guests {
		if err := a.Publish(testkit.Context(t), stream, held{guest}); err != nil {
			t.Fatal(err)
		}
	}
}

// awaitGuests waits until a row of seats has as many guests as this.
func awaitGuests(t *testing.T, a *app.App, key string, n int, limit time.Duration) {
	t.Helper()
	testkit.Await(t, limit, fmt.Sprintf("%s has %d guests", key, n), func() bool {
		s, err := seats.Get(testkit.Context(t), a.Store, key)
		return err == nil && len(s.Guests) == n
	})
}

func alter(t *testing.T, a *app.App, sql string, args ...any) {
	t.Helper()
	if _, err := a.Store.Pool().Exec(testkit.Context(t), a.Store.Qualify(sql), args...); err != nil {
		t.Fatal(err)
	}
}

func isOwner(t *testing.T, a *app.App) bool { return a.Health(testkit.Context(t)).Owner }

// TestP8_AppTakesLostLeasesBack, also when it lost some of them only: an owner
// that was away for a moment goes on when the other one has left.
func TestP8_AppTakesLostLeasesBack(t *testing.T) {
	t.Parallel()
	for name, where := range map[string]string{
		"all": "true", "one shard": "scope = 'shards' and shard = 3", "the shards": "scope = 'shards'", "a view": "scope <> 'shards'",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := service(t)
			config.Inbox = soon
			a := open(t, config)
			begin(t, a)
			publish(t, a, "seat-1", "Ada")
			awaitGuests(t, a, "seat-1", 1, 5*time.Second)
			alter(t, a, "update weir.leases set owner = null, epoch = epoch + 1 where "+where)
			publish(t, a, "seat-1", "Ben")
			awaitGuests(t, a, "seat-1", 2, 5*time.Second)
			testkit.Await(t, 5*time.Second, "it is the owner of all", func() bool { return isOwner(t, a) })
			alter(t, a, "update weir.leases set owner = null, epoch = epoch + 1 where "+where)
			testkit.Await(t, 5*time.Second, "it owns them once more", func() bool {
				var free int
				err := a.Store.Pool().QueryRow(testkit.Context(t), a.Store.Qualify("select count(*) from weir.leases where owner is null")).Scan(&free)
				return err == nil && free == 0
			})
			publish(t, a, "seat-1", "Cid")
			awaitGuests(t, a, "seat-1", 3, 5*time.Second)
		})
	}
}

// TestP8_TwoAppsThatStartTogether do not wait for each other for ever, each
// holding what the other needs.
func TestP8_TwoAppsThatStartTogether(t *testing.T) {
	t.Parallel()
	config := service(t)
	config.Inbox = soon
	for n := range 6 { // each has a lease of its own
		config.Projections = append(config.Projections, projection.Handler{Name: fmt.Sprint("whole", n), WholeLog: true,
			Handle: func(context.Context, pgx.Tx, weir.Event, any) error { return nil }})
	}
	for round := 1; round <= 3; round++ {
		a, b := open(t, config), open(t, config)
		stopA, stopB := begin(t, a), begin(t, b)
		publish(t, a, "seat-1", fmt.Sprint(round))
		awaitGuests(t, a, "seat-1", round, 4*time.Second)
		if isOwner(t, a) == isOwner(t, b) {
			t.Errorf("owners: %v and %v", isOwner(t, a), isOwner(t, b))
		}
		if err := errors.Join(stopA(), stopB()); err != nil {
			t.Fatal(err)
		}
	}
}

// TestP7_SecondAppTakesOver at once when the first stops, and when the first died,
// as soon as its silence is long enough.
func TestP7_SecondAppTakesOver(t *testing.T) {
	t.Parallel()
	config := service(t)
	config.Inbox = soon
	a, b, c := open(t, config), open(t, config), open(t, config)
	stop := begin(t, a)
	publish(t, a, "seat-1", "Ada")
	awaitGuests(t, a, "seat-1", 1, 5*time.Second)

	begin(t, b)
	publish(t, b, "seat-1", "Ben") // a waiting app publishes
	awaitGuests(t, b, "seat-1", 2, 5*time.Second)
	if h := b.Health(testkit.Context(t)); h.Owner || !h.Ready || !isOwner(t, a) {
		t.Errorf("the second app is owner beside the first, or not ready: %+v", h)
	}
	began := time.Now()
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	testkit.Await(t, 2*time.Second, "the second app owns the shards", func() bool { return isOwner(t, b) })
	t.Logf("taken over %s after the stop began", time.Since(began))
	publish(t, b, "seat-1", "Cid")
	awaitGuests(t, b, "seat-1", 3, 5*time.Second)

	b.Kill()
	begin(t, c)
	alter(t, c, "update weir.instances set heartbeat_at = heartbeat_at - interval '4 s'") // so that the test is short
	publish(t, c, "seat-1", "Dan")
	awaitGuests(t, c, "seat-1", 4, 3*time.Second)
}
