package app

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/batching"
	"github.com/weir-es/weir/eventstore"
	"github.com/weir-es/weir/projection"
	"github.com/weir-es/weir/transport"
)

// ErrKilled is what Run returns after Kill.
var ErrKilled = errors.New("killed")

// App is a running service. Safe for concurrent use.
type App struct {
	// Store is the event store, for reading and appending.
	Store *eventstore.Store

	config    Config
	types     *weir.Registry
	broker    *transport.Conn
	publisher *transport.Publisher
	kill      context.CancelCauseFunc
	life      context.Context // ends with Kill and with Close
	ran       atomic.Bool
	owned     atomic.Int64 // leases
	count     counts
	inbox     batching.Gauge // shared by all shards

	mu      sync.Mutex
	workers map[string]*projection.Worker // by projection; none where others own all leases
	earlier map[string]projection.Counts  // of workers that ended
}

// New connects to both servers, brings the schema, the streams and the tables of
// the views up to date, and returns an app that is ready to Run. It waits for
// servers that are not there yet, up to ConnectTimeout. Close it.
func New(ctx context.Context, config Config) (*App, error) {
	a := &App{config: config.withDefaults(), workers: map[string]*projection.Worker{}, earlier: map[string]projection.Counts{}}
	a.inbox.Policy = a.config.Inbox
	a.life, a.kill = context.WithCancelCause(context.Background())
	if err := a.open(ctx); err != nil {
		a.Close()
		return nil, fmt.Errorf("start %s: %w", a.config.Name, err)
	}
	return a, nil
}

func (a *App) open(ctx context.Context) (err error) {
	if a.types, err = weir.NewRegistry(a.config.Types); err != nil {
		return err
	}
	if err := a.checkNames(); err != nil {
		return err
	}
	if a.Store, err = eventstore.Open(ctx, a.storeConfig()); err != nil {
		return err
	}
	for _, p := range a.config.Projections {
		if err := p.Prepare(ctx, a.Store); err != nil {
			return err
		}
	}
	if a.broker, err = transport.Connect(ctx, a.brokerConfig()); err != nil {
		return err
	}
	a.publisher = a.broker.Publisher()
	return a.broker.Declare(ctx)
}

// checkNames refuses two consumers with one name.
func (a *App) checkNames() error {
	seen := map[string]bool{}
	for _, p := range a.config.Projections {
		if seen[p.ProjectionName()] {
			return fmt.Errorf("two projections are named %q", p.ProjectionName())
		}
		seen[p.ProjectionName()] = true
	}
	for _, h := range a.config.Handlers {
		if err := h.check(a.types); err != nil {
			return err
		}
		if seen[h.Name] {
			return fmt.Errorf("a handler and something else are named %q", h.Name)
		}
		seen[h.Name] = true
	}
	if seen[RelayConsumer] {
		return fmt.Errorf("the name %q is the relay's", RelayConsumer)
	}
	return nil
}

func (a *App) storeConfig() eventstore.Config {
	return eventstore.Config{URL: a.config.Postgres, Pool: a.config.Pool, Connections: a.connections(), Schema: a.config.Schema, Shards: a.config.Shards,
		Types: a.types, MaxDataBytes: a.config.MaxDataBytes, ConnectTimeout: a.config.ConnectTimeout, Logger: a.config.Logger}
}

// connections are enough for all projections and handlers to be busy at once, and for
// appends beside them.
func (a *App) connections() int { return 16 + len(a.config.Projections) + len(a.config.Handlers) }

func (a *App) brokerConfig() transport.Config {
	return transport.Config{URL: a.config.NATS, Conn: a.config.Conn, Namespace: a.config.Namespace, Name: a.config.Name,
		Shards: a.Store.Shards(), Replicas: a.config.Replicas, MaxBytes: a.config.MaxIngestBytes,
		LogAge: a.config.LogAge, LogBytes: a.config.LogBytes,
		MaxDataBytes: a.config.MaxDataBytes, ConnectTimeout: a.config.ConnectTimeout, Logger: a.config.Logger}
}

// Close closes what New opened. Safe to repeat.
func (a *App) Close() {
	a.kill(context.Canceled)
	if a.broker != nil {
		a.broker.Close()
	}
	if a.Store != nil {
		a.Store.Close()
	}
}

// Kill ends Run as if the process had died: nothing is flushed, acknowledged,
// noted or given back. For tests of what happens then.
func (a *App) Kill() { a.kill(ErrKilled) }

// Message makes a message of a registered Go value, with a new id.
func (a *App) Message(stream weir.StreamID, value any) (weir.Message, error) {
	m, err := a.types.Encode(stream, value)
	if err != nil {
		return weir.Message{}, err
	}
	m.ID = weir.NewID()
	m.Metadata.Producer = a.config.Name
	return m, nil
}

// Publish sends facts about one stream through JetStream, in the order given, and
// returns when the broker has them. They are stored and applied soon after; see
// Settle. When it fails, some may have been sent: a repeat makes new messages, so
// to repeat exactly, make them with Message and give them to Publisher.
func (a *App) Publish(ctx context.Context, stream weir.StreamID, facts ...any) error {
	messages := make([]weir.Message, len(facts))
	for i, fact := range facts {
		m, err := a.Message(stream, fact)
		if err != nil {
			return err
		}
		messages[i] = m
	}
	return a.publisher.Publish(ctx, messages...)
}

// Publisher sends messages with ids of the caller's.
func (a *App) Publisher() *transport.Publisher { return a.publisher }

// Run runs the service until ctx ends, or until every body has returned if there
// are any. Then it stops gracefully: what the client has received is stored and
// acknowledged, checkpoints are noted and leases given back. It returns the error
// of a body, or what kept the service from running. It can be called once.
func (a *App) Run(ctx context.Context, bodies ...func(context.Context) error) error {
	if a.ran.Swap(true) {
		return errors.New("run " + a.config.Name + ": an app runs once")
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	r := &run{App: a, instance: a.Store.Join(a.config.Name), soft: ctx, hard: a.life}
	err := r.run(stop, bodies)
	if errors.Is(context.Cause(a.life), ErrKilled) {
		return ErrKilled
	}
	return err
}

// bodiesDone runs the bodies and stops the service when they have returned.
func bodiesDone(ctx context.Context, stop func(), bodies []func(context.Context) error) error {
	if len(bodies) == 0 {
		return nil
	}
	defer stop()
	g, ctx := errgroup.WithContext(ctx)
	for _, body := range bodies {
		g.Go(func() error { return body(ctx) })
	}
	return g.Wait()
}
