package transport

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-es/weir"
)

// subscribed is a Subscribe that runs in the background.
type subscribed struct {
	t      testing.TB
	got    chan *Delivery
	result chan error
	stop   context.CancelFunc
}

// subscribe handles everything that comes, unless handle says otherwise.
func subscribe(t testing.TB, c *Conn, s Subscription, handle ...func(context.Context, *Delivery) error) *subscribed {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	r := &subscribed{t, make(chan *Delivery, 100_000), make(chan error, 1), stop}
	go func() {
		r.result <- c.Subscribe(ctx, s, func(ctx context.Context, d *Delivery) error {
			for _, h := range handle {
				if err := h(ctx, d); err != nil {
					return err
				}
			}
			r.got <- d
			return nil
		})
	}()
	t.Cleanup(func() { must(t, r.end()) })
	return r
}

func (r *subscribed) next() *Delivery {
	r.t.Helper()
	select {
	case d := <-r.got:
		return d
	case err := <-r.result:
		r.t.Fatalf("Subscribe returned: %v", err)
	case <-time.After(patience):
		r.t.Fatal("nothing was given")
	}
	return nil
}

// end stops the Subscribe and returns its error, once.
func (r *subscribed) end() error {
	r.stop()
	select {
	case err := <-r.result:
		r.result <- nil
		return err
	case <-time.After(patience):
		return errors.New("Subscribe did not return")
	}
}

// publishEvents publishes n events in each of some streams.
func publishEvents(t testing.TB, c *Conn, streams, from, n int) {
	t.Helper()
	var events []weir.Event
	for version := from; version < from+n; version++ {
		for i := range streams {
			events = append(events, event(weir.Stream("order", fmt.Sprint(i)), version))
		}
	}
	must(t, c.PublishEvents(testContext(t), events...))
}

// firsts checks that each event of each stream comes first in the order of versions.
type firsts struct {
	t  testing.TB
	mu sync.Mutex
	at map[weir.StreamID]weir.Version
	n  int
}

func newFirsts(t testing.TB) *firsts { return &firsts{t: t, at: map[weir.StreamID]weir.Version{}} }

func (f *firsts) see(e weir.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch at := f.at[e.Stream]; {
	case e.Version == at+1:
		f.at[e.Stream] = e.Version
		f.n++
	case e.Version > at:
		f.t.Errorf("%s version %d comes before %d", e.Stream, e.Version, at+1)
	}
}

func (f *firsts) seen() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.n
}

// TestP8_AFailingStreamStopsNoOther, and keeps its own order; nothing is negatively
// acknowledged. (nats-server#4112, nats.go#968: what is delayed by Nak counts as
// outstanding, so many of them stop everything)
func TestP8_AFailingStreamStopsNoOther(t *testing.T) {
	c := logged(t, Config{})
	publishEvents(t, c, 20, 1, 20)
	order, mended, others := newFirsts(t), make(chan struct{}), make(chan struct{}, 1000)
	failures := 0 // of one event, which one worker at a time has
	s := subscribe(t, c, Subscription{Name: "test", Held: 500}, func(_ context.Context, d *Delivery) error {
		if d.Event.Stream == "order-3" && d.Event.Version == 5 {
			select {
			case <-mended:
			default:
				if d.Failures != failures {
					t.Errorf("it says %d failures after %d", d.Failures, failures)
				}
				failures++
				return errors.New("not yet")
			}
		}
		if d.Event.Stream != "order-3" {
			others <- struct{}{}
		}
		order.see(d.Event)
		return nil
	})
	for range 19 * 20 {
		select {
		case <-others:
		case <-time.After(patience):
			t.Fatal("the others have to wait")
		}
	}
	if n := order.seen(); n > 19*20+4 {
		t.Errorf("%d were handled: some overtook the failing one", n)
	}
	close(mended)
	for range 400 {
		s.next()
	}
	consumer, err := logStream(t, c).Consumer(testContext(t), "test")
	must(t, err)
	if failures == 0 || consumer.CachedInfo().NumRedelivered > 0 {
		t.Errorf("%d failures, %d redelivered by the broker", failures, consumer.CachedInfo().NumRedelivered)
	}
}

// TestP9_SubscriberHoldsNoMoreThanItMay when nothing can be handled.
func TestP9_SubscriberHoldsNoMoreThanItMay(t *testing.T) {
	c := logged(t, Config{Prefetch: 10})
	publishEvents(t, c, 500, 1, 1)
	busy := make(chan struct{}, 10_000)
	subscribe(t, c, Subscription{Name: "test", Held: 30, Workers: 4}, func(context.Context, *Delivery) error {
		busy <- struct{}{}
		return errors.New("never")
	})
	for range 200 {
		<-busy
	}
	consumer, err := logStream(t, c).Consumer(testContext(t), "test")
	must(t, err)
	if n := consumer.CachedInfo().NumAckPending; n > 30+2*10+1 {
		t.Errorf("%d are in the client's hands, may be 30 and what is prefetched", n)
	}
}

// TestP1_SubscriberGoesOnWhereItWasNotAcknowledged: what it had in hand when it stopped
// comes to the next one at once, in order. (nats-server#4627: no redelivery until AckWait
// after a client has died)
func TestP1_SubscriberGoesOnWhereItWasNotAcknowledged(t *testing.T) {
	c := logged(t, Config{AckWait: time.Hour})
	publishEvents(t, c, 5, 1, 40)
	order := newFirsts(t)
	for order.seen() < 150 {
		limit := order.seen() + 30
		reached := make(chan struct{})
		var once sync.Once
		s := subscribe(t, c, Subscription{Name: "test"}, func(ctx context.Context, d *Delivery) error {
			if order.seen() >= limit {
				once.Do(func() { close(reached) })
				<-ctx.Done()
				return ctx.Err()
			}
			order.see(d.Event)
			return nil
		})
		<-reached
		must(t, s.end())
	}
	s := subscribe(t, c, Subscription{Name: "test"}, func(_ context.Context, d *Delivery) error {
		order.see(d.Event)
		return nil
	})
	eventually(t, "everything is handled", func() bool { return order.seen() == 200 })
	must(t, s.end())
}

// TestP1_SubscriberSurvivesItsConnection being cut again and again, and the consumer and
// the stream being deleted. (centrifugo#1166, #972; watermill#389)
func TestP1_SubscriberSurvivesItsConnection(t *testing.T) {
	server := startServer(t)
	p := startProxy(t, server.URL())
	owner := connect(t, server, Config{})
	_, err := owner.DeclareLog(testContext(t))
	must(t, err)
	c, err := Connect(testContext(t), Config{URL: p.url(), Namespace: "other", reconnectWait: impatience})
	must(t, err)
	t.Cleanup(c.Close)
	order := newFirsts(t)
	subscribe(t, c, Subscription{Namespace: "t", Name: "test"}, func(_ context.Context, d *Delivery) error {
		must(t, d.Err)
		order.see(d.Event)
		return nil
	})
	version := 1
	for round := range 6 {
		publishEvents(t, owner, 20, version, 50)
		version += 50
		eventually(t, "some are handled", func() bool { return order.seen() > round*1000+200 })
		p.cut()
	}
	eventually(t, "all are handled", func() bool { return order.seen() == 6000 })

	must(t, owner.js.DeleteConsumer(testContext(t), owner.outflow().stream(), "test"))
	publishEvents(t, owner, 20, version, 5)
	eventually(t, "what came without a consumer is handled", func() bool { return order.seen() == 6100 })
	must(t, owner.js.DeleteStream(testContext(t), owner.outflow().stream()))
	_, err = owner.DeclareLog(testContext(t))
	must(t, err)
	publishEvents(t, owner, 20, version+5, 5)
	eventually(t, "what is in the new stream is handled", func() bool { return order.seen() == 6200 })
}

// TestSubscriptionToCategories gets no others, and follows a changed list.
func TestSubscriptionToCategories(t *testing.T) {
	c := logged(t, Config{})
	for _, categories := range [][]string{{"order"}, {"order", "a b.*"}, {"order"}} {
		s := subscribe(t, c, Subscription{Name: "test", Categories: categories, Workers: 1})
		eventually(t, "the consumer is as wanted", func() bool {
			consumer, err := logStream(t, c).Consumer(testContext(t), "test")
			return err == nil && len(filters(consumer.CachedInfo().Config)) == len(categories)
		})
		must(t, c.PublishEvents(testContext(t), event("other-1", 1), event(weir.Stream("a b.*", "1"), 1), event("order-1", 1)))
		for _, want := range []string{"a b.*", "order"}[2-len(categories):] {
			if d := s.next(); d.Event.Stream.Category() != want {
				t.Errorf("with %q got %s", categories, d.Event.Stream)
			}
		}
		must(t, s.end())
	}
}

// TestSubscriberGetsWhatItCannotRead, whole.
func TestSubscriberGetsWhatItCannotRead(t *testing.T) {
	c := logged(t, Config{})
	s := subscribe(t, c, Subscription{Name: "test", Workers: 1})
	good := event("order-1", 1)
	subject, _ := c.outflow().place(good.Stream)
	for name, change := range map[string]func(*nats.Msg){
		"no headers":         func(m *nats.Msg) { m.Header = nil },
		"no version":         func(m *nats.Msg) { delete(m.Header, headerVersion) },
		"version 0":          func(m *nats.Msg) { m.Header.Set(headerVersion, "0") },
		"no position":        func(m *nats.Msg) { delete(m.Header, headerPosition) },
		"no time":            func(m *nats.Msg) { m.Header.Set(headerRecorded, "noon") },
		"order is no id":     func(m *nats.Msg) { m.Header.Set(headerOrder, "first") },
		"another stream":     func(m *nats.Msg) { m.Header.Set(headerStream, "order-2") },
		"needless name":      func(m *nats.Msg) { m.Header.Set(headerStream, "order-1") },
		"a subject too long": func(m *nats.Msg) { m.Subject += ".x" },
	} {
		m := &nats.Msg{Subject: subject, Data: []byte("{}")}
		var err error
		m.Header, err = encodeEvent(&good, true, "")
		must(t, err)
		m.Header.Set(headerID, weir.NewID().String())
		change(m)
		_, err = c.js.PublishMsg(testContext(t), m)
		must(t, err)
		var unreadable *UnreadableError
		if d := s.next(); !errors.As(d.Err, &unreadable) || string(unreadable.Data) != "{}" || d.Event.ID != (weir.ID{}) {
			t.Errorf("%s: %+v, %v", name, d.Event, d.Err)
		}
	}
}

func TestSubscriptionsAreChecked(t *testing.T) {
	c := logged(t, Config{})
	for _, s := range []Subscription{{}, {Name: "a.b"}, {Name: "ok", Namespace: "No"}, {Name: "ok", Workers: -1}, {Name: "ok", Held: -1}} {
		var wrong *ConfigError
		if err := c.Subscribe(testContext(t), s, nil); !errors.As(err, &wrong) {
			t.Errorf("%+v: %v", s, err)
		}
	}
	consumer := c.consumerConfig(0)
	consumer.Durable, consumer.FilterSubject, consumer.AckPolicy = "taken", "", jetstream.AckAllPolicy
	_, err := c.js.CreateConsumer(testContext(t), c.outflow().stream(), consumer)
	must(t, err)
	err = c.Subscribe(testContext(t), Subscription{Name: "taken"}, nil)
	if !errors.As(err, new(*DriftError)) {
		t.Errorf("a consumer that is something else: %v", err)
	}
}

// TestP1_WhatASubscriberLeavesIsGivenBack: the broker is not kept from giving it to
// somebody else.
func TestP1_WhatASubscriberLeavesIsGivenBack(t *testing.T) {
	c := logged(t, Config{AckWait: 300 * time.Millisecond})
	publishEvents(t, c, 3, 1, 1)
	started := make(chan struct{}, 3)
	s := subscribe(t, c, Subscription{Name: "test"}, func(ctx context.Context, d *Delivery) error {
		started <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	})
	for range 3 {
		<-started
	}
	must(t, s.end())
	consumer, err := logStream(t, c).Consumer(testContext(t), "test")
	must(t, err)
	batch, err := consumer.Fetch(3, jetstream.FetchMaxWait(5*time.Second))
	must(t, err)
	got := 0
	for range batch.Messages() {
		got++
	}
	if got != 3 {
		t.Errorf("%d of 3 came to somebody else", got)
	}
}
