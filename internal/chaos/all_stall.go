package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

//go:embed sql/all_slowest.sql
var slowestSQL string

// delay is what came of facts that arrived while something stalled.
type delay struct {
	damage
	// Slowest is how long the slowest fact took from its making until it was stored, in
	// milliseconds: what an owner keeps through the stall takes as long as that, and what
	// changes hands must not wait for the broker's AckWait.
	Slowest int64 `json:"slowest_ms"`
}

// patienceAfterStall is how long after the stall the last fact may be stored.
const patienceAfterStall = 10 * time.Second

// stallLength is how long the link stalls: longer than an instance may take to look
// after its leases.
const stallLength = 10 * time.Second

// stall has an instance give leases back while its link to the broker stalls, so that
// whatever receives for them takes long to end. Somebody must work on each of them
// when the link is well again.
func stall(ctx context.Context, o options) (outcome, error) {
	d, err := newDay(ctx, setting{seed: o.seed, instances: 2, feeders: 1, writers: 1, every: 30 * time.Millisecond})
	if err != nil {
		return nil, err
	}
	d.verbose, d.began = o.verbose, time.Now()
	out, err := d.stall(ctx, o)
	return out, errors.Join(err, d.close())
}

func (d *day) stall(ctx context.Context, o options) (*delay, error) {
	watching, enough := context.WithCancel(ctx)
	defer enough()
	go d.watchShares(watching)
	if err := d.balanced(ctx); err != nil {
		return nil, err
	}
	// The first one has everything, and the second one comes back into a stall.
	d.seats[1].rest = func() time.Duration { return 2 * time.Second }
	p, err := d.seats[1].now(ctx)
	if err != nil {
		return nil, err
	}
	if err := d.seats[1].end(p, syscall.SIGTERM, time.Minute); err != nil {
		return nil, err
	}
	pause(ctx, time.Second)
	d.counts[linkStalled]++
	toBroker := d.links[1]
	toBroker.set(weather{stalled: [2]bool{true, true}})
	d.tell("the link stalls")
	pause(ctx, stallLength)
	toBroker.set(weather{})
	d.tell("the link is well again")
	pause(ctx, stallLength)
	damage, err := d.judge(ctx, o)
	if err != nil {
		return nil, err
	}
	out := &delay{damage: *damage}
	out.Slowest, err = d.slowest(ctx)
	if limit := stallLength + patienceAfterStall; out.Slowest > limit.Milliseconds() {
		out.Violations++
		out.wrong = append(out.wrong, fmt.Sprintf("the slowest fact took %d ms", out.Slowest))
		out.First = first(out.wrong)
	}
	return out, err
}

// slowest is how long the slowest fact took, in milliseconds.
func (d *day) slowest(ctx context.Context) (ms int64, err error) {
	err = d.ask(ctx, func(conn *pgx.Conn) error { return conn.QueryRow(ctx, slowestSQL).Scan(&ms) })
	return ms, err
}

func (s *delay) print(out io.Writer, o options) error {
	if o.json {
		return json.NewEncoder(out).Encode(s)
	}
	if err := s.damage.print(out, o); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "  slowest fact   %d ms\n", s.Slowest)
	return err
}
