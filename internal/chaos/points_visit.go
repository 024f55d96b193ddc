package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-es/weir/projection"
)

var (
	//go:embed sql/points_handler.sql
	handlerSQL string
	//go:embed sql/points_bury.sql
	burySQL string
	//go:embed sql/points_abandon.sql
	abandonSQL string
)

// How long it may take until somebody passes a point, and until everybody works again.
const (
	passLimit  = 20 * time.Second
	readyLimit = time.Minute
	// longEmpty is how long the seat of a neighbour is empty, so that others take what
	// it had before it comes back.
	longEmpty = 1500 * time.Millisecond
)

// visit has somebody die at a spot, and reports whether anybody passed there.
func (d *day) visit(ctx context.Context, p spot, end death) (bool, error) {
	if p.who == someFeeder {
		return d.loseFeeder(ctx, end)
	}
	if p.how == byNeighbour { // else whoever is to take something may have its share
		if err := d.balanced(ctx); err != nil {
			return false, err
		}
	}
	s, victim, err := d.victim(ctx, p.who)
	if err != nil {
		return false, err
	}
	if p.how == byStart {
		s.doom(end)
		if victim, err = d.replaced(ctx, s, victim); err != nil {
			return false, err
		}
	} else {
		s.expect(victim)
		if err := victim.tell(ctx, end.order(), "armed", passLimit); err != nil {
			return false, err
		}
	}
	d.tell("%s is to die at %s", victim.name, end)
	if err := d.bring(ctx, s, victim, p.how); err != nil {
		return false, err
	}
	reached, err := victim.diesWithin(ctx, passLimit)
	if err != nil || !reached {
		return false, err
	}
	return true, d.goOn(ctx, s, victim, p.how)
}

// victim is who is to die.
func (d *day) victim(ctx context.Context, who victim) (*seat, *process, error) {
	if who == theHandler {
		return d.instance(ctx, d.handlerNow)
	}
	return d.instance(ctx, func(ctx context.Context) (*seat, *process, error) { return d.richest(ctx, nil) })
}

// instance waits until there is one of a kind.
func (d *day) instance(ctx context.Context, find func(context.Context) (*seat, *process, error)) (*seat, *process, error) {
	ctx, cancel := context.WithTimeout(ctx, readyLimit)
	defer cancel()
	for {
		s, p, err := find(ctx)
		if err == nil && p != nil {
			return s, p, nil
		}
		if !pause(ctx, 50*time.Millisecond) {
			return nil, nil, fmt.Errorf("nobody is there after %s: %w", readyLimit, errors.Join(err, ctx.Err()))
		}
	}
}

// richest is the process with most leases, besides that of one seat; nil where nobody has
// any.
func (d *day) richest(ctx context.Context, besides *seat) (best *seat, p *process, err error) {
	most := 0
	for _, s := range d.seats {
		if s == besides {
			continue
		}
		q, err := s.now(ctx)
		if err != nil {
			return nil, nil, err
		}
		shards, err := d.holdings(ctx, q.name)
		if err != nil {
			return nil, nil, err
		}
		if len(shards) > most {
			best, p, most = s, q, len(shards)
		}
	}
	return best, p, nil
}

// handlerNow is who handled the last event, if that is still there.
func (d *day) handlerNow(ctx context.Context) (s *seat, p *process, err error) {
	var name string
	err = d.ask(ctx, func(conn *pgx.Conn) error { return conn.QueryRow(ctx, handlerSQL).Scan(&name) })
	for _, s := range d.seats {
		if p, err := s.now(ctx); err != nil || p.name == name {
			return s, p, err
		}
	}
	return nil, nil, err
}

// bring does what has a process pass a point.
func (d *day) bring(ctx context.Context, s *seat, p *process, how means) error {
	switch how {
	case byNeighbour:
		other, q, err := d.instance(ctx, func(ctx context.Context) (*seat, *process, error) { return d.richest(ctx, s) })
		if err != nil {
			return err
		}
		other.linger(longEmpty)
		return other.end(q, syscall.SIGTERM, readyLimit)
	case byStop:
		return p.command.Process.Signal(syscall.SIGTERM)
	case byRebuild:
		return p.order("rebuild")
	}
	return nil
}

// goOn has the others take the dead for dead at once, so that a sweep is short; what five
// seconds of silence are for, other days show. They end what it had begun.
func (d *day) goOn(ctx context.Context, s *seat, dead *process, how means) error {
	err := d.ask(ctx, func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, burySQL, dead.name)
		return err
	})
	if err != nil || how != byRebuild {
		return err
	}
	if err := d.ask(ctx, func(conn *pgx.Conn) error { _, err := conn.Exec(ctx, abandonSQL); return err }); err != nil {
		return err
	}
	_, heir, err := d.instance(ctx, func(ctx context.Context) (*seat, *process, error) { return d.richest(ctx, s) })
	if err != nil {
		return err
	}
	d.tell("%s goes on with the rebuild", heir.name)
	if err := heir.order("rebuild"); err != nil {
		return err
	}
	w, err := heir.await(ctx, "rebuilt", readyLimit)
	if err == nil && w.Text != "" {
		d.fail(fmt.Errorf("%s cannot go on with the rebuild of %s: %s", heir.name, dead.name, w.Text))
	}
	return err
}

// replaced stops a process cleanly and returns the one that follows it.
func (d *day) replaced(ctx context.Context, s *seat, p *process) (*process, error) {
	if err := s.end(p, syscall.SIGTERM, readyLimit); err != nil {
		return nil, err
	}
	for {
		q, err := s.now(ctx)
		if err != nil || q != p {
			return q, err
		}
		if !pause(ctx, 10*time.Millisecond) {
			return nil, ctx.Err()
		}
	}
}

// loseFeeder has a producer die and another go on with its outbox.
func (d *day) loseFeeder(ctx context.Context, end death) (bool, error) {
	n := end.Nth % len(d.feeders)
	p := d.feeders[n]
	if err := p.tell(ctx, end.order(), "armed", passLimit); err != nil {
		return false, err
	}
	reached, err := p.diesWithin(ctx, passLimit)
	if err != nil || !reached {
		return false, err
	}
	d.feeders[n], err = launchFeeder(ctx, d.producer[n])
	return true, err
}

// diesWithin reports whether a process killed itself at its point within a time. If not,
// it lives on.
func (p *process) diesWithin(ctx context.Context, limit time.Duration) (bool, error) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-p.ended:
	case <-timer.C:
		return false, p.tell(ctx, "live", "lives", limit)
	case <-ctx.Done():
		return false, ctx.Err()
	}
	for {
		select {
		case w := <-p.words:
			if w.Say == "dies" {
				return true, nil
			}
		default:
			return false, fmt.Errorf("%s ended before it passed its point: %w\n%s", p.name, p.err, lastOf(p.problems.text(), 600))
		}
	}
}

// rebuild makes a view anew, and says how that went.
func (i *instance) rebuild(ctx context.Context) {
	_, err := ordered.Rebuild(ctx, i.app.Store, projection.Rebuild{})
	w := word{Say: "rebuilt"}
	if err != nil {
		w.Text = err.Error()
		fmt.Fprintln(os.Stderr, "rebuild:", err)
	}
	i.say(w)
}
