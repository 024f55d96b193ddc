package transport

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-es/weir/internal/crash"
)

// Defaults of Subscription.
const (
	DefaultWorkers = 8
	DefaultHeld    = 1000
)

// Subscription says whose committed events to receive, and under which name.
type Subscription struct {
	// Namespace of the service that publishes the events. Default that of the
	// connection.
	Namespace string
	// Name is the durable consumer, 1 to 100 of A-Z, a-z, 0-9, '_' and '-'. The broker
	// remembers under it what was acknowledged, so two services need two names.
	Name string
	// Categories leaves out the streams of all others. Default nothing is left out.
	// After adding one, only what comes from then on is given; for what the log
	// stream holds already take a new Name.
	Categories []string
	// Workers is how many events are handled at once, each of another stream.
	// Default 8.
	Workers int
	// Held is how many events are in the client's hands, waiting or failing; beyond,
	// nothing more is asked for. Default 1000. More where one stream fails often and
	// the others must go on.
	Held int
}

func (s Subscription) complete(c *Conn) (Subscription, error) {
	s.Namespace = cmp.Or(s.Namespace, c.config.Namespace)
	s.Workers = cmp.Or(s.Workers, DefaultWorkers)
	s.Held = cmp.Or(s.Held, DefaultHeld)
	switch {
	case !validNamespace(s.Namespace):
		return s, &ConfigError{"Subscription.Namespace", fmt.Sprintf("%q is not 1 to 40 of a-z, 0-9 and '_'", s.Namespace)}
	case !validDurable(s.Name):
		return s, &ConfigError{"Subscription.Name", fmt.Sprintf("%.120q is not 1 to 100 of A-Z, a-z, 0-9, '_' and '-'", s.Name)}
	case s.Workers < 1 || s.Held < 1:
		return s, &ConfigError{"Subscription", "Workers and Held are at least 1"}
	}
	return s, nil
}

func validDurable(s string) bool {
	return len(s) >= 1 && len(s) <= 100 && strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-") == ""
}

// Subscribe gives the committed events of a service to handle until ctx ends, then
// it returns nil. Everything that the log stream still holds is given first. An event
// is acknowledged when handle returns nil, and may come again all the same: after a
// crash, a lost connection, or when the broker has lost the consumer.
//
// The events of one stream come one after the other, each first in the order of
// versions; those of different streams at the same time. Where handle returns an
// error, the event is given again after a pause of 50 ms, and then of up to 2 s, as
// often as it takes: what is behind it in its stream waits, the others go on until
// Held events wait. So handle counts (Delivery.Failures), and in the end puts away
// somewhere what cannot be handled and returns nil. It must return when its ctx ends.
//
// One caller at a time: two of the same Name get some of the events each, and order
// is lost between them. The consumer is made when it is not there, or not any more;
// the stream belongs to the other service and is waited for. What the broker forbids,
// and a consumer of that name that is something else (*DriftError), is returned.
func (c *Conn) Subscribe(ctx context.Context, s Subscription, handle func(context.Context, *Delivery) error) error {
	s, err := s.complete(c)
	if err != nil {
		return err
	}
	ctx, cancel := both(ctx, c.life)
	defer cancel()
	var complained time.Time
	for try := 1; ; try++ {
		began := time.Now()
		err := c.attend(ctx, s, handle)
		switch {
		case c.life.Err() != nil:
			return ErrClosed
		case ctx.Err() != nil:
			return nil
		case !errors.Is(err, ErrGone):
			return fmt.Errorf("subscribe to %s as %s: %w", s.Namespace, s.Name, err)
		}
		if time.Since(began) > time.Minute {
			try = 1
		}
		if time.Since(complained) > complainEvery {
			complained = time.Now()
			c.log.Warn("the events of a service have to wait", "namespace", s.Namespace, "name", s.Name, "error", err)
		}
		pause(ctx, retryWait(try))
	}
}

// attend makes sure of the consumer and receives from it.
func (c *Conn) attend(ctx context.Context, s Subscription, handle func(context.Context, *Delivery) error) error {
	n, err := c.declareSubscription(ctx, s)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	desk := newDesk(s.Held, handle)
	var workers sync.WaitGroup
	for range s.Workers {
		workers.Go(func() { desk.work(ctx) })
	}
	defer desk.close()
	defer workers.Wait()
	defer stop()
	return c.receive(ctx, c.life, source{n, s.Name, "subscription " + s.Name, n.readEvent}, func(d *Delivery) { desk.take(ctx, d) })
}

// declareSubscription makes sure of the consumer, and finds out how the service whose
// stream it is divides its event streams.
func (c *Conn) declareSubscription(ctx context.Context, s Subscription) (n names, err error) {
	n = names{s.Namespace, 0, outflow}
	err = c.persist(ctx, func(ctx context.Context) error {
		stream, err := c.js.Stream(ctx, n.stream())
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			return &GoneError{n.stream(), "is not there", err}
		}
		if err != nil {
			return err
		}
		text := stream.CachedInfo().Config.Metadata[metaShards]
		if n.shards, err = strconv.Atoi(text); err != nil || n.shards < 1 {
			return &DriftError{n.stream(), "metadata " + metaShards, text, "the number of shards", nil}
		}
		return c.declareSubscriber(ctx, stream, n.subscriber(c, s))
	})
	return n, err
}

func (c *Conn) declareSubscriber(ctx context.Context, stream jetstream.Stream, want jetstream.ConsumerConfig) error {
	consumer, err := stream.Consumer(ctx, want.Durable)
	switch {
	case errors.Is(err, jetstream.ErrConsumerNotFound):
		return c.declareConsumer(ctx, stream, nil, want)
	case err != nil:
		return err
	}
	return c.declareConsumer(ctx, stream, consumer.CachedInfo(), want)
}

// subscriber is the consumer of a subscription: as that of a shard, but for what it
// is given.
func (n names) subscriber(c *Conn, s Subscription) jetstream.ConsumerConfig {
	config := c.consumerConfig(0)
	config.Durable, config.FilterSubject = s.Name, ""
	for _, category := range s.Categories {
		config.FilterSubjects = append(config.FilterSubjects, n.base()+"*."+categoryToken(category)+".*")
	}
	return config
}

// desk hands deliveries to workers: those of one event stream one after the other, as
// they came, and of many streams at once. One that fails is given again after a pause,
// and what came behind it waits.
type desk struct {
	handle func(context.Context, *Delivery) error
	room   chan struct{} // one taken per delivery
	ready  chan string   // lanes that a worker may serve; has room for all there can be

	mu    sync.Mutex
	lanes map[string][]*Delivery // by subject, never empty
}

func newDesk(limit int, handle func(context.Context, *Delivery) error) *desk {
	return &desk{handle: handle, room: make(chan struct{}, limit), ready: make(chan string, limit), lanes: map[string][]*Delivery{}}
}

// take waits for room and puts a delivery into its lane.
func (k *desk) take(ctx context.Context, d *Delivery) {
	select {
	case k.room <- struct{}{}:
	case <-ctx.Done():
		d.Release()
		return
	}
	k.mu.Lock()
	lane := append(k.lanes[d.Subject], d)
	k.lanes[d.Subject] = lane
	k.mu.Unlock()
	if len(lane) == 1 {
		k.ready <- d.Subject
	}
}

func (k *desk) work(ctx context.Context) {
	for {
		select {
		case subject := <-k.ready:
			if ctx.Err() == nil {
				k.serve(ctx, subject)
			}
		case <-ctx.Done():
			return
		}
	}
}

// serve handles the first delivery of a lane, which nobody else does meanwhile.
func (k *desk) serve(ctx context.Context, subject string) {
	d := k.first(subject)
	err := k.handle(ctx, d)
	switch {
	case err == nil:
		k.done(d)
	case ctx.Err() == nil:
		d.Failures++
		time.AfterFunc(retryWait(d.Failures), func() { k.ready <- subject })
	}
}

func (k *desk) first(subject string) *Delivery {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.lanes[subject][0]
}

// done acknowledges the first delivery of a lane and goes on with the next.
func (k *desk) done(d *Delivery) {
	_ = d.Ack() // one that is lost comes again
	crash.At(crash.HandleAcked)
	k.mu.Lock()
	lane := k.lanes[d.Subject][1:]
	k.lanes[d.Subject] = lane
	if len(lane) == 0 {
		delete(k.lanes, d.Subject)
	}
	k.mu.Unlock()
	<-k.room
	if len(lane) > 0 {
		k.ready <- d.Subject
	}
}

// close gives back what was not handled, when nobody works any more.
func (k *desk) close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, lane := range k.lanes {
		for _, d := range lane {
			d.Release()
		}
	}
}
