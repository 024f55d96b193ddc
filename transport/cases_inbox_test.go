package transport

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-es/weir"
)

// window makes the broker forget message ids soon, where it would take two minutes.
func window(t testing.TB, c *Conn, stream string, d time.Duration) {
	t.Helper()
	s, err := c.js.Stream(testContext(t), stream)
	must(t, err)
	config := s.CachedInfo().Config
	config.Duplicates = d
	_, err = c.js.UpdateStream(testContext(t), config)
	must(t, err)
}

// TestP3_TheBrokersWindowEnds, however often an id was repeated within it: then it stores
// the id again, and does not refuse who publishes again what was purged. Nobody here
// relies on it for more. (nats-server#7302, nats-server#5142: the window is not refreshed,
// or keeps out what is meant to come again; murmur#141: a duplicate is a success)
func TestP3_TheBrokersWindowEnds(t *testing.T) {
	c := logged(t, Config{})
	window(t, c, c.outflow().stream(), 200*time.Millisecond)
	e := event("order-1", 1)
	began := time.Now()
	repeats := 0
	for logStream(t, c).CachedInfo().State.LastSeq < 2 && time.Since(began) < patience {
		must(t, c.PublishEvents(testContext(t), e)) // that is stored, twice or not
		repeats++
	}
	if took := time.Since(began); repeats < 3 || took < 200*time.Millisecond || took > patience {
		t.Errorf("stored twice after %d repeats in %s: the test tests nothing", repeats, took)
	}
	must(t, logStream(t, c).Purge(testContext(t)))
	eventually(t, "it is published again after a purge", func() bool {
		must(t, c.PublishEvents(testContext(t), e))
		return logStream(t, c).CachedInfo().State.Msgs == 1
	})
	s := subscribe(t, c, Subscription{Name: "test"})
	if d := s.next(); d.Event.ID != e.ID || d.Event.Version != 1 {
		t.Errorf("received %+v", d.Event)
	}
}

// TestP5_TenDispatchersOfOneStream, each of which believes that it is the only one and
// publishes everything, over connections that break: the log stream has each event
// once and in the order of versions; and so do ten workers handle it, one at a time.
// (MassTransit#3512: parallel delivery broke the order of an outbox)
func TestP5_TenDispatchersOfOneStream(t *testing.T) {
	server := startServer(t)
	wire := startProxy(t, server.URL())
	c := connect(t, server, Config{})
	_, err := c.DeclareLog(testContext(t))
	must(t, err)
	var events []weir.Event
	for n := range 300 {
		events = append(events, event("order-1", n+1))
	}
	for n := range 150 { // the ids fall where the versions rise
		events[n].ID, events[299-n].ID = events[299-n].ID, events[n].ID
	}
	dispatch(t, wire, events)
	order := newFirsts(t)
	var atOnce atomic.Int32
	s := subscribe(t, c, Subscription{Name: "test", Workers: 10}, func(_ context.Context, d *Delivery) error {
		defer atOnce.Add(-1)
		if n := atOnce.Add(1); n > 1 {
			t.Errorf("%d workers handle one stream", n)
		}
		order.see(d.Event)
		return nil
	})
	for n := range events {
		if d := s.next(); d.Event.Version != weir.Version(n+1) {
			t.Fatalf("place %d has version %d", n, d.Event.Version)
		}
	}
	if n := logStream(t, c).CachedInfo().State.Msgs; n != 300 {
		t.Errorf("the log stream has %d messages", n)
	}
}

// dispatch publishes events over ten connections at once and cuts these.
func dispatch(t *testing.T, wire *proxy, events []weir.Event) {
	t.Helper()
	var group sync.WaitGroup
	var done atomic.Int32
	for range 10 {
		c, err := Connect(testContext(t), Config{URL: wire.url(), Namespace: "t", Shards: 4, reconnectWait: impatience, answerWait: 300 * time.Millisecond})
		must(t, err)
		t.Cleanup(c.Close)
		group.Go(func() {
			defer done.Add(1)
			if err := c.PublishEvents(testContext(t), events...); err != nil {
				t.Error(err)
			}
		})
	}
	cuts := 0
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for done.Load() == 0 && cuts < 20 {
		<-tick.C
		wire.cut()
		cuts++
	}
	group.Wait()
}

// TestP2_ConcurrentDeclarationsDestroyNothing, though they want different things and
// some of them are refused, by us and by the server: the stream, its consumers and what
// these have acknowledged are those of before. (nats-server#8491: a create that was
// rejected destroyed the state of what was there)
func TestP2_ConcurrentDeclarationsDestroyNothing(t *testing.T) {
	server, c := declared(t, Config{Shards: 3})
	_, err := c.DeclareLog(testContext(t))
	must(t, err)
	sent := publish(t, c, 60)
	acked := 0
	for shard := range weir.Shard(3) {
		r := receive(t, c, shard)
		for n := range sent {
			if sent[n].Stream.Shard(3) == shard {
				must(t, r.next().Ack())
				acked++
			}
		}
		must(t, r.end())
	}
	awaitDone(t, c)
	before := states(t, c)

	refused := declareAll(t, server.URL(), []Config{
		{Shards: 3}, {Shards: 3, AckWait: 7 * time.Second}, {Shards: 3, MaxAckPending: 99}, {Shards: 3, MaxBytes: 2 << 30},
		{Shards: 3, Replicas: 3}, {Shards: 5}, {Shards: 3, AckWait: 9 * time.Second, MaxAckPending: 3000},
	})
	if refused < 10 {
		t.Errorf("%d were refused, want those with replicas and with other shards: the test tests nothing", refused)
	}
	after := states(t, c)
	for name, was := range before {
		if is := after[name]; is != was {
			t.Errorf("%s is %+v, was %+v", name, is, was)
		}
	}
	if acked != 60 || len(before) != 4 || !backlog(t, c).IsDone() {
		t.Errorf("%d acknowledged, %+v, %+v", acked, before, backlog(t, c))
	}
}

// state is what a stream or a consumer must not lose.
type state struct {
	created time.Time
	floor   uint64 // acknowledged up to, or the last message
}

func states(t testing.TB, c *Conn) map[string]state {
	t.Helper()
	stream, err := c.js.Stream(testContext(t), c.names.stream())
	must(t, err)
	all := map[string]state{"stream": {stream.CachedInfo().Created, stream.CachedInfo().State.LastSeq}}
	for info := range stream.ListConsumers(testContext(t)).Info() {
		all[info.Name] = state{info.Created, info.AckFloor.Stream}
	}
	return all
}

// declareAll declares each of these several times at once, and returns how many were
// refused.
func declareAll(t testing.TB, url string, wants []Config) (refused int) {
	t.Helper()
	var group sync.WaitGroup
	errs := make(chan error, 100)
	start := make(chan struct{})
	for _, want := range wants {
		want.URL, want.Namespace, want.reconnectWait = url, "t", impatience
		c, err := Connect(testContext(t), want)
		must(t, err)
		t.Cleanup(c.Close)
		for range 5 {
			group.Go(func() {
				<-start
				errs <- c.Declare(testContext(t))
			})
		}
	}
	close(start)
	group.Wait()
	close(errs)
	for err := range errs {
		if errors.As(err, new(*DriftError)) || errors.As(err, new(*ShardsError)) {
			refused++
		} else {
			must(t, err)
		}
	}
	return refused
}

// TestP3_ClosingDeletesNothing: consumers have names that last, and neither the end of a
// Receive or a Subscribe nor a lost connection nor Close touches them, so what was
// acknowledged does not come again. (watermill#671, watermill#389: a consumer was deleted
// and made anew on close and on reconnect)
func TestP3_ClosingDeletesNothing(t *testing.T) {
	server, owner := declared(t, Config{Shards: 1})
	_, err := owner.DeclareLog(testContext(t))
	must(t, err)
	wire := startProxy(t, server.URL())
	var created []time.Time
	for round := range 4 {
		c, err := Connect(testContext(t), Config{URL: wire.url(), Namespace: "t", Shards: 1, reconnectWait: impatience})
		must(t, err)
		sent := publish(t, owner, 20)
		publishEvents(t, owner, 1, round*20+1, 20)
		r, s := receive(t, c, 0), subscribe(t, c, Subscription{Name: "test", Workers: 1})
		for n := range 20 {
			d := r.next()
			if d.Message.ID != sent[n].ID {
				t.Fatalf("round %d, place %d: received %s again", round, n, d.Message.Data)
			}
			_ = d.Ack()
			if e := s.next().Event; e.Version != weir.Version(round*20+n+1) {
				t.Fatalf("round %d, place %d: version %d", round, n, e.Version)
			}
			if n == 9 {
				wire.cut()
			}
		}
		eventually(t, "all is acknowledged", func() bool { return backlog(t, owner).IsDone() && pending(t, owner) == 0 })
		if round%2 == 0 { // in order, or not
			must(t, r.end())
			must(t, s.end())
		}
		c.Close()
		if err := s.end(); err != nil && !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
		shard, err := owner.js.Consumer(testContext(t), owner.names.stream(), owner.names.consumer(0))
		must(t, err)
		subscriber, err := logStream(t, owner).Consumer(testContext(t), "test")
		must(t, err)
		created = append(created, shard.CachedInfo().Created, subscriber.CachedInfo().Created)
	}
	for n, at := range created {
		if !at.Equal(created[n%2]) {
			t.Errorf("round %d has a consumer of %s, the first was of %s", n/2, at, created[n%2])
		}
	}
}

// pending is how much of the log stream the subscriber "test" has not acknowledged.
func pending(t testing.TB, c *Conn) int {
	t.Helper()
	consumer, err := logStream(t, c).Consumer(testContext(t), "test")
	must(t, err)
	return consumer.CachedInfo().NumAckPending + int(consumer.CachedInfo().NumPending)
}

// TestP9_AtTheCapOfOutstanding nothing stands still: where fewer may be unacknowledged
// than fail, the ones that fail are given up one by one and make room, and nothing is
// parked at the broker by a delayed NAK. (nats-server#4112, nats.go#968: a thousand
// delayed NAKs count as outstanding, and a consumer at its cap is idle)
func TestP9_AtTheCapOfOutstanding(t *testing.T) {
	server := startServer(t)
	c := connect(t, server, Config{MaxAckPending: 20})
	_, err := c.DeclareLog(testContext(t))
	must(t, err)
	listener := connect(t, server, Config{}).nats
	said, err := listener.SubscribeSync("$JS.ACK.>")
	must(t, err)
	must(t, said.SetPendingLimits(-1, -1))
	must(t, listener.Flush())

	var events []weir.Event
	for n := range 1000 {
		events = append(events, event(weir.Stream("order", strconv.Itoa(n)), 1))
	}
	must(t, c.PublishEvents(testContext(t), events...))
	must(t, c.PublishEvents(testContext(t), event("good-1", 1)))
	parked := 0
	var mu sync.Mutex
	s := subscribe(t, c, Subscription{Name: "test", Workers: 4}, func(_ context.Context, d *Delivery) error {
		if d.Event.Stream == "good-1" {
			return nil
		}
		if d.Failures < 1 {
			return fmt.Errorf("%s does not work", d.Event.Stream)
		}
		mu.Lock()
		defer mu.Unlock()
		parked++
		return nil
	})
	for range 1001 {
		s.next()
	}
	consumer, err := logStream(t, c).Consumer(testContext(t), "test")
	must(t, err)
	info := consumer.CachedInfo()
	if parked != 1000 || info.NumRedelivered > 0 || info.Config.MaxAckPending != 20 || len(info.Config.BackOff) > 0 {
		t.Errorf("%d parked by us, %+v", parked, info)
	}
	for range 1001 {
		m, err := said.NextMsgWithContext(testContext(t))
		must(t, err)
		if string(m.Data) != "+ACK" && string(m.Data) != "+WPI" {
			t.Fatalf("the broker is told %q", m.Data)
		}
	}
}
