package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/app"
	"github.com/weir-es/weir/projection"
	"github.com/weir-es/weir/transport"
)

// The two read models.
var (
	traceView    = projection.View[Trace]{Name: "trace", Key: projection.ByStream}
	activityView = projection.View[Activity]{Name: "activity", Key: projection.By(func(_ weir.Event, data any) string {
		return activityOf(data)
	})}
)

// run is one log on its way through producers, app and read models.
type run struct {
	options
	log            source
	found          survey
	postgres, nats string
	// patience is how long servers that are not there are waited for. Default
	// that of the rooms, 30 s.
	patience time.Duration
	logger   *slog.Logger
	display  *display

	sent    sent
	kills   *kills
	started time.Time
	// published is closed when the broker has acknowledged everything, which
	// took so many seconds.
	published chan struct{}
	publish   float64

	mu sync.Mutex
	// now is the running app, or nil; past is what earlier ones counted.
	now  *app.App
	past tallied
}

// tallied is what the apps of a run counted between them. A killed one may have
// done more than it counted, so these are for showing; the result is read from
// the store.
type tallied struct{ stored, applied, inversions, rewinds int64 }

// name is that of the app: each log has its own, so that running the same log
// again finds everything done, and another log disturbs nothing.
func (r *run) name() string { return "loans_" + r.found.ID }

// all runs producers and app at once and returns what the read models say once
// every event has been applied.
func (r *run) all(ctx context.Context) (Result, error) {
	var result Result
	r.published = make(chan struct{})
	r.kills = newKills(r.kill, r.found.Events, rand.New(rand.NewPCG(r.seed, 2)))
	r.started = time.Now()
	if r.found.Empty > 0 {
		r.logger.Warn("traces without events are no cases here", "traces", r.found.Empty)
	}

	done := make(chan struct{})
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return r.produce(ctx) })
	g.Go(func() error { return r.watch(ctx, done) })
	g.Go(func() (err error) {
		defer close(done)
		result, err = r.apps(ctx)
		return err
	})
	err := g.Wait()
	r.display.finish()
	return result, err
}

func (r *run) produce(ctx context.Context) error {
	feed := &feed{
		source: r.log,
		mapper: newMapper(r.found.ID),
		kills:  r.kills,
		random: rand.New(rand.NewPCG(r.seed, 3)),
		share:  r.duplicate,
		jitter: r.jitter,
	}
	config := transport.Config{URL: r.nats, Namespace: r.name(), ConnectTimeout: r.patience, Logger: r.logger}
	if err := produce(ctx, feed, config, &r.sent); err != nil {
		return err
	}
	r.publish = time.Since(r.started).Seconds()
	close(r.published)
	return nil
}

// apps runs one app after the other: those that are killed in the middle, and the
// one that stays to the end.
func (r *run) apps(ctx context.Context) (result Result, err error) {
	for i := range r.kills.at {
		if err := r.doomed(ctx, i); err != nil {
			return Result{}, err
		}
	}
	err = r.app(ctx, func(ctx context.Context, a *app.App) error {
		result, err = r.finish(ctx, a)
		return err
	})
	return result, err
}

// doomed runs an app until kill i.
func (r *run) doomed(ctx context.Context, i int) error {
	err := r.app(ctx, func(ctx context.Context, a *app.App) error {
		if err := r.awaitKill(ctx, a, i); err != nil {
			return err
		}
		a.Kill()
		r.logger.Warn("killed the app", "kill", i+1, "stored", a.Stats().Stored)
		return nil
	})
	if !errors.Is(err, app.ErrKilled) {
		return err
	}
	close(r.kills.done[i])
	return nil
}

func (r *run) awaitKill(ctx context.Context, a *app.App, i int) error {
	if err := r.kills.awaitDue(ctx, i); err != nil {
		return err
	}
	if err := awaitWork(ctx, a); err != nil {
		return err
	}
	return r.kills.linger(ctx, i)
}

// An app that has its leases gets so long to find work: there may be none for it.
const (
	workWithin = time.Second
	lookEvery  = 20 * time.Millisecond
)

// awaitWork returns when the app has stored something. An app that follows a
// killed one first waits until the leases of that are stale.
func awaitWork(ctx context.Context, a *app.App) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	var owner time.Time
	for {
		if stats := a.Stats(); stats.Stored+stats.Duplicates > 0 {
			return nil
		}
		if owner.IsZero() && a.Health(ctx).Leases > 0 {
			owner = time.Now()
		}
		if !owner.IsZero() && time.Since(owner) > workWithin {
			return nil
		}
		if err := await(ctx, tick.C); err != nil {
			return err
		}
	}
}

// config is that of every app of the run, and of who looks after them.
func (r *run) config() app.Config {
	return app.Config{
		Name:           r.name(),
		Postgres:       r.postgres,
		NATS:           r.nats,
		Types:          types,
		Projections:    []projection.Projection{traceView, activityView},
		ConnectTimeout: r.patience,
		Logger:         r.logger,
	}
}

// app runs one app until do returns.
func (r *run) app(ctx context.Context, do func(context.Context, *app.App) error) error {
	a, err := app.New(ctx, r.config())
	if err != nil {
		return err
	}
	defer a.Close()
	r.setApp(a)
	defer r.setApp(nil)
	return a.Run(ctx, func(ctx context.Context) error { return do(ctx, a) })
}

// finish waits until everything is published, stored and applied, and reads the
// result from the store.
func (r *run) finish(ctx context.Context, a *app.App) (Result, error) {
	if err := await(ctx, r.published); err != nil {
		return Result{}, err
	}
	stored, err := r.settle(ctx, a)
	if err != nil {
		return Result{}, err
	}
	applied := time.Since(r.started).Seconds()
	result, err := r.read(ctx, a)
	if err != nil {
		return Result{}, err
	}
	result.Seconds = Seconds{Publish: r.publish, Stored: stored, Applied: applied}
	result.EventsPerSecond = float64(r.found.Events) / applied
	if difference := result.disagrees(r.found); difference != "" {
		return Result{}, fmt.Errorf("the read models are wrong: %s", difference)
	}
	return result, nil
}

// storedEvery is how often the store is asked how much it holds.
const storedEvery = 50 * time.Millisecond

// settle waits until everything is applied, and returns after how many seconds
// everything was stored.
func (r *run) settle(ctx context.Context, a *app.App) (stored float64, err error) {
	settled := make(chan error, 1)
	go func() { settled <- a.Settle(ctx) }()
	tick := time.NewTicker(storedEvery)
	defer tick.Stop()
	for {
		if counts, err := a.Store.Counts(ctx); err == nil && stored == 0 && counts.Events >= r.found.Events {
			stored = time.Since(r.started).Seconds()
		}
		select {
		case err := <-settled:
			if stored == 0 {
				stored = time.Since(r.started).Seconds()
			}
			return stored, err
		case <-tick.C:
		}
	}
}

// read makes the result from the rows of the read models.
func (r *run) read(ctx context.Context, a *app.App) (Result, error) {
	tally := newTally()
	for row, err := range traceView.All(ctx, a.Store) {
		if err != nil {
			return Result{}, err
		}
		tally.addTrace(row.State)
	}
	for row, err := range activityView.All(ctx, a.Store) {
		if err != nil {
			return Result{}, err
		}
		tally.addActivity(row.State)
	}
	counts, err := a.Store.Counts(ctx)
	if err != nil {
		return Result{}, err
	}
	result, counted := tally.finish(), r.counted()
	result.Stored = counts.Events
	result.Published, result.DuplicatesSent = r.sent.first.Load(), r.sent.again.Load()
	result.Inversions, result.Rewinds = counted.inversions, counted.rewinds
	return result, nil
}

// setApp makes a the running app and keeps what the one before counted.
func (r *run) setApp(a *app.App) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.past = r.past.plus(r.now)
	r.now = a
}

func (r *run) counted() tallied {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.past.plus(r.now)
}

// plus adds what an app has counted so far.
func (t tallied) plus(a *app.App) tallied {
	if a == nil {
		return t
	}
	stats := a.Stats()
	t.stored += stats.Stored + stats.Duplicates
	t.applied += stats.Views[traceView.Name].Applied
	for _, view := range stats.Views {
		t.inversions += view.Inversions
		t.rewinds += view.Rewinds
	}
	return t
}
