package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-es/weir"
)

var (
	//go:embed sql/all_terminate.sql
	terminateSQL string
	//go:embed sql/all_holdings.sql
	holdingsSQL string
	//go:embed sql/all_next.sql
	nextSQL string
	//go:embed sql/all_shares.sql
	sharesSQL string
)

// departure is an instance that ended, and what it had.
type departure struct {
	name   string
	at     time.Time
	shards []weir.Shard
}

// suffer has everything of the schedule go wrong at its time, and returns when all of
// it is mended.
func (d *day) suffer(ctx context.Context, all []fault) {
	start := time.Now()
	watching, enough := context.WithCancel(ctx)
	defer enough()
	go d.watchShares(watching)
	var g sync.WaitGroup
	for _, f := range all {
		if !pause(ctx, time.Until(start.Add(f.at))) {
			break
		}
		g.Go(func() {
			if err := d.inflict(ctx, f); err != nil && ctx.Err() == nil {
				d.fail(fmt.Errorf("fault %s: %w", f, err))
			}
		})
	}
	g.Wait()
}

// watchShares tells who holds how much, now and then.
func (d *day) watchShares(ctx context.Context) {
	for d.verbose && pause(ctx, 2*time.Second) {
		d.ask(ctx, func(conn *pgx.Conn) error {
			shares, err := collect(ctx, conn, sharesSQL, func(s *string) []any { return []any{s} })
			d.tell("leases: %s", strings.Join(shares, "; "))
			return err
		})
	}
}

// inflict does one fault, and mends it.
func (d *day) inflict(ctx context.Context, f fault) error {
	var err error
	d.tell("begins: %s", f)
	defer func() { d.tell("is over: %s", f) }()
	switch f.what {
	case killed:
		err = d.kill(ctx, d.seats[f.whom])
	case stopped:
		err = d.pauseInstance(ctx, d.seats[f.whom], f.length)
	case backends:
		err = d.terminate(ctx, f)
	case postgresDown:
		err = errors.Join(d.postgres.Stop(ctx, "immediate"), d.lie(ctx, f), d.postgres.Resume(ctx))
	case brokerDown, brokerLost, brokerDrained, brokerOlder:
		err = d.breakBroker(ctx, f)
	case brokerFull:
		err = d.feeders[f.whom%len(d.feeders)].order("flood")
	default:
		d.storm(ctx, d.links[f.whom], f)
	}
	if err == nil {
		d.mu.Lock()
		d.counts[f.what]++
		d.mu.Unlock()
	}
	return err
}

// lie is the time that something is down.
func (d *day) lie(ctx context.Context, f fault) error {
	pause(ctx, f.length)
	return ctx.Err()
}

// kill ends an instance at once. Another one takes its seat.
func (d *day) kill(ctx context.Context, s *seat) error {
	p, err := s.now(ctx)
	if err != nil {
		return err
	}
	gone := departure{name: p.name}
	gone.shards, err = d.holdings(ctx, p.name) // where the database is down, it is not measured
	d.tell("%s is killed, with %d shards, %v", p.name, len(gone.shards), err)
	gone.at = time.Now()
	if err := s.end(p, syscall.SIGKILL, time.Minute); err != nil {
		return err
	}
	d.mu.Lock()
	d.kills = append(d.kills, gone)
	d.mu.Unlock()
	return nil
}

func (d *day) holdings(ctx context.Context, name string) (shards []weir.Shard, err error) {
	err = d.ask(ctx, func(conn *pgx.Conn) error {
		rows, _ := conn.Query(ctx, holdingsSQL, name)
		shards, err = pgx.CollectRows(rows, pgx.RowTo[weir.Shard])
		return err
	})
	return shards, err
}

// pauseInstance stops a process for a while. If it is killed meanwhile, it is over.
func (d *day) pauseInstance(ctx context.Context, s *seat, length time.Duration) error {
	p, err := s.now(ctx)
	if err != nil {
		return err
	}
	p.command.Process.Signal(sigStop)
	pause(ctx, length)
	p.command.Process.Signal(sigContinue)
	return nil
}

func (d *day) terminate(ctx context.Context, f fault) error {
	err := d.ask(ctx, func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, terminateSQL, 1+f.word%6, fmt.Sprint(f.word))
		return err
	})
	if isOutage(err) {
		return nil // it is down anyway
	}
	return err
}

// storm has bad weather on a link.
func (d *day) storm(ctx context.Context, l *link, f fault) {
	w := map[mishap]weather{
		linkCut:      {cut: true},
		linkDelayed:  {delay: 20*time.Millisecond + time.Duration(f.word%200)*time.Millisecond},
		linkHalfOpen: {stalled: [2]bool{f.word%2 == 0, f.word%2 == 1}},
		linkStalled:  {stalled: [2]bool{true, true}},
	}[f.what]
	l.set(w)
	pause(ctx, f.length)
	l.set(weather{})
}

// breakBroker stops the broker and starts it again. What it loses with its disk is
// what it had acknowledged and nobody had stored: the producers are told, or the loss
// is made when there is no such thing.
func (d *day) breakBroker(ctx context.Context, f fault) error {
	d.broker.mu.Lock()
	defer d.broker.mu.Unlock()
	gently := f.word%2 == 0
	switch f.what {
	case brokerDrained:
		return d.whileDrained(ctx, func() error { return d.broker.while(ctx, gently, f.length, d.broker.forget) })
	case brokerDown:
		return d.broker.while(ctx, gently, f.length, d.broker.keep)
	case brokerLost:
		return errors.Join(d.broker.while(ctx, gently, f.length, d.broker.forget), d.repeat(ctx))
	}
	if d.broker.copies == 0 { // there is no older copy yet
		if err := d.broker.while(ctx, gently, 0, d.broker.keep); err != nil {
			return err
		}
		pause(ctx, 3*time.Second)
	}
	return errors.Join(d.broker.while(ctx, gently, f.length, d.broker.goBack), d.repeat(ctx))
}

// patienceOfFeeders is how long a feeder may take to do what it is told, behind links
// that are down and a broker that is full.
const patienceOfFeeders = 90 * time.Second

func (d *day) tellFeeders(ctx context.Context, what, done string) error {
	var g sync.WaitGroup
	errs := make([]error, len(d.feeders))
	for i, p := range d.feeders {
		g.Go(func() { errs[i] = p.tell(ctx, what, done, patienceOfFeeders) })
	}
	g.Wait()
	err := errors.Join(errs...)
	if err != nil {
		d.tell("%s", d.diagnosis(ctx))
	}
	return err
}

func (d *day) repeat(ctx context.Context) error { return d.tellFeeders(ctx, "repeat", "repeated") }

// whileDrained does something while nothing that was published is not stored.
func (d *day) whileDrained(ctx context.Context, do func() error) error {
	if err := d.tellFeeders(ctx, "pause", "paused"); err != nil {
		return err
	}
	err := d.drain(ctx)
	if err == nil {
		err = do()
	}
	for _, p := range d.feeders {
		err = errors.Join(err, p.order("resume"))
	}
	return err
}

// drain waits until everything that was published is stored.
func (d *day) drain(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patienceOfFeeders)
	defer cancel()
	for {
		promises, err := readJournals(d.dir)
		if err != nil {
			return err
		}
		left, err := missing(ctx, d.url, promises["published"])
		if err == nil && len(left) == 0 {
			return nil
		}
		if !pause(ctx, 100*time.Millisecond) {
			return fmt.Errorf("%d published messages are not stored after %s, the first is %v: %w", len(left), patienceOfFeeders, first(left), ctx.Err())
		}
	}
}

func first[T any](all []T) (zero T) {
	if len(all) > 0 {
		return all[0]
	}
	return zero
}

// failovers are, for each departure, how long it took until another process wrote for
// one of its shards. Where nobody had anything to write it is left out.
func (d *day) failovers(ctx context.Context, gone []departure) (all []time.Duration, err error) {
	err = d.ask(ctx, func(conn *pgx.Conn) error {
		for _, g := range gone {
			var at *time.Time
			if err := conn.QueryRow(ctx, nextSQL, g.at, g.shards, g.name).Scan(&at); err != nil {
				return err
			}
			if at != nil && len(g.shards) > 0 {
				all = append(all, at.Sub(g.at))
			}
		}
		return nil
	})
	return all, err
}
