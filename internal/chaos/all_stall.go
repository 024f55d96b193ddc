package main

import (
	"context"
	"errors"
	"syscall"
	"time"
)

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

func (d *day) stall(ctx context.Context, o options) (*damage, error) {
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
	return d.judge(ctx, o)
}
