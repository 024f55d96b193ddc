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

// leases is how many leases an app holds, and of how many.
func leases(t *testing.T, a *app.App) (held, all int) {
	h := a.Health(testkit.Context(t))
	return h.Leases, h.Shared
}

// ownsAll waits until an app holds all leases.
func ownsAll(t *testing.T, a *app.App, limit time.Duration) {
	t.Helper()
	testkit.Await(t, limit, "it owns all leases", func() bool {
		held, all := leases(t, a)
		return held == all
	})
}

// balanced waits until the leases of two kinds, 32 shards and some views, are spread
// evenly over apps.
func balanced(t *testing.T, views int, apps ...*app.App) {
	t.Helper()
	k := len(apps)
	testkit.Await(t, 40*time.Second, "the leases are spread evenly", func() bool {
		sum := 0
		for _, a := range apps {
			held, _ := leases(t, a)
			if held > (32+k-1)/k+(views+k-1)/k {
				return false
			}
			sum += held
		}
		return sum == 32+views
	})
}

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
			ownsAll(t, a, 5*time.Second)
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

// TestP8_TwoAppsThatStartTogether share everything, each lease held by one.
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
		balanced(t, 7, a, b)
		if err := errors.Join(stopA(), stopB()); err != nil {
			t.Fatal(err)
		}
	}
}

// TestP7_InstancesTakeOver at once from one that stops, and from one that died, as soon
// as its silence is long enough; what everybody appends meanwhile is applied once.
func TestP7_InstancesTakeOver(t *testing.T) {
	t.Parallel()
	config := service(t)
	config.Inbox = soon
	a, b, c := open(t, config), open(t, config), open(t, config)
	guests := 0
	more := func(through *app.App, limit time.Duration) {
		t.Helper()
		guests++
		for n := range 20 {
			publish(t, through, weir.StreamID(fmt.Sprint("seat-", n)), fmt.Sprint(guests))
		}
		for n := range 20 {
			awaitGuests(t, through, fmt.Sprint("seat-", n), guests, limit)
		}
	}
	stop := begin(t, a)
	more(a, 5*time.Second)
	ownsAll(t, a, time.Second)
	begin(t, b)
	balanced(t, 1, a, b)
	more(b, 5*time.Second)

	began := time.Now()
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	ownsAll(t, b, 2*time.Second)
	t.Logf("taken over %s after the stop began", time.Since(began))
	more(b, 5*time.Second)

	begin(t, c)
	balanced(t, 1, b, c)
	b.Kill()
	alter(t, c, "update weir.instances set heartbeat_at = heartbeat_at - interval '4 s'") // so that the test is short
	more(c, 5*time.Second)
	ownsAll(t, c, 5*time.Second)
}

// TestP7_NothingMovesAtRest: leases that are spread evenly stay where they are, also
// when one instance is silent for one look.
func TestP7_NothingMovesAtRest(t *testing.T) {
	t.Parallel()
	config := service(t)
	a, b, c := open(t, config), open(t, config), open(t, config)
	begin(t, a)
	begin(t, b)
	begin(t, c)
	balanced(t, 1, a, b, c)
	epochs := func() (sum int64) {
		row := a.Store.Pool().QueryRow(testkit.Context(t), a.Store.Qualify("select sum(epoch) from weir.leases"))
		if err := row.Scan(&sum); err != nil {
			t.Fatal(err)
		}
		return sum
	}
	before := epochs()
	for range 3 {
		beats := beatsOf(t, a)
		alter(t, a, "update weir.instances set heartbeat_at = heartbeat_at - interval '6 s'") // until the next beat
		testkit.Await(t, 5*time.Second, "all have beaten again", func() bool { return beatsOf(t, a).After(beats) })
	}
	if after := epochs(); after != before {
		t.Errorf("leases were taken %d times", after-before)
	}
}

// beatsOf is the oldest of the last beats.
func beatsOf(t *testing.T, a *app.App) (at time.Time) {
	t.Helper()
	row := a.Store.Pool().QueryRow(testkit.Context(t), a.Store.Qualify("select min(heartbeat_at) from weir.instances"))
	if err := row.Scan(&at); err != nil {
		t.Fatal(err)
	}
	return at
}
