package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"syscall"
	"time"

	"github.com/weir-es/weir"
)

// handover is what came of a day on which instances only end, one after the other.
type handover struct {
	damage
	Stop failover `json:"stop_ms"` // the same, of those that ended cleanly
}

// departures is how many instances end in each way.
const departures = 10

// What others may take, as a median, to go on with what one had.
const (
	maxAfterKill = 10 * time.Second
	maxAfterStop = time.Second
)

// handOver kills instances under load, and stops others cleanly, and measures how long
// it takes until somebody else writes for their shards.
func handOver(ctx context.Context, o options) (outcome, error) {
	d, err := newDay(ctx, setting{seed: o.seed, instances: o.instances, feeders: 3, writers: 3, every: 60 * time.Millisecond})
	if err != nil {
		return nil, err
	}
	d.verbose, d.began = o.verbose, time.Now()
	out, err := d.handOver(ctx, o)
	return out, errors.Join(err, d.close())
}

func (d *day) handOver(ctx context.Context, o options) (*handover, error) {
	dice := dice(o.seed, "departures")
	var left []departure
	for n := range departures {
		if err := d.depart(ctx, d.seats[dice.IntN(len(d.seats))], syscall.SIGKILL, &d.kills); err != nil {
			return nil, fmt.Errorf("kill %d: %w", n, err)
		}
		d.counts[killed]++
		if err := d.depart(ctx, d.seats[dice.IntN(len(d.seats))], syscall.SIGTERM, &left); err != nil {
			return nil, fmt.Errorf("stop %d: %w", n, err)
		}
	}
	if err := d.balanced(ctx); err != nil {
		return nil, err
	}
	damage, err := d.judge(ctx, o)
	if err != nil {
		return nil, err
	}
	took, err := d.failovers(ctx, left)
	out := &handover{*damage, failoverOf(took)}
	out.within("SIGKILL", out.Failover, maxAfterKill)
	out.within("SIGTERM", out.Stop, maxAfterStop)
	return out, err
}

// within notes a median that is too long.
func (h *handover) within(what string, f failover, limit time.Duration) {
	if f.Median <= 0 || f.Median > millis(limit) {
		h.Violations++
		h.wrong = append(h.wrong, fmt.Sprintf("after %s the median is %.0f ms, and not below %s", what, f.Median, limit))
		h.First = first(h.wrong)
	}
}

// depart waits until the shares are equal, and ends an instance.
func (d *day) depart(ctx context.Context, s *seat, signal syscall.Signal, into *[]departure) error {
	if err := d.balanced(ctx); err != nil {
		return err
	}
	p, err := s.now(ctx)
	if err != nil {
		return err
	}
	shards, err := d.holdings(ctx, p.name)
	if err != nil {
		return err
	}
	*into = append(*into, departure{p.name, time.Now(), shards})
	d.tell("%s gets %s, with %d shards", p.name, signal, len(shards))
	return s.end(p, signal, time.Minute)
}

// balanced waits until every instance has its share, and has written for it.
func (d *day) balanced(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		shares, err := d.shares(ctx)
		if err == nil && areEqual(shares) {
			return nil
		}
		if !pause(ctx, 100*time.Millisecond) {
			return fmt.Errorf("shares are not equal after a minute: %v: %w", shares, errors.Join(err, ctx.Err()))
		}
	}
}

func (d *day) shares(ctx context.Context) (all []int, err error) {
	for _, s := range d.seats {
		p, err := s.now(ctx)
		if err != nil {
			return nil, err
		}
		shards, err := d.holdings(ctx, p.name)
		if err != nil {
			return nil, err
		}
		all = append(all, len(shards))
	}
	return all, nil
}

func areEqual(shares []int) bool {
	most := (weir.DefaultShards + len(shares) - 1) / len(shares)
	sum := 0
	for _, n := range shares {
		if sum += n; n == 0 || n > most {
			return false
		}
	}
	return sum == weir.DefaultShards
}

func (h *handover) print(out io.Writer, o options) error {
	if o.json {
		return json.NewEncoder(out).Encode(h)
	}
	if err := h.damage.print(out, o); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "  clean stop     median %.0f ms, max %.0f ms\n", h.Stop.Median, h.Stop.Max)
	return err
}
