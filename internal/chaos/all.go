package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-es/weir/internal/crash"
	"github.com/weir-es/weir/transport"
)

// allOptions are the flags of the day on which everything goes wrong.
type allOptions struct {
	instances int
	verbose   bool

	// Of points.
	only   string
	sample int
	list   bool
}

func (a *allOptions) flags(flags *flag.FlagSet) {
	flags.IntVar(&a.instances, "instances", 4, "all, failover, zombie, points: how many processes of the service there are")
	flags.StringVar(&a.only, "only", "", "points: die at this one alone")
	flags.IntVar(&a.sample, "sample", 0, "points: die at so many of them, which the seed draws; 0 is all")
	flags.BoolVar(&a.list, "list", false, "points: print them, and do nothing")
	flags.BoolVar(&a.verbose, "verbose", false, "all, failover, zombie, stall, points: say on standard error what goes on, and what each process said when it has ended")
}

func (a allOptions) check() error {
	if a.instances < 1 || a.instances > 16 {
		return errors.New("-instances must be between 1 and 16")
	}
	if a.only != "" && crash.Find(a.only) == nil {
		return fmt.Errorf("no point is called %q; -list prints them", a.only)
	}
	return nil
}

// skewOfAll is how wrong clocks are.
const skewOfAll = time.Hour

// settleLimit is how long everything may take to settle once all is mended.
const settleLimit = 2 * time.Minute

// all has everything go wrong that a schedule says, and has the tables checked when it
// is over.
func all(ctx context.Context, o options) (outcome, error) {
	return playAll(ctx, o, nil)
}

// playAll lets look see the database in the end, before it is gone.
func playAll(ctx context.Context, o options, look func(*day) error) (*damage, error) {
	d, err := newDay(ctx, setting{seed: o.seed, instances: o.instances, feeders: 3, writers: 3, skew: skewOfAll, every: 150 * time.Millisecond})
	if err != nil {
		return nil, err
	}
	d.verbose = o.verbose
	d.began = time.Now()
	for _, s := range d.seats {
		s.hear = func(p *process) { d.tell("%s: %v\n%s", p.name, p.err, p.problems.text()) }
	}
	d.suffer(ctx, schedule(o.seed, o.length(), o.instances, len(d.links)))
	pause(ctx, o.length()-time.Since(d.began))
	out, err := d.judge(ctx, o)
	if err == nil && look != nil {
		err = look(d)
	}
	return out, errors.Join(err, d.close())
}

// judge ends the load, waits until everything has settled, stops the service and
// looks at what is there.
func (d *day) judge(ctx context.Context, o options) (*damage, error) {
	out := &damage{Seed: o.seed, Faults: d.faults()}
	var wrong findings
	d.tell("all is mended")
	if err := d.settle(ctx); err != nil {
		wrong.add("it did not settle: %v\n%s", err, d.diagnosis(ctx))
	}
	for _, s := range d.seats {
		if err := s.quit(40 * time.Second); err != nil {
			wrong.add("%v", err)
		}
	}
	d.keepers.Wait()
	d.tell("the service has ended")
	for _, s := range d.seats {
		for _, text := range s.faults {
			wrong.add("%s", text)
		}
	}
	for _, err := range d.errs {
		wrong.add("%v", err)
	}
	found, events, err := d.inspect(ctx)
	if err != nil {
		return nil, err
	}
	out.Events, out.wrong = events, append(wrong.named, found.named...)
	out.Violations = wrong.count + found.count
	out.First = first(out.wrong)
	took, err := d.failovers(ctx, d.kills)
	out.Failover = failoverOf(took)
	return out, err
}

// inspect reads the tables and checks them.
func (d *day) inspect(ctx context.Context) (f *findings, events int, err error) {
	promises, err := readJournals(d.dir)
	if err != nil {
		return nil, 0, err
	}
	err = d.ask(ctx, func(conn *pgx.Conn) error {
		t, err := readTables(ctx, conn)
		t.relayed = d.relayed
		f, events = check(t, promises), len(t.events)
		return err
	})
	return f, events, err
}

// faults are how many of each kind there were.
func (d *day) faults() map[string]int {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := map[string]int{"clocks": d.clocks, "total": d.clocks}
	for what, n := range d.counts {
		all[string(what)] = n
		all["total"] += n
	}
	return all
}

// settle ends the load and waits until everything that was promised is stored, and
// everything stored is applied.
func (d *day) settle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, settleLimit)
	defer cancel()
	if err := d.quiet(ctx); err != nil {
		return err
	}
	d.tell("nobody writes any more")
	broker, err := transport.Connect(ctx, transport.Config{URL: d.broker.url, Namespace: "weir", Name: "judge"})
	if err != nil {
		return err
	}
	defer broker.Close()
	for said := ""; ; {
		left, err := d.unsettled(ctx, broker)
		if err == nil && len(left) == 0 {
			d.tell("everything has settled")
			return nil
		}
		if text := fmt.Sprint(first(left), err); text != said {
			d.tell("%d things are left, the first is: %s", len(left), text)
			said = text
		}
		if !pause(ctx, 250*time.Millisecond) {
			return fmt.Errorf("after %s: %d things are left, the first is: %v: %w", settleLimit, len(left), first(left), errors.Join(err, ctx.Err()))
		}
	}
}

// quiet ends the load.
func (d *day) quiet(ctx context.Context) error {
	var g sync.WaitGroup
	errs := make([]error, len(d.seats)+1)
	g.Go(func() { errs[len(d.seats)] = d.tellFeeders(ctx, "quiet", "quiet") })
	for i, s := range d.seats {
		g.Go(func() {
			p, err := s.now(ctx)
			if err == nil {
				err = p.tell(ctx, "quiet", "quiet", time.Minute)
			}
			errs[i] = err
		})
	}
	g.Wait()
	return errors.Join(errs...)
}

// unsettled says what is not done yet: with the broker, and in the tables.
func (d *day) unsettled(ctx context.Context, broker *transport.Conn) (left []string, err error) {
	backlog, err := broker.Backlog(ctx)
	if err != nil {
		return nil, err
	}
	if !backlog.IsDone() {
		return []string{fmt.Sprintf("the broker has %d messages waiting and %d not acknowledged", backlog.Waiting, backlog.Unacked)}, nil
	}
	err = d.ask(ctx, func(conn *pgx.Conn) error {
		t, err := readTables(ctx, conn)
		t.relayed = d.relayed
		left = slices.Concat(t.behind(), t.left, t.unhandled())
		return err
	})
	return left, err
}

// damage is what came of a day.
type damage struct {
	Seed       uint64         `json:"seed"`
	Events     int            `json:"events"`
	Faults     map[string]int `json:"faults"`
	Violations int            `json:"violations"`
	First      string         `json:"first_violation"`
	Failover   failover       `json:"failover_ms"`

	wrong []string
}

// failover is how long others took to go on with what one had, in milliseconds.
type failover struct {
	Median float64 `json:"median"`
	Max    float64 `json:"max"`
}

func failoverOf(took []time.Duration) failover {
	if len(took) == 0 {
		return failover{}
	}
	slices.Sort(took)
	return failover{millis(took[len(took)/2]), millis(took[len(took)-1])}
}

func (d *damage) print(out io.Writer, o options) error {
	if o.json {
		return json.NewEncoder(out).Encode(d)
	}
	fmt.Fprintf(out, "%s, seed %d: %d instances, %d events, %d violations\n", o.name, d.Seed, o.instances, d.Events, d.Violations)
	for _, what := range slices.Sorted(maps.Keys(d.Faults)) {
		fmt.Fprintf(out, "  %-14s %d\n", what, d.Faults[what])
	}
	_, err := fmt.Fprintf(out, "  failover       median %.0f ms, max %.0f ms\n", d.Failover.Median, d.Failover.Max)
	return err
}

func (d *damage) complaint() error {
	var all []error
	for _, text := range d.wrong {
		all = append(all, errors.New(text))
	}
	if d.Violations > 0 {
		all = append(all, fmt.Errorf("%d violations", d.Violations))
	}
	return errors.Join(all...)
}
