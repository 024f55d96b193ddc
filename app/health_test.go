package app_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/app"
	"github.com/weir-es/weir/internal/testkit"
	"github.com/weir-es/weir/projection"
)

func health(t *testing.T, a *app.App) app.Health {
	t.Helper()
	ctx, cancel := context.WithTimeout(testkit.Context(t), 5*time.Second)
	defer cancel()
	return a.Health(ctx)
}

// TestHealthOfAStuckProjection: it is behind, it is not ready, and it says why; and
// when it moves again, all is well. (marten#4961: second witness)
// (KurrentDB#1303: a projection buffered and nobody could see that it stood still)
func TestHealthOfAStuckProjection(t *testing.T) {
	t.Parallel()
	config := service(t)
	config.Inbox = soon
	a := open(t, config)
	begin(t, a)
	publish(t, a, "seat-1", "Ada")
	awaitGuests(t, a, "seat-1", 1, 5*time.Second)
	testkit.Await(t, 5*time.Second, "it is ready", func() bool { return health(t, a).Ready })
	alter(t, a, "alter table weir.view_seats rename to view_away")
	publish(t, a, "seat-1", "Ben")
	testkit.Await(t, 5*time.Second, "it says that it is stuck", func() bool {
		h := health(t, a)
		return !h.Ready && h.Alive && h.Behind["seats"].Positions > 0 && h.Behind["guests"].Positions == 0 &&
			strings.Contains(strings.Join(h.Problems, "\n"), "view_seats")
	})
	if lag := health(t, a).Behind["seats"]; lag.Seconds < 0 || lag.Seconds > 10 {
		t.Errorf("it is behind by %+v", lag)
	}
	alter(t, a, "alter table weir.view_away rename to view_seats")
	testkit.Await(t, 8*time.Second, "it is ready again", func() bool {
		h := health(t, a)
		return h.Ready && h.Behind["seats"].Positions == 0
	})
	awaitGuests(t, a, "seat-1", 2, time.Second)
}

// TestHealthOfAParkedStream: what is parked is seen, also after a restart, when
// nobody's counters remember it.
func TestHealthOfAParkedStream(t *testing.T) {
	t.Parallel()
	config := service(t)
	config.Inbox = soon
	config.Projections = append(config.Projections, projection.Handler{Name: "picky",
		Handle: func(_ context.Context, _ pgx.Tx, _ weir.Event, value any) error {
			if value.(held).Guest == "poison" {
				return errors.New("not this one")
			}
			return nil
		}})
	for round := range 2 {
		a := open(t, config)
		stop := begin(t, a)
		if round == 0 {
			publish(t, a, "seat-1", "poison")
			publish(t, a, "seat-2", "Ada")
		}
		testkit.Await(t, 5*time.Second, "it is parked", func() bool {
			parked, err := a.Store.Parked(testkit.Context(t), "picky")
			return err == nil && len(parked) == 1
		})
		settle(t, a, 5*time.Second)
		text, err := json.Marshal(health(t, a))
		if err != nil || !strings.Contains(strings.ToLower(string(text)), "parked") {
			t.Errorf("start %d: health does not speak of what is parked: %s, %v", round+1, text, err)
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestHealthAfterAnOutage of the database that came while nothing was to be done:
// the trouble is over when it is over, not when the next event comes.
func TestHealthAfterAnOutage(t *testing.T) {
	t.Parallel()
	ctx := testkit.Context(t)
	server := ownPostgres(t)
	config := service(t)
	config.Postgres, config.Inbox = server.URL(), soon
	a := open(t, config)
	begin(t, a)
	for round := range 2 {
		publish(t, a, "seat-1", "Ada")
		awaitGuests(t, a, "seat-1", round+1, 5*time.Second)
		if err := server.Stop(ctx, "fast"); err != nil {
			t.Fatal(err)
		}
		testkit.Await(t, 5*time.Second, "it is not ready", func() bool {
			h := health(t, a)
			return h.Alive && !h.Ready && len(h.Problems) > 1
		})
		if err := server.Resume(ctx); err != nil {
			t.Fatal(err)
		}
		if !testkit.Within(6*time.Second, func() bool { return health(t, a).Ready }) {
			t.Fatalf("the database is back, and health still says %+v", health(t, a))
		}
	}
}

// TestHealthWithoutABroker and when it is back.
func TestHealthWithoutABroker(t *testing.T) {
	t.Parallel()
	server := ownNATS(t)
	config := service(t)
	config.NATS, config.Inbox = server.URL(), soon
	a := open(t, config)
	begin(t, a)
	testkit.Await(t, 5*time.Second, "it is ready", func() bool { return health(t, a).Ready })
	server.Stop()
	testkit.Await(t, 8*time.Second, "it is not ready", func() bool { h := health(t, a); return h.Alive && !h.Ready })
	if err := server.Resume(testkit.Context(t)); err != nil {
		t.Fatal(err)
	}
	testkit.Await(t, 8*time.Second, "it is ready again", func() bool { return health(t, a).Ready })
}

// TestHealthOfAnAppWithoutProjections: it stores facts, and owns the shards.
func TestHealthOfAnAppWithoutProjections(t *testing.T) {
	t.Parallel()
	config := service(t)
	config.Inbox, config.Projections = soon, nil
	a := open(t, config)
	if h := health(t, a); !h.Alive || h.Leases != 0 || h.Shared != 32 {
		t.Errorf("before Run: %+v", h)
	}
	begin(t, a)
	publish(t, a, "seat-1", "Ada")
	settle(t, a, 5*time.Second)
	ownsAll(t, a, 3*time.Second)
	if c, err := a.Store.Counts(testkit.Context(t)); err != nil || c.Events != 1 {
		t.Errorf("%d events after Settle, %v", c.Events, err)
	}
}

// TestSettleReturns when there is nothing to wait for any more.
func TestSettleReturns(t *testing.T) {
	t.Parallel()
	config := service(t)
	a := open(t, config)
	stop := begin(t, a)
	publish(t, a, "seat-1", "Ada")
	gone, cancel := context.WithCancel(testkit.Context(t))
	cancel()
	if err := a.Settle(gone); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that has ended: %v", err)
	}
	done := make(chan error, 1)
	go func() { done <- a.Settle(testkit.Context(t)) }()
	a.Kill()
	if err := <-done; err != nil && !errors.Is(err, app.ErrKilled) {
		t.Errorf("when the app is killed: %v", err)
	}
	stop()
	if err := a.Settle(testkit.Context(t)); err == nil {
		t.Error("a killed app says that it is settled")
	}
	a.Close()
	if err := a.Settle(testkit.Context(t)); err == nil {
		t.Error("a closed app says that it is settled")
	}
	if h := health(t, a); h.Alive || h.Ready {
		t.Errorf("a closed app says %+v", h)
	}
	if err := a.Run(testkit.Context(t)); err == nil {
		t.Error("an app ran twice")
	}
}

// TestNewSaysWhereItLooked: with a wrong port it fails within ConnectTimeout, with
// the address and without the password.
func TestNewSaysWhereItLooked(t *testing.T) {
	t.Parallel()
	nobody, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := nobody.Addr().String()
	nobody.Close()
	for name, change := range map[string]func(*app.Config){
		"postgres": func(c *app.Config) { c.Postgres = "postgres://weir:s3cr3t@" + port + "/weir?sslmode=disable" },
		"nats":     func(c *app.Config) { c.NATS = "nats://weir:s3cr3t@" + port },
		"token":    func(c *app.Config) { c.NATS = "nats://s3cr3t@" + port },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := service(t)
			config.ConnectTimeout = 500 * time.Millisecond
			change(&config)
			began := time.Now()
			a, err := app.New(testkit.Context(t), config)
			if err == nil {
				a.Close()
				t.Fatal("it was opened")
			}
			if text := err.Error(); !strings.Contains(text, port) || strings.Contains(text, "s3cr3t") || time.Since(began) > 3*time.Second {
				t.Errorf("after %s: %v", time.Since(began), err)
			}
		})
	}
}

// TestNewWaitsForServers that come up later.
func TestNewWaitsForServers(t *testing.T) {
	t.Parallel()
	ctx := testkit.Context(t)
	db, bus := ownPostgres(t), ownNATS(t)
	if err := db.Stop(ctx, "fast"); err != nil {
		t.Fatal(err)
	}
	bus.Stop()
	var said logs
	config := service(t)
	config.Postgres, config.NATS, config.Logger, config.Inbox = db.URL(), bus.URL(), said.logger(), soon
	opened := make(chan *app.App, 1)
	go func() {
		a, err := app.New(ctx, config)
		if err != nil {
			t.Error(err)
		}
		opened <- a
	}()
	testkit.Await(t, 5*time.Second, "it says that it waits", func() bool { return said.has("waiting for PostgreSQL") })
	if err := db.Resume(ctx); err != nil {
		t.Fatal(err)
	}
	if err := bus.Resume(ctx); err != nil {
		t.Fatal(err)
	}
	a := <-opened
	if a == nil {
		return
	}
	t.Cleanup(a.Close)
	begin(t, a)
	publish(t, a, "seat-1", "Ada")
	awaitGuests(t, a, "seat-1", 1, 5*time.Second)
	if said.has("password") || said.has(passwordOf(t, db.URL())) {
		t.Error("the password was logged")
	}
}

func passwordOf(t *testing.T, address string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	password, _ := u.User.Password()
	return password
}

// TestAppNeedsNoRightToCreate once an administrator has started it.
// (modernice/goes v0.9)
func TestAppNeedsNoRightToCreate(t *testing.T) {
	t.Parallel()
	config := service(t)
	config.Inbox = soon
	admin := open(t, config)
	role := "dml_" + strings.ToLower(weir.NewID().String())
	schema := pgx.Identifier{config.Name}.Sanitize()
	for _, sql := range []string{
		"create role " + role + " login password 'secret'",
		"grant usage on schema " + schema + " to " + role,
		"grant select, insert, update, delete on all tables in schema " + schema + " to " + role,
		"grant usage, select on all sequences in schema " + schema + " to " + role,
	} {
		if _, err := admin.Store.Pool().Exec(testkit.Context(t), sql); err != nil {
			t.Fatal(err)
		}
	}
	u, err := url.Parse(config.Postgres)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(role, "secret")
	config.Postgres = u.String()
	a := open(t, config)
	begin(t, a)
	publish(t, a, "seat-1", "Ada")
	settle(t, a, 5*time.Second)
	awaitGuests(t, a, "seat-1", 1, time.Second)
}

// ours are the goroutines of the library and of its clients, but for the servers
// and the tests.
func ours() (all []string) {
	buffer := make([]byte, 8<<20)
	buffer = buffer[:runtime.Stack(buffer, true)]
	for _, one := range strings.Split(string(buffer), "\n\n") {
		if strings.Contains(one, "nats-server") || strings.Contains(one, "testing.tRunner") {
			continue
		}
		for _, name := range []string{"weir-es/weir/", "jackc/pgx", "puddle", "nats.go."} {
			if strings.Contains(one, name) {
				all = append(all, one)
				break
			}
		}
	}
	return all
}

// TestCloseLeavesNothingBehind, however the app ended. It does not run in parallel,
// so that what it sees is its own.
func TestCloseLeavesNothingBehind(t *testing.T) {
	config := service(t)
	config.Inbox = soon
	before := len(ours())
	for name, finish := range map[string]func(a *app.App, stop func() error){
		"never run":     func(*app.App, func() error) {},
		"stopped":       func(_ *app.App, stop func() error) { stop() },
		"killed":        func(a *app.App, stop func() error) { a.Kill(); stop() },
		"just closed":   func(a *app.App, stop func() error) { a.Close(); stop() },
		"second waited": func(_ *app.App, stop func() error) { stop() },
	} {
		a, err := app.New(testkit.Context(t), config)
		if err != nil {
			t.Fatal(err)
		}
		stop := func() error { return nil }
		if name != "never run" {
			ctx, cancel := context.WithCancel(testkit.Context(t))
			done := make(chan error, 1)
			go func() { done <- a.Run(ctx) }()
			publish(t, a, "seat-1", "Ada")
			stop = func() error { cancel(); return <-done }
		}
		finish(a, stop)
		a.Close()
		a.Close()
		if !testkit.Within(3*time.Second, func() bool { return len(ours()) <= before }) {
			t.Errorf("%s: %d goroutines are left:\n%s", name, len(ours())-before, strings.Join(ours(), "\n\n"))
		}
	}
	if got := fmt.Sprint(len(ours())); got != fmt.Sprint(before) {
		t.Logf("%s goroutines at the end, %d at the start", got, before)
	}
}
