package transport

import (
	"context"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/devserver"
)

// stranger is an owner that was stopped: the broker has its request, and fills it, and
// nobody looks at what it gets.
type stranger struct {
	nats *nats.Conn
	got  *nats.Subscription
}

func newStranger(t *testing.T, server *devserver.NATS) *stranger {
	t.Helper()
	nc, err := nats.Connect(server.URL())
	must(t, err)
	t.Cleanup(nc.Close)
	got, err := nc.SubscribeSync(nc.NewInbox())
	must(t, err)
	return &stranger{nc, got}
}

// ask has the broker give it the next messages of shard 0.
func (s *stranger) ask(t *testing.T, c *Conn, batch int, expires time.Duration) {
	t.Helper()
	request, err := json.Marshal(map[string]any{"batch": batch, "expires": expires})
	must(t, err)
	must(t, s.nats.PublishRequest("$JS.API.CONSUMER.MSG.NEXT."+c.names.stream()+"."+c.names.consumer(0), s.got.Subject, request))
	must(t, s.nats.Flush())
}

func (s *stranger) has(t *testing.T) (n int) {
	t.Helper()
	must(t, s.nats.Flush())
	n, _, err := s.got.Pending()
	must(t, err)
	return n
}

// TestP7_NothingGoesToAnOwnerThatWasStopped: its requests outlive it at the broker; its
// successor gets everything, in order, and within seconds, not after AckWait.
// (nats-server#4627, #4716: no redelivery until AckWait)
func TestP7_NothingGoesToAnOwnerThatWasStopped(t *testing.T) {
	server, c := declared(t, Config{Shards: 1, AckWait: time.Hour})
	old := newStranger(t, server)
	old.ask(t, c, 1000, pullExpires)
	r, began := receive(t, c, 0), time.Now()
	sent := publish(t, c, 100)
	got := r.take(100)
	checkIDs(t, got, sent)
	if took := time.Since(began); took > 2*pullExpires {
		t.Errorf("the last came after %s", took)
	}
	if n := old.has(t); n < 100 {
		t.Fatalf("the old owner got %d: the test tests nothing", n)
	}
	ack(t, got)
	awaitDone(t, c)
}

// TestP7_WhatAZombieGetsComesBack: one that asks again after it was taken over, until it
// notices, gets some messages, in the middle or at the end; they come to the owner
// within seconds, and nothing that it has comes again.
func TestP7_WhatAZombieGetsComesBack(t *testing.T) {
	for name, batch := range map[string]int{"in the middle": 5, "at the end": 1000} {
		t.Run(name, func(t *testing.T) {
			server, c := declared(t, Config{Shards: 1, AckWait: time.Hour})
			r := receive(t, c, 0)
			sent := publish(t, c, 1)
			got := r.take(1)
			zombie := newStranger(t, server)
			zombie.ask(t, c, batch, pullExpires)
			sent = append(sent, publish(t, c, 20)...)
			began := time.Now()
			got = append(got, r.take(20)...)
			if took := time.Since(began); took > 5*pullExpires {
				t.Errorf("the last came after %s", took)
			}
			if n := zombie.has(t); n == 0 {
				t.Fatal("the zombie got nothing: the test tests nothing")
			}
			slices.SortFunc(got, func(a, b *Delivery) int { return int(a.Sequence) - int(b.Sequence) })
			checkIDs(t, got, sent)
			ack(t, got)
			awaitDone(t, c)
			select {
			case d := <-r.got:
				t.Errorf("delivered again: %d", d.Sequence)
			default:
			}
		})
	}
}

// TestP7_ASessionLastsWhileNobodyInterferes: what looks for strays finds none where there
// are none, at rest and at work, or everything would come again and again.
func TestP7_ASessionLastsWhileNobodyInterferes(t *testing.T) {
	server, c := declared(t, Config{Shards: 1, Prefetch: 50})
	resets := watch(t, server, "$JS.API.CONSUMER.RESET.>")
	acked := receiveAll(t, c)
	for range 3 {
		count := len(publish(t, c, 500)) + acked()
		limit, cancel := context.WithTimeout(testContext(t), pullExpires)
		<-limit.Done()
		cancel()
		if n := acked(); n > count {
			t.Errorf("%d of %d were delivered", n, count)
		}
	}
	awaitDone(t, c)
	if n := resets(t); n > 1 {
		t.Errorf("%d resets", n)
	}
}

// watch counts what is published to a subject.
func watch(t *testing.T, server *devserver.NATS, subject string) (count func(t *testing.T) int) {
	t.Helper()
	nc, err := nats.Connect(server.URL())
	must(t, err)
	t.Cleanup(nc.Close)
	sub, err := nc.SubscribeSync(subject)
	must(t, err)
	must(t, nc.Flush())
	return func(t *testing.T) int {
		must(t, nc.Flush())
		n, _, err := sub.Pending()
		must(t, err)
		return n
	}
}

// TestP7_ALeaseThatEndsGivesEverythingBack: what was delivered and not acked is extended
// no longer, no ack of it is heard, and it comes to whoever is next.
func TestP7_ALeaseThatEndsGivesEverythingBack(t *testing.T) {
	server, c := declared(t, Config{Shards: 1, AckWait: 600 * time.Millisecond})
	sent := publish(t, c, 3)
	lease, end := context.WithCancel(testContext(t))
	got := make(chan *Delivery, 3)
	done := make(chan error, 1)
	go func() { done <- c.ReceiveWhile(testContext(t), lease, 0, func(d *Delivery) { got <- d }) }()
	first := []*Delivery{<-got, <-got, <-got}
	checkIDs(t, first, sent)
	end()
	must(t, <-done)
	acks := watch(t, server, "$JS.ACK.>")
	ack(t, first)
	next := receive(t, c, 0).take(3)
	checkIDs(t, next, sent)
	must(t, c.nats.Flush())
	if n := acks(t); n != 0 {
		t.Errorf("%d acks or extensions of a lease that has ended", n)
	}
	if err := c.ReceiveWhile(testContext(t), lease, weir.Shard(0), nil); err != nil {
		t.Errorf("without a lease: %v", err)
	}
}
