package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weir-es/weir/app"
	"github.com/weir-es/weir/batching"
	"github.com/weir-es/weir/devserver"
	"github.com/weir-es/weir/projection"
)

// policies are the choices for -windows.
var policies = map[string]batching.Policy{
	"fixed":    batching.Fixed(batching.Inbox),
	"adaptive": batching.Adaptive(batching.Inbox),
	"off":      batching.Off(batching.Inbox),
}

// patience is how long a service may take, after the last message was sent, until
// everything is applied.
const patience = 5 * time.Minute

// fan is one run of fan-in.
type fan struct {
	options
	app   *app.App
	nats  string
	watch *watch
	start time.Time
	sent  []sent
	took  time.Duration
}

// fanIn lets processes with clocks that are wrong publish to shared streams, out of
// order, and compares the read models with a sorted fold of what they say they sent.
func fanIn(ctx context.Context, o options) (out outcome, err error) {
	postgres, err := devserver.StartPostgres(ctx, devserver.PostgresConfig{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, postgres.Close()) }()
	broker, err := devserver.StartNATS(ctx, devserver.NATSConfig{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, broker.Close()) }()
	url, err := postgres.NewDatabase(ctx)
	if err != nil {
		return nil, err
	}
	a, err := app.New(ctx, app.Config{Postgres: url, NATS: broker.URL(), Inbox: policies[o.windows], Types: notes,
		Projections: []projection.Projection{chains, latests}, MaxIngestBytes: 256 << 20, Logger: warnings})
	if err != nil {
		return nil, err
	}
	defer a.Close()
	f := &fan{options: o, app: a, nats: broker.URL(), watch: newWatch(a.Store)}
	if err := a.Run(ctx, f.play); err != nil {
		return nil, err
	}
	return f.judge(ctx)
}

var warnings = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))

// play returns when everything that was sent is applied.
func (f *fan) play(ctx context.Context) error {
	over := make(chan struct{})
	var g errgroup.Group
	g.Go(func() error { return f.watch.run(ctx, over) })
	g.Go(func() (err error) {
		defer close(over)
		f.start = time.Now()
		if f.sent, err = produceAll(ctx, f.errands()); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		err = f.app.Settle(ctx)
		f.took = time.Since(f.start)
		return err
	})
	return g.Wait()
}

// errands are those of the producers, which divide the events.
func (f *fan) errands() (all []errand) {
	clocks := f.clocks()
	for i := range f.producers {
		all = append(all, errand{
			Producer: i, Seed: f.seed, NATS: f.nats, Namespace: "weir",
			Events: (i+1)*f.events/f.producers - i*f.events/f.producers,
			Every:  time.Duration(f.producers) * time.Second / time.Duration(f.rate),
			Ahead:  clocks[i], Delay: f.delay, Turns: f.turns, Observe: f.observe,
		})
	}
	return all
}

// clocks are how far each producer's clock is ahead: spread evenly from as far
// behind as it may be to as far ahead, in an order of the seed's.
func (f *fan) clocks() []time.Duration {
	all := make([]time.Duration, f.producers)
	for place, i := range dice(f.seed, "clocks").Perm(len(all)) {
		all[i] = f.skew
		if len(all) > 1 {
			all[i] = -f.skew + 2*f.skew*time.Duration(place)/time.Duration(len(all)-1)
		}
	}
	return all
}

// judge compares what is there with what was sent.
func (f *fan) judge(ctx context.Context) (outcome, error) {
	v := &verdict{took: f.took, windows: f.app.Stats().Windows["chaos"]}
	stored, err := deliveries(ctx, f.app.Store, storedSQL)
	if err != nil {
		return nil, err
	}
	v.checkStored(f.sent, stored)
	v.time(f.watch.latencies(f.sent, stored))
	streams := byStream(f.sent)
	if err := judgeView(ctx, f, v, chains, streams); err != nil {
		return nil, err
	}
	if err := judgeView(ctx, f, v, latests, streams); err != nil {
		return nil, err
	}
	views, err := projection.Statuses(ctx, f.app.Store)
	v.count(views)
	return v, err
}

// judgeView compares the rows of a view with the producers' word, and with the log.
func judgeView[S folded[S]](ctx context.Context, f *fan, v *verdict, view projection.View[S], streams map[string][]sent) error {
	var rows []projection.Row[S]
	for row, err := range view.All(ctx, f.app.Store) {
		if err != nil {
			return err
		}
		rows = append(rows, row)
	}
	checkRows(v, view.Name, streams, rows)
	found, err := view.Verify(ctx, f.app.Store)
	if err != nil {
		return fmt.Errorf("judge: %w", err)
	}
	v.checkVerified(view.Name, found)
	return nil
}
