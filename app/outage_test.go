package app_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/app"
	"github.com/weir-es/weir/batching"
	"github.com/weir-es/weir/internal/testkit"
)

// TestP1_GracefulStopLosesNothing: what was delivered and still waits in its window
// is stored and acknowledged before Run returns.
func TestP1_GracefulStopLosesNothing(t *testing.T) {
	t.Parallel()
	config := service(t)
	config.Inbox = batching.Fixed(batching.Window{Quiet: time.Minute, MaxAge: time.Minute, MaxItems: 1000})
	a, b := open(t, config), outsider(t, config)
	stop := begin(t, a)
	c := newCrowd(t, a, 60, 5)
	if err := c.send(testkit.Context(t), a); err != nil {
		t.Fatal(err)
	}
	testkit.Await(t, 5*time.Second, "all are in their windows", func() bool {
		waiting, unacked := b.state(t)
		return waiting == 0 && unacked >= 60
	})
	if counts, err := a.Store.Counts(testkit.Context(t)); err != nil || counts.Events != 0 {
		t.Fatalf("%d events are stored already, %v: the test tests nothing", counts.Events, err)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if counts, err := a.Store.Counts(testkit.Context(t)); err != nil || counts.Events != 60 {
		t.Errorf("%d of 60 events are stored after the stop, %v", counts.Events, err)
	}
	testkit.Await(t, 2*time.Second, "all are acknowledged", func() bool {
		_, unacked := b.state(t)
		return unacked == 0
	})
	next := open(t, config)
	begin(t, next)
	settle(t, next, 5*time.Second)
	c.check(t, next)
	if s := next.Stats(); s.Stored+s.Duplicates > 0 {
		t.Errorf("after a clean stop %d messages came again", s.Stored+s.Duplicates)
	}
}

// TestP1P4_KilledInTheMiddle many times, with disorder and duplicates: nothing is
// lost and nothing is applied twice. (KurrentDB#1732, watermill#671)
func TestP1P4_KilledInTheMiddle(t *testing.T) {
	t.Parallel()
	config := service(t)
	config.Inbox = batching.Fixed(batching.Window{Quiet: 20 * time.Millisecond, MaxAge: 60 * time.Millisecond, MaxItems: 7})
	producer := open(t, config)
	c := newCrowd(t, producer, 1000, 20)
	sent := make(chan error, 1)
	go func() { sent <- c.send(testkit.Context(t), producer) }()
	for round := range 6 {
		a := open(t, config)
		done := make(chan error, 1)
		go func() { done <- a.Run(testkit.Context(t)) }()
		testkit.Within(time.Second, func() bool { return a.Stats().Stored > int64(20+30*round) })
		a.Kill()
		if err := <-done; !errors.Is(err, app.ErrKilled) {
			t.Errorf("a killed app ended with %v", err)
		}
		expire(t, producer)
		a.Close()
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	a := open(t, config)
	begin(t, a)
	settle(t, a, 20*time.Second)
	c.check(t, a)
}

// TestP1_BrokerRestarts while facts are published and stored.
func TestP1_BrokerRestarts(t *testing.T) {
	t.Parallel()
	server := ownNATS(t)
	config := service(t)
	config.NATS, config.Inbox = server.URL(), soon
	a := open(t, config)
	begin(t, a)
	c := newCrowd(t, a, 600, 10)
	sent := make(chan error, 1)
	go func() { sent <- c.send(testkit.Context(t), a) }()
	for round := range 3 {
		testkit.Within(500*time.Millisecond, func() bool { return a.Stats().Stored > int64(50*(round+1)) })
		if err := server.Restart(testkit.Context(t)); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	settle(t, a, 20*time.Second)
	c.check(t, a)
}

// TestP1_PostgresAway for a second, twice, once by a crash: everything goes on by
// itself. (dbos-transact-py#716, marten#3503)
// (KurrentDB#1602: only the first drop was reported)
func TestP1_PostgresAway(t *testing.T) {
	t.Parallel()
	ctx := testkit.Context(t)
	server := ownPostgres(t)
	config := service(t)
	config.Postgres, config.Inbox = server.URL(), soon
	a := open(t, config)
	begin(t, a)
	c := newCrowd(t, a, 600, 10)
	sent := make(chan error, 1)
	go func() { sent <- c.send(ctx, a) }()
	for _, mode := range []string{"fast", "immediate"} {
		before := a.Stats().Stored
		testkit.Within(time.Second, func() bool { return a.Stats().Stored > before+50 })
		if err := server.Stop(ctx, mode); err != nil {
			t.Fatal(err)
		}
		away, cancel := context.WithTimeout(ctx, time.Second)
		<-away.Done()
		cancel()
		if h := a.Health(ctx); h.Ready || !h.Alive {
			t.Errorf("without a database: %+v", h)
		}
		if err := server.Resume(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	settle(t, a, 20*time.Second)
	c.check(t, a)
}

// TestP2_IngestStreamDeleted under a running app: what the broker had and was not
// stored is lost with it; the app goes on with what is published afterwards.
// (centrifugo#1166, #972)
func TestP2_IngestStreamDeleted(t *testing.T) {
	t.Parallel()
	config := service(t)
	config.Inbox = soon
	a, b := open(t, config), outsider(t, config)
	begin(t, a)
	publish(t, a, "seat-1", "Ada")
	awaitGuests(t, a, "seat-1", 1, 5*time.Second)
	began := time.Now()
	if err := b.js.DeleteStream(testkit.Context(t), b.name); err != nil {
		t.Fatal(err)
	}
	publish(t, a, "seat-1", "Ben")
	publish(t, a, "seat-2", "Cid")
	awaitGuests(t, a, "seat-1", 2, 20*time.Second)
	awaitGuests(t, a, "seat-2", 1, 20*time.Second)
	t.Logf("stored %s after the stream was deleted", time.Since(began).Round(time.Millisecond))
	settle(t, a, 8*time.Second)
	testkit.Await(t, 5*time.Second, "it is ready again", func() bool { return a.Health(testkit.Context(t)).Ready })
}

// TestP2_ConsumersDeleted under a running app lose nothing at all.
func TestP2_ConsumersDeleted(t *testing.T) {
	t.Parallel()
	config := service(t)
	config.Inbox = batching.Fixed(batching.Window{Quiet: 100 * time.Millisecond, MaxAge: 200 * time.Millisecond})
	a, b := open(t, config), outsider(t, config)
	begin(t, a)
	c := newCrowd(t, a, 200, 10)
	sent := make(chan error, 1)
	go func() { sent <- c.send(testkit.Context(t), a) }()
	testkit.Within(300*time.Millisecond, func() bool { _, unacked := b.state(t); return unacked > 20 })
	stream, err := b.js.Stream(testkit.Context(t), b.name)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for name := range stream.ConsumerNames(testkit.Context(t)).Name() {
		names = append(names, name)
	}
	for _, name := range names {
		if err := stream.DeleteConsumer(testkit.Context(t), name); err != nil {
			t.Fatal(err)
		}
	}
	if len(names) != a.Store.Shards() {
		t.Errorf("deleted %d consumers: the test tests nothing", len(names))
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	settle(t, a, 15*time.Second)
	c.check(t, a)
}

// TestP1_FullBroker is back-pressure: publishing waits and nothing is lost.
func TestP1_FullBroker(t *testing.T) {
	t.Parallel()
	config := service(t)
	config.Inbox, config.MaxIngestBytes = soon, 64<<10
	producer := open(t, config)
	b := outsider(t, config)
	c := newCrowd(t, producer, 600, 10)
	sent := make(chan error, 1)
	go func() { sent <- c.send(testkit.Context(t), producer) }()
	testkit.Await(t, 5*time.Second, "the broker is full", func() bool {
		stream, err := b.js.Stream(testkit.Context(t), b.name)
		return err == nil && stream.CachedInfo().State.Bytes > 60<<10
	})
	select {
	case err := <-sent:
		t.Fatalf("more was sent than the broker can hold: %v", err)
	default:
	}
	a := open(t, config)
	begin(t, a)
	// Relief comes every ten seconds; the test does it sooner.
	testkit.Await(t, 20*time.Second, "everything is sent", func() bool {
		select {
		case err := <-sent:
			return err == nil
		default:
			return false
		}
	})
	settle(t, a, 10*time.Second)
	c.check(t, a)
}

// TestDisorderedDoors: a decision and facts of one stream come by both doors at
// once, and every reader sees all of them.
func TestDisorderedDoors(t *testing.T) {
	t.Parallel()
	config := service(t)
	config.Inbox = soon
	a := open(t, config)
	begin(t, a)
	ctx := testkit.Context(t)
	for range 20 {
		publish(t, a, "seat-1", "Ada")
		m, err := a.Message("seat-1", held{"Ben"})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 { // by both doors
			if _, err := a.Store.Append(ctx, m.Stream, weir.AnyVersion, m); err != nil {
				t.Fatal(err)
			}
			if err := a.Publisher().Publish(ctx, m); err != nil && !errors.Is(err, nats.ErrTimeout) {
				t.Fatal(err)
			}
		}
	}
	settle(t, a, 10*time.Second)
	awaitGuests(t, a, "seat-1", 40, time.Second)
	if g, err := guests.Get(ctx, a.Store, "Ben"); err != nil || g.Seats != 20 {
		t.Errorf("Ben has %d seats, %v", g.Seats, err)
	}
}
