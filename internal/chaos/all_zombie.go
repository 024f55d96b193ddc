package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-es/weir"
)

//go:embed sql/all_entered.sql
var enteredSQL string

// revenant is what came of an owner that was stopped inside its transaction.
type revenant struct {
	damage
	// Refused counts the transactions of the old owner that found its lease taken. It
	// is none where the owner looks at its leases before it tries.
	Refused int64 `json:"refused"`
	// Refusal is what the database said to the write it was about to do.
	Refusal string `json:"refusal"`
}

// What the zombie does.
const (
	trapName    = "trap"
	zombieSleep = 15 * time.Second
)

// zombie stops the owner of a shard while it applies an event, has another one take
// over, and lets the old one go on: its write must not get through.
func zombie(ctx context.Context, o options) (outcome, error) {
	d, err := newDay(ctx, setting{seed: o.seed, instances: o.instances, feeders: 1, writers: 1, every: 60 * time.Millisecond, trap: trapName})
	if err != nil {
		return nil, err
	}
	d.verbose, d.began = o.verbose, time.Now()
	out, err := d.zombie(ctx, o)
	return out, errors.Join(err, d.close())
}

func (d *day) zombie(ctx context.Context, o options) (*revenant, error) {
	if err := d.balanced(ctx); err != nil {
		return nil, err
	}
	p, err := d.springTrap(ctx)
	if err != nil {
		return nil, err
	}
	p.command.Process.Signal(sigStop)
	d.counts[stopped]++
	d.tell("%s is stopped in its transaction", p.name)
	pause(ctx, zombieSleep)
	if err := d.wasTakenOver(ctx, p); err != nil {
		return nil, err
	}
	if err := p.order("go on"); err != nil {
		return nil, err
	}
	p.command.Process.Signal(sigContinue)
	d.tell("%s goes on", p.name)
	said, err := d.refusal(ctx, p)
	if err != nil {
		return nil, err
	}
	damage, err := d.judge(ctx, o)
	if err != nil {
		return nil, err
	}
	out := &revenant{*damage, said.Refused, said.Text}
	if out.Refusal == "" {
		out.Violations++
		out.wrong = append(out.wrong, "the write of the old owner was not refused")
		out.First = first(out.wrong)
	}
	return out, nil
}

// springTrap has the owner of a shard stop inside a transaction, and returns it. The
// others pass through the trap.
func (d *day) springTrap(ctx context.Context) (*process, error) {
	var owner *process
	for _, s := range d.seats {
		p, err := s.now(ctx)
		if err != nil {
			return nil, err
		}
		shards, err := d.holdings(ctx, p.name)
		if err != nil {
			return nil, err
		}
		if slices.Contains(shards, topicOf(0).Shard(weir.DefaultShards)) {
			owner = p
		} else if err := p.order("go on"); err != nil {
			return nil, err
		}
	}
	if owner == nil {
		return nil, errors.New("nobody has the shard of the trap")
	}
	if err := d.feeders[0].order(trapName); err != nil {
		return nil, err
	}
	_, err := owner.await(ctx, "trapped", time.Minute)
	return owner, err
}

// wasTakenOver makes sure that another one has written what the stopped one could not.
func (d *day) wasTakenOver(ctx context.Context, p *process) error {
	return d.ask(ctx, func(conn *pgx.Conn) error {
		rows, _ := conn.Query(ctx, enteredSQL, trapName)
		writers, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err == nil && (len(writers) != 1 || writers[0] == p.name) {
			return fmt.Errorf("the event in the trap of %s was written by %v", p.name, writers)
		}
		return err
	})
}

// refusal waits until the old owner says what came of its write, or for long enough.
func (d *day) refusal(ctx context.Context, p *process) (word, error) {
	for end := time.Now().Add(20 * time.Second); ; {
		if err := p.order("stats"); err != nil {
			return word{}, err
		}
		w, err := p.await(ctx, "stats", time.Minute)
		if err != nil || w.Text != "" || time.Now().After(end) {
			return w, err
		}
		pause(ctx, 50*time.Millisecond)
	}
}

func (r *revenant) print(out io.Writer, o options) error {
	if o.json {
		return json.NewEncoder(out).Encode(r)
	}
	if err := r.damage.print(out, o); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "  refused        %d, %s\n", r.Refused, r.Refusal)
	return err
}
