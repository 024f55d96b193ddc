package app_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/app"
	"github.com/weir-es/weir/batching"
	"github.com/weir-es/weir/eventstore"
	"github.com/weir-es/weir/internal/testkit"
	"github.com/weir-es/weir/projection"
)

// What statements of the store say of themselves.
const (
	beatSQL   = "An instance says that it lives"
	lookSQL   = "The instances of a name that live"
	takeSQL   = "Take those of the locked leases"
	resumeSQL = "Where a consumer is, shard by shard"
)

// tap is on all statements of an instance, those of its heartbeats too: it counts them,
// and keeps some from reaching the server.
type tap struct {
	mu     sync.Mutex
	shut   []string
	counts map[string]int
	seen   func(sql string)
}

// cut keeps statements that say one of these from the server, and lets all others pass.
func (p *tap) cut(parts ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shut = parts
}

// count is how many statements with a first argument there were.
func (p *tap) count(part, first string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.counts[part+first]
}

func (p *tap) pass(ctx context.Context, sql string, args []any) context.Context {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.seen != nil {
		p.seen(sql)
	}
	for _, part := range []string{beatSQL, lookSQL, resumeSQL} {
		if strings.Contains(sql, part) && len(args) > 0 {
			p.counts[part+fmt.Sprint(args[0])]++
		}
	}
	if slices.ContainsFunc(p.shut, func(part string) bool { return strings.Contains(sql, part) }) {
		over, cancel := context.WithCancel(ctx)
		cancel()
		return over
	}
	return ctx
}

func (p *tap) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	return p.pass(ctx, data.SQL, data.Args)
}
func (p *tap) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
func (p *tap) TraceBatchStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	for _, q := range data.Batch.QueuedQueries {
		ctx = p.pass(ctx, q.SQL, q.Arguments)
	}
	return ctx
}
func (p *tap) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (p *tap) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

// tapped is an app with a tap on its way to the database.
func tapped(t *testing.T, config app.Config) (*app.App, *tap) {
	t.Helper()
	p := &tap{counts: map[string]int{}}
	pc, err := pgxpool.ParseConfig(config.Postgres)
	if err != nil {
		t.Fatal(err)
	}
	pc.ConnConfig.Tracer, pc.MaxConns = p, 16
	config.Pool, err = pgxpool.NewWithConfig(testkit.Context(t), pc)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(config.Pool.Close)
	return open(t, config), p
}

// ledger is a handler that is not idempotent: it notes what it is given, in the order
// in which it is given it. Before that it waits for the gate, if there is one.
func ledger(gate <-chan struct{}) projection.Handler {
	var store atomic.Pointer[eventstore.Store] // several apps may share a handler
	return projection.Handler{Name: "ledger",
		Setup: func(ctx context.Context, s *eventstore.Store) error {
			store.Store(s)
			_, err := s.Pool().Exec(ctx, s.Qualify("create table if not exists weir.ledger (at serial, stream text, version bigint)"))
			return err
		},
		Handle: func(ctx context.Context, tx pgx.Tx, e weir.Event, _ any) error {
			if gate != nil {
				<-gate
			}
			_, err := tx.Exec(ctx, store.Load().Qualify("insert into weir.ledger (stream, version) values ($1, $2)"), string(e.Stream), int64(e.Version))
			return err
		}}
}

func query[T any](t *testing.T, a *app.App, sql string, args ...any) (value T) {
	t.Helper()
	if err := a.Store.Pool().QueryRow(testkit.Context(t), a.Store.Qualify(sql), args...).Scan(&value); err != nil {
		t.Fatal(err)
	}
	return value
}

// inLedger fails unless every event is in the ledger once, those of a stream in the
// order of their versions.
func inLedger(t *testing.T, a *app.App) {
	t.Helper()
	if n := query[int](t, a, "select count(*) from weir.ledger"); n != query[int](t, a, "select count(*) from weir.events") {
		t.Errorf("%d entries for %d events", n, query[int](t, a, "select count(*) from weir.events"))
	}
	disorder := query[int](t, a, `select count(*) from (select version, row_number() over (partition by stream order by at) as n from weir.ledger) j where version <> n`)
	if disorder > 0 {
		t.Errorf("%d entries are not where their streams have them", disorder)
	}
}

func epochs(t *testing.T, a *app.App) int64 {
	t.Helper()
	return query[int64](t, a, "select coalesce(sum(epoch), 0) from weir.leases")
}

// pass lets real time pass, for what only time can show.
func pass(t *testing.T, d time.Duration) {
	ctx, cancel := context.WithTimeout(testkit.Context(t), d)
	defer cancel()
	<-ctx.Done()
}

// TestP7_ThreeLeaseLengthsAreOneTerm for an instance whose workers are all busy and
// whose connections are all taken: it says that it lives on a connection and a goroutine
// of their own. (wolverine#2625: never renewed; AxonFramework#5050: workers too busy to
// renew; clevis#215, river#347: taken away after a fixed time)
func TestP7_ThreeLeaseLengthsAreOneTerm(t *testing.T) {
	t.Parallel()
	config := service(t)
	config.Inbox = soon
	gate := make(chan struct{})
	release := sync.OnceFunc(func() { close(gate) })
	busy := config
	busy.Projections = append(slices.Clone(config.Projections), ledger(gate))
	a := open(t, busy)
	config.Projections = append(slices.Clone(config.Projections), ledger(nil))
	b := open(t, config)
	begin(t, a)
	t.Cleanup(release) // before it is stopped
	begin(t, b)
	balanced(t, 1, a, b)
	for n := range 20 {
		publish(t, a, weir.Stream("seat", fmt.Sprint(n)), "Ada")
	}
	for n := range 20 {
		awaitGuests(t, b, fmt.Sprint("seat-", n), 1, 5*time.Second)
	}
	before := epochs(t, b)
	full, cancel := context.WithTimeout(testkit.Context(t), 2*time.Second)
	defer cancel()
	var taken []*pgxpool.Conn
	for {
		conn, err := a.Store.Pool().Acquire(full)
		if err != nil {
			break
		}
		taken = append(taken, conn)
	}
	pass(t, 3*eventstore.Stale)
	if after := epochs(t, b); after != before {
		t.Errorf("leases were taken %d times", after-before)
	}
	if n := query[int](t, b, "select count(*) from weir.ledger"); len(taken) < 10 || n == 20 {
		t.Errorf("%d connections were taken, %d of 20 events are in the ledger: the test tests nothing", len(taken), n)
	}
	for _, conn := range taken {
		conn.Release()
	}
	release()
	publish(t, a, "seat-1", "Ben")
	testkit.Await(t, 20*time.Second, "all is in the ledger", func() bool { return query[int](t, b, "select count(*) from weir.ledger") == 21 })
	inLedger(t, b)
}

// TestP7_APausedOwnerWritesNothing when another has taken over, whether it can see that
// or not; and when it is heard again it gets its share again. (marten#4005, #4007: two
// that own one projection after a blip on the connection of a lock)
func TestP7_APausedOwnerWritesNothing(t *testing.T) {
	t.Parallel()
	for name, parts := range map[string][]string{"beats": {beatSQL}, "both": {beatSQL, lookSQL}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := service(t)
			config.Inbox = soon
			config.Projections = append(config.Projections, ledger(nil))
			a, wire := tapped(t, config)
			b := open(t, config)
			begin(t, a)
			begin(t, b)
			balanced(t, 1, a, b)
			wire.cut(parts...)
			alter(t, b, "update weir.instances set heartbeat_at = heartbeat_at - interval '4 s'") // so that the test is short
			for n := range 20 {
				publish(t, b, weir.Stream("seat", fmt.Sprint(n)), "Ada")
			}
			ownsAll(t, b, 10*time.Second)
			for n := range 20 {
				publish(t, b, weir.Stream("seat", fmt.Sprint(n)), "Ben")
			}
			for n := range 20 {
				awaitGuests(t, b, fmt.Sprint("seat-", n), 2, 5*time.Second)
			}
			if n := query[int](t, b, "select count(distinct owner) from weir.leases"); n != 1 {
				t.Errorf("%d own leases", n)
			}
			wire.cut()
			balanced(t, 1, a, b)
			for n := range 20 {
				publish(t, a, weir.Stream("seat", fmt.Sprint(n)), "Cid")
			}
			settle(t, b, 10*time.Second)
			settle(t, a, 10*time.Second)
			testkit.Await(t, 5*time.Second, "all is in the ledger", func() bool { return query[int](t, b, "select count(*) from weir.ledger") >= 60 })
			inLedger(t, b)
		})
	}
}

// TestP7_AFencedWorkerIsBegunAnewOnce, by whoever owns its leases then: nobody who was
// refused tries again and again. (kafka#19078: a fenced producer was never rebuilt and
// the balance never found its rest)
func TestP7_AFencedWorkerIsBegunAnewOnce(t *testing.T) {
	t.Parallel()
	config := service(t)
	config.Inbox = soon
	a, wire := tapped(t, config)
	begin(t, a)
	publish(t, a, "seat-1", "Ada")
	awaitGuests(t, a, "seat-1", 1, 5*time.Second)
	ownsAll(t, a, 5*time.Second)
	name := "seats"
	looks := func(n int) {
		t.Helper()
		last := wire.count(lookSQL, config.Name)
		testkit.Await(t, 10*time.Second, "it looks", func() bool { return wire.count(lookSQL, config.Name) >= last+n })
	}

	// Away for a moment, and free again.
	before := wire.count(resumeSQL, name)
	if before == 0 {
		t.Fatal("no worker has begun: the test tests nothing")
	}
	alter(t, a, "update weir.leases set owner = null, epoch = epoch + 1")
	publish(t, a, "seat-1", "Ben")
	awaitGuests(t, a, "seat-1", 2, 5*time.Second)
	ownsAll(t, a, 5*time.Second)
	looks(5)
	if n := wire.count(resumeSQL, name) - before; n != 1 {
		t.Errorf("after a fence the worker began %d times", n)
	}

	// Away for good.
	before = wire.count(resumeSQL, name)
	other := a.Store.Join(config.Name)
	defer other.Disconnect(context.Background())
	if _, err := other.Heartbeat(testkit.Context(t)); err != nil {
		t.Fatal(err)
	}
	alter(t, a, "update weir.instances set heartbeat_at = clock_timestamp() + interval '1 hour' where id = $1", [16]byte(other.ID()))
	alter(t, a, "update weir.leases set owner = $1, epoch = epoch + 1", [16]byte(other.ID()))
	looks(8)
	if n := wire.count(resumeSQL, name) - before; n != 0 {
		t.Errorf("the worker began %d times though others own everything", n)
	}
	if held, _ := leases(t, a); held != 0 {
		t.Errorf("it believes to hold %d leases", held)
	}
	if n := query[int](t, a, "select count(*) from weir.leases where owner = $1", [16]byte(other.ID())); n != 33 {
		t.Errorf("%d of 33 leases are where they were", n)
	}
}

// TestP7_ServerCrashesDuringTakeovers, in the middle of the statements that take leases:
// what is not taken is taken at a later look, and everything is applied once.
// (dbos-transact-py#716: a restart inside the loop of a recovery lost what was in it)
func TestP7_ServerCrashesDuringTakeovers(t *testing.T) {
	t.Parallel()
	ctx := testkit.Context(t)
	server := ownPostgres(t)
	config := service(t)
	config.Postgres, config.Inbox = server.URL(), soon
	b, wire := tapped(t, config)
	begin(t, b)
	c := newCrowd(t, b, 300, 10)
	sent := make(chan error, 1)
	go func() { sent <- c.send(ctx, b) }()
	takes := make(chan bool, 1)
	wire.mu.Lock()
	wire.seen = func(sql string) {
		if strings.Contains(sql, takeSQL) {
			select {
			case takes <- true:
			default:
			}
		}
	}
	wire.mu.Unlock()
	crashes := 0
	for range 3 {
		a := open(t, config)
		done := make(chan error, 1)
		go func() { done <- a.Run(ctx) }()
		balanced(t, 1, a, b)
		a.Kill()
		if err := <-done; !errors.Is(err, app.ErrKilled) {
			t.Errorf("ended with %v", err)
		}
		a.Close()
		select {
		case <-takes:
		default:
		}
		alter(t, b, "update weir.instances set heartbeat_at = heartbeat_at - interval '4 s'")
		select {
		case <-takes:
			crashes++
		case <-ctx.Done():
			t.Fatal("nobody takes over")
		}
		if err := server.Restart(ctx, "immediate"); err != nil {
			t.Fatal(err)
		}
		ownsAll(t, b, 20*time.Second)
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	settle(t, b, 20*time.Second)
	c.check(t, b)
	if crashes != 3 {
		t.Errorf("%d crashes during a takeover", crashes)
	}
}

// TestP7_WhatWasInHandGoesToTheNextOwner: what the dead one had received and not stored
// comes to whoever owns its shards now, and to nobody else, without waiting for a
// timeout of the broker. (wolverine#3590: who recovered was not who listened)
func TestP7_WhatWasInHandGoesToTheNextOwner(t *testing.T) {
	t.Parallel()
	config := service(t)
	slow := config
	slow.Inbox = batching.Fixed(batching.Window{Quiet: time.Minute, MaxAge: time.Minute, MaxItems: 1000})
	config.Inbox = soon
	a, b, outside := open(t, slow), open(t, config), outsider(t, config)
	done := make(chan error, 1)
	go func() { done <- a.Run(testkit.Context(t)) }()
	begin(t, b)
	balanced(t, 1, a, b)
	c := newCrowd(t, b, 300, 60)
	if err := c.send(testkit.Context(t), b); err != nil {
		t.Fatal(err)
	}
	var unacked int
	testkit.Await(t, 5*time.Second, "one has stored what it has, the other waits", func() (quiet bool) {
		var waiting int
		waiting, unacked = outside.state(t)
		stored := query[int](t, b, "select count(*) from weir.events")
		return waiting == 0 && unacked > 50 && stored > 50 && stored+unacked >= 300
	})
	a.Kill()
	if err := <-done; !errors.Is(err, app.ErrKilled) {
		t.Errorf("ended with %v", err)
	}
	alter(t, b, "update weir.instances set heartbeat_at = heartbeat_at - interval '4 s'")
	ownsAll(t, b, 5*time.Second)
	began := time.Now()
	settle(t, b, 10*time.Second)
	t.Logf("%d messages in hand were stored %s after the takeover", unacked, time.Since(began).Round(time.Millisecond))
	c.check(t, b)
}

// TestP7_WithoutADatabaseNothingIsKept: an owner that hears nothing of the database drops
// what its windows hold, whatever hangs in it; the next owner stores it within seconds,
// and the old one does not when it is well again.
func TestP7_WithoutADatabaseNothingIsKept(t *testing.T) {
	t.Parallel()
	config := service(t)
	slow := config
	slow.Inbox = batching.Fixed(batching.Window{Quiet: time.Minute, MaxAge: time.Minute, MaxItems: 1000})
	config.Inbox = soon
	a := launch(t, slow)
	b, outside := open(t, config), outsider(t, config)
	begin(t, b)
	balanced(t, 1, a.App, b)
	c := newCrowd(t, b, 300, 60)
	if err := c.send(testkit.Context(t), b); err != nil {
		t.Fatal(err)
	}
	var unacked int
	testkit.Await(t, 5*time.Second, "one has stored what it has, the other waits", func() bool {
		var waiting int
		waiting, unacked = outside.state(t)
		stored := query[int](t, b, "select count(*) from weir.events")
		return waiting == 0 && unacked > 50 && stored+unacked >= 300
	})
	a.brake.hold()
	began := time.Now()
	settle(t, b, 20*time.Second)
	t.Logf("%d messages in hand were stored %s after the database was away", unacked, time.Since(began).Round(time.Millisecond))
	c.check(t, b)
	a.brake.release()
	balanced(t, 1, a.App, b)
	if s := a.Stats(); s.Stored+s.Duplicates > 0 {
		t.Errorf("the old owner stored %d later", s.Stored+s.Duplicates)
	}
}

// TestP5_OneOrderForEachStreamThroughRebalances: instances come, leave and die while
// facts arrive; a handler is given the events of each stream in the order of their
// versions, once, whoever runs it. (eventhorizon#31, #47, #106: out of order per
// aggregate)
func TestP5_OneOrderForEachStreamThroughRebalances(t *testing.T) {
	t.Parallel()
	config := service(t)
	config.Inbox = soon
	config.Projections = append(config.Projections, ledger(nil))
	first := open(t, config)
	begin(t, first)
	c := newCrowd(t, first, 2000, 40)
	slices.SortFunc(c.sent, weir.CompareMessages) // as they were emitted
	sent := make(chan error, 1)
	go func() {
		for part := range slices.Chunk(c.sent, 20) {
			for _, m := range part {
				if err := first.Publisher().Send(testkit.Context(t), m); err != nil {
					sent <- err
					return
				}
			}
			if err := first.Publisher().Flush(testkit.Context(t)); err != nil {
				sent <- err
				return
			}
		}
		sent <- nil
	}()
	for round := range 6 {
		a := open(t, config)
		ctx, cancel := context.WithCancel(testkit.Context(t))
		done := make(chan error, 1)
		go func() { done <- a.Run(ctx) }()
		balanced(t, 1, first, a)
		stored := a.Stats().Stored
		testkit.Within(time.Second, func() bool { return a.Stats().Stored > stored+20 })
		if round%2 == 0 {
			a.Kill()
			<-done
			alter(t, first, "update weir.instances set heartbeat_at = heartbeat_at - interval '4 s'")
		} else if cancel(); <-done != nil {
			t.Error("it did not stop cleanly")
		}
		cancel()
		ownsAll(t, first, 10*time.Second)
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	settle(t, first, 20*time.Second)
	c.check(t, first)
	inLedger(t, first)
}

// TestP7_AnOldLookTakesNothing and gives nothing away: who holds a lease is looked at
// again where it changes. (dbos-transact-py#742: a list of what to recover was worked
// off after its owner had changed)
func TestP7_AnOldLookTakesNothing(t *testing.T) {
	t.Parallel()
	a := open(t, service(t))
	ctx := testkit.Context(t)
	join := func(name string) *eventstore.Instance {
		i := a.Store.Join(name)
		t.Cleanup(func() { i.Disconnect(context.Background()) })
		if _, err := i.Heartbeat(ctx); err != nil {
			t.Fatal(err)
		}
		return i
	}
	x, y, z := join("app"), join("app"), join("app")
	all := []weir.Shard{0, 1, 2}
	claim := func(i *eventstore.Instance, want int) []eventstore.Lease {
		t.Helper()
		got, err := i.Claim(ctx, "shards", all)
		if err != nil || len(got) != want {
			t.Errorf("claimed %v, %v; want %d leases", got, err, want)
		}
		return got
	}
	olds := claim(x, 3)
	if err := x.Give(ctx, "shards", olds); err != nil {
		t.Fatal(err)
	}
	look, err := z.Look(ctx, []string{"shards"}) // everything is free
	if err != nil || len(look.Holdings) != 3 || look.Holdings[0].Owner != (weir.ID{}) {
		t.Fatalf("%+v, %v", look, err)
	}
	claim(y, 3)
	claim(z, 0)
	if err := y.Give(ctx, "shards", olds); err != nil { // with epochs that were another's
		t.Fatal(err)
	}
	if err := x.Give(ctx, "shards", olds); err != nil {
		t.Fatal(err)
	}
	if n, err := y.Heartbeat(ctx); err != nil || n != 3 {
		t.Errorf("the owner has %d of 3 leases, %v", n, err)
	}
}
