package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/app"
	"github.com/weir-es/weir/projection"
)

// size is how much there is: instances of a service, which share this machine, and
// streams, each with an event already.
type size struct {
	instances, streams int
	idle               time.Duration // for how long queries are counted at rest
}

// sizes are compared in one run.
var sizes = []size{{instances: 1, streams: 1000}, {instances: 2, streams: 1000}, {instances: 4, streams: 1000},
	{instances: 1, streams: 100_000}, {instances: 1, streams: 1_000_000}}

const (
	scaleEvents   = 100_000
	activeStreams = 10_000 // of the streams get events
	idleTime      = 5 * time.Second
)

// runScale prints a line for each size.
func runScale(ctx context.Context, l *lab, o options, out io.Writer) error {
	for _, s := range sizes {
		s.streams = max(100, int(float64(s.streams)*min(o.scale, 1)))
		s.idle = time.Duration(float64(idleTime) * max(0.2, min(o.scale, 1)))
		r, err := s.run(ctx, l, max(1000, int(scaleEvents*o.scale)))
		if err != nil {
			return fmt.Errorf("%d instances, %d streams: %w", s.instances, s.streams, err)
		}
		if err := r.print(out, o.json); err != nil {
			return err
		}
	}
	return nil
}

// grownTo is what a size came to, as -json prints it. Throughput is of all instances
// together, from the first publish until the view has everything; Queries are
// statements, Trips round trips to the database; Idle are those of one instance in a
// second in which nothing happens.
type grownTo struct {
	Name      string  `json:"name"`
	Instances int     `json:"instances"`
	Streams   int     `json:"streams"`
	Events    int     `json:"events"`
	Rate      float64 `json:"events_per_second"`
	Queries   float64 `json:"queries_per_event"`
	Trips     float64 `json:"trips_per_event"`
	Idle      float64 `json:"idle_queries_per_second"`
	RSS       float64 `json:"rss_mb"` // of this process, with all instances and the broker in it
}

func (g grownTo) print(out io.Writer, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(out).Encode(g)
	}
	_, err := fmt.Fprintf(out, "%-6s %d instances %8d streams %7d events  %7.0f events/s  %5.2f queries and %5.3f trips/event  idle %4.1f queries/s  %4.0f MB\n",
		g.Name, g.Instances, g.Streams, g.Events, g.Rate, g.Queries, g.Trips, g.Idle, g.RSS)
	return err
}

// run lets the instances of a size store and apply n events.
func (s size) run(ctx context.Context, l *lab, n int) (r grownTo, err error) {
	ctx, cancel := context.WithTimeout(ctx, trialLimit)
	defer cancel()
	url, drop, err := l.database(ctx, s.template())
	if err != nil {
		return r, err
	}
	defer drop()
	var c counter
	apps, end, err := s.apps(ctx, l, url, &c)
	if err != nil {
		return r, err
	}
	defer end()
	g, running := errgroup.WithContext(ctx)
	stopping, stop := context.WithCancel(running)
	for _, a := range apps {
		g.Go(func() error { return a.Run(stopping) })
	}
	g.Go(func() (err error) {
		defer stop()
		r, err = s.measure(running, apps, &c, n)
		return err
	})
	return r, g.Wait()
}

func (s size) template() template {
	return template{fmt.Sprint("streams", s.streams), func(ctx context.Context, url string) error {
		first := make([]weir.Message, s.streams)
		for i := range first {
			first[i] = fact(i)
		}
		return prepare(ctx, url, first, "")
	}}
}

func (s size) apps(ctx context.Context, l *lab, url string, c *counter) (apps []*app.App, end func(), err error) {
	b, err := l.broker()
	if err != nil {
		return nil, nil, err
	}
	name := l.name()
	end = func() {
		for _, a := range apps {
			a.Close()
			a.Store.Pool().Close()
		}
	}
	for range s.instances {
		pool, err := c.pool(ctx, url)
		if err != nil {
			end()
			return nil, nil, err
		}
		a, err := app.New(ctx, app.Config{Name: name, Schema: "weir", Pool: pool, NATS: b.url,
			Types: weir.Types{paymentMade: weir.EventOf[payment]()}, Projections: []projection.Projection{accounts},
			MaxIngestBytes: 256 << 20, Logger: warnings})
		if err != nil {
			pool.Close()
			end()
			return nil, nil, err
		}
		apps = append(apps, a)
	}
	return apps, end, nil
}

// measure waits until the instances share the work evenly and have nothing to do, warms
// them up, then publishes, and then waits once more.
func (s size) measure(ctx context.Context, apps []*app.App, c *counter, n int) (r grownTo, err error) {
	fair := (apps[0].Store.Shards() + s.instances - 1) / s.instances
	err = until(ctx, func() bool {
		for _, a := range apps {
			if h := a.Health(ctx).Leases; h == 0 || h > fair {
				return false
			}
		}
		return true
	})
	if err != nil {
		return r, err
	}
	if err := apps[0].Settle(ctx); err != nil {
		return r, err
	}
	debug.FreeOSMemory()
	messages := facts(n+n/10, min(s.streams, activeStreams))
	if err := s.carry(ctx, apps, messages[n:]); err != nil { // with new connections and plans
		return r, err
	}
	queries, trips, began := c.queries.Load(), c.trips.Load(), time.Now()
	if err := s.carry(ctx, apps, messages[:n]); err != nil {
		return r, err
	}
	took := time.Since(began)
	if err := apps[0].Settle(ctx); err != nil {
		return r, err
	}
	r = grownTo{Name: "scale", Instances: s.instances, Streams: s.streams, Events: n, Rate: float64(n) / took.Seconds(),
		Queries: float64(c.queries.Load()-queries) / float64(n), Trips: float64(c.trips.Load()-trips) / float64(n), RSS: residentMB()}
	r.Idle, err = s.atRest(ctx, c)
	return r, err
}

// carry publishes messages and waits until the views have applied them.
func (s size) carry(ctx context.Context, apps []*app.App, messages []weir.Message) error {
	wanted := applied(apps) + int64(len(messages))
	for _, m := range messages {
		if err := apps[0].Publisher().Send(ctx, m); err != nil {
			return err
		}
	}
	for applied(apps) < wanted { // Stats is not for asking all the time
		if err := wait(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// applied is how many events the views of all instances have applied. Settle would ask
// the checkpoints, which say so of shards of others a second later.
func applied(apps []*app.App) (n int64) {
	for _, a := range apps {
		n += a.Stats().Views[accounts.Name].Applied
	}
	return n
}

// atRest counts the queries of one instance and second, after things have calmed down.
// A heartbeat has a connection that is not counted.
func (s size) atRest(ctx context.Context, c *counter) (float64, error) {
	if err := wait(ctx, 2*time.Second); err != nil {
		return 0, err
	}
	before := c.queries.Load()
	if err := wait(ctx, s.idle); err != nil {
		return 0, err
	}
	return float64(c.queries.Load()-before)/s.idle.Seconds()/float64(s.instances) + 1, nil
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// residentMB is the memory of this process that is in RAM, 0 where the system does not
// say.
func residentMB() float64 {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(text))
	pages, _ := strconv.Atoi(fields[1])
	return float64(pages*os.Getpagesize()) / (1 << 20)
}

// counter counts what pools send.
type counter struct {
	queries, trips atomic.Int64
}

func (c *counter) pool(ctx context.Context, url string) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	config.MaxConns = 16
	config.ConnConfig.Tracer = c
	return pgxpool.NewWithConfig(ctx, config)
}

// TraceQueryStart is called by pgx, as are the following.
func (c *counter) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	c.queries.Add(1)
	c.trips.Add(1)
	return ctx
}

func (c *counter) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (c *counter) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	c.trips.Add(1)
	return ctx
}

func (c *counter) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {
	c.queries.Add(1)
}

func (c *counter) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}
