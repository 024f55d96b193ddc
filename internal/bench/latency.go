package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/app"
	"github.com/weir-es/weir/batching"
	"github.com/weir-es/weir/projection"
)

//go:embed sql/view_versions.sql
var viewVersions string

// pace is traffic for which time counts and not speed: events in order, one after
// the other, at the same distance, over some streams.
type pace struct {
	name    string
	every   time.Duration
	streams int
	events  int // of a round at scale 1
	policy  batching.Policy
	windows string // the name of policy
	p50     time.Duration
	p99     time.Duration
	max     time.Duration // targets; 0 is none
}

// applyLimit is what comes on top of the window's age at most: storing, the
// horizon, applying and the look that finds it, on a machine with other work.
const applyLimit = 250 * time.Millisecond

// paces are compared in one run, the windows in turns.
var paces = []pace{
	{name: "latency/ordered", every: 10 * time.Millisecond, streams: 50, events: 1000,
		windows: "adaptive", policy: batching.Adaptive(batching.Inbox), p50: 15 * time.Millisecond, p99: 60 * time.Millisecond},
	{name: "latency/ordered", every: 10 * time.Millisecond, streams: 50, events: 1000,
		windows: "fixed", policy: batching.Fixed(batching.Inbox)},
	{name: "latency/trickle", every: 125 * time.Millisecond, streams: 1, events: 60,
		windows: "adaptive", policy: batching.Adaptive(batching.Inbox), max: batching.Inbox.MaxAge + applyLimit},
	{name: "latency/trickle", every: 125 * time.Millisecond, streams: 1, events: 60,
		windows: "fixed", policy: batching.Fixed(batching.Inbox), max: batching.Inbox.MaxAge + applyLimit},
}

// runLatency lets all paces take their turns and prints a line for each.
func runLatency(ctx context.Context, l *lab, o options, out io.Writer) error {
	all := make([][]time.Duration, len(paces))
	for round := range o.rounds {
		for i, p := range paces {
			took, err := p.run(ctx, l, max(10, int(float64(p.events)*o.scale)))
			if err != nil {
				return fmt.Errorf("%s, %s windows, round %d: %w", p.name, p.windows, round+1, err)
			}
			all[i] = append(all[i], took...)
		}
	}
	for i, p := range paces {
		if err := p.line(all[i]).print(out, o.json); err != nil {
			return err
		}
	}
	return nil
}

// waited is what a pace came to, as -json prints it. Times are milliseconds from
// just before a message is handed to the publisher until its effect is read from
// the view's table, over all rounds. Targets of 0 are none.
type waited struct {
	Name    string  `json:"name"`
	Windows string  `json:"windows"`
	Events  int     `json:"events"`
	P50     float64 `json:"p50_ms"`
	P99     float64 `json:"p99_ms"`
	Max     float64 `json:"max_ms"`
	Targets struct {
		P50 float64 `json:"p50_ms"`
		P99 float64 `json:"p99_ms"`
		Max float64 `json:"max_ms"`
	} `json:"targets"`
}

func (p pace) line(took []time.Duration) waited {
	slices.Sort(took)
	at := func(q float64) float64 { return milliseconds(took[int(q*float64(len(took)-1))]) }
	w := waited{Name: p.name, Windows: p.windows, Events: len(took), P50: at(0.5), P99: at(0.99), Max: at(1)}
	w.Targets.P50, w.Targets.P99, w.Targets.Max = milliseconds(p.p50), milliseconds(p.p99), milliseconds(p.max)
	return w
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func (w waited) print(out io.Writer, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(out).Encode(w)
	}
	_, err := fmt.Fprintf(out, "%-16s %-8s %6d events  p50 %s  p99 %s  max %s\n", w.Name, w.Windows, w.Events,
		against(w.P50, w.Targets.P50), against(w.P99, w.Targets.P99), against(w.Max, w.Targets.Max))
	return err
}

// against is a time and what became of its target.
func against(ms, target float64) string {
	switch {
	case target == 0:
		return fmt.Sprintf("%.1f ms", ms)
	case ms > target:
		return fmt.Sprintf("%.1f ms (target %.0f NOT MET)", ms, target)
	}
	return fmt.Sprintf("%.1f ms (target %.0f met)", ms, target)
}

// run publishes n events to an app of its own and says how long each took.
func (p pace) run(ctx context.Context, l *lab, n int) (took []time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, trialLimit)
	defer cancel()
	url, drop, err := l.database(ctx, fresh)
	if err != nil {
		return nil, err
	}
	defer drop()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	a, err := p.app(ctx, l, url)
	if err != nil {
		return nil, err
	}
	defer a.Close()
	err = a.Run(ctx, func(ctx context.Context) error {
		_, err := p.watch(ctx, a, conn, 0, p.streams) // the first of each stream is dear
		if err == nil {
			took, err = p.watch(ctx, a, conn, 1, n)
		}
		return err
	})
	return took, err
}

func (p pace) app(ctx context.Context, l *lab, postgres string) (*app.App, error) {
	b, err := l.broker()
	if err != nil {
		return nil, err
	}
	return app.New(ctx, app.Config{Name: l.name(), Schema: "weir", Postgres: postgres, NATS: b.url, Inbox: p.policy,
		Types: weir.Types{paymentMade: weir.EventOf[payment]()}, Projections: []projection.Projection{accounts},
		MaxIngestBytes: 64 << 20, Logger: warnings})
}

// watch publishes n events, one after the other, and looks every millisecond which
// of them the view shows; the streams have so many events each already.
func (p pace) watch(ctx context.Context, a *app.App, conn *pgx.Conn, before, n int) ([]time.Duration, error) {
	w := watching{pace: p, sent: make([]time.Time, 0, n), took: make([]time.Duration, n), seen: make([]int, p.streams)}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for began := time.Now(); w.found < n; {
		if len(w.sent) < n && time.Since(began) >= time.Duration(len(w.sent))*p.every {
			if err := w.send(ctx, a); err != nil {
				return nil, err
			}
		}
		if err := w.look(ctx, conn, before); err != nil {
			return nil, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return w.took, nil
}

// watching is a pace under way. Event i is of stream i modulo the streams.
type watching struct {
	pace
	sent  []time.Time
	took  []time.Duration
	seen  []int // of each stream
	found int
}

func (w *watching) send(ctx context.Context, a *app.App) error {
	m := fact(len(w.sent) % w.streams)
	w.sent = append(w.sent, time.Now())
	return a.Publisher().Send(ctx, m)
}

func (w *watching) look(ctx context.Context, conn *pgx.Conn, before int) error {
	versions, err := w.versions(ctx, conn)
	now := time.Now()
	for stream, version := range versions {
		for ; w.seen[stream] < version-before; w.seen[stream]++ {
			i := w.seen[stream]*w.streams + stream
			w.took[i] = now.Sub(w.sent[i])
			w.found++
		}
	}
	return err
}

// versions are those of the streams' rows in the view.
func (p pace) versions(ctx context.Context, conn *pgx.Conn) (map[int]int, error) {
	rows, err := conn.Query(ctx, viewVersions)
	if err != nil {
		return nil, err
	}
	all := map[int]int{}
	var stream, version int
	_, err = pgx.ForEachRow(rows, []any{&stream, &version}, func() error {
		all[stream] = version
		return nil
	})
	return all, err
}
