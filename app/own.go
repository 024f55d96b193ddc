package app

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/eventstore"
	"github.com/weir-es/weir/internal/crash"
)

// Scopes of leases. The shards of an app have one owner each for everything, so that
// a stream's whole path stays in one process; a view that follows the whole log has
// its own.
const shardScope = "shards"

func viewScope(name string) string { return "view:" + name }

func handlerScope(name string) string { return "handler:" + name }

// groups are the leases that are shared evenly: the shards, and the views that follow
// the whole log together with the handlers of other services' events.
func (r *run) groups() [][]unit {
	var shards, views []unit
	for _, shard := range r.shards() {
		shards = append(shards, unit{shardScope, shard})
	}
	for _, p := range r.config.Projections {
		if p.FollowsWholeLog() {
			views = append(views, unit{viewScope(p.ProjectionName()), eventstore.WholeLog})
		}
	}
	for _, h := range r.config.Handlers {
		views = append(views, unit{handlerScope(h.Name), eventstore.WholeLog})
	}
	return [][]unit{shards, views}
}

func (r *run) scopes() (scopes []string) {
	for _, group := range r.groups() {
		for _, u := range group {
			if !slices.Contains(scopes, u.scope) {
				scopes = append(scopes, u.scope)
			}
		}
	}
	return scopes
}

// How often to look at the leases: at rest, and while something moves.
const (
	lookEvery = 500 * time.Millisecond
	moveEvery = 100 * time.Millisecond
)

// own looks at the leases again and again, takes and gives what the balance says, and
// has a crew work on what is ours, until the app stops.
func (r *run) own(alive <-chan struct{}) error {
	select {
	case <-alive:
	case <-r.soft.Done():
	case <-r.hard.Done():
	}
	c := newCrew(r)
	b := &balance{me: r.instance.ID(), groups: r.groups()}
	for r.soft.Err() == nil && r.hard.Err() == nil && c.err() == nil {
		moved, err := r.step(c, b)
		if err != nil && r.soft.Err() == nil {
			r.config.Logger.Warn("cannot look after the leases", "error", err)
		}
		if moved {
			c.rest(moveEvery)
		} else {
			c.rest(lookEvery)
		}
	}
	c.stop()
	return c.err()
}

// step is one look and what follows from it.
func (r *run) step(c *crew, b *balance) (moved bool, err error) {
	ctx, cancel := context.WithTimeout(r.soft, max(r.silentIn(), time.Second))
	defer cancel()
	look, err := r.instance.Look(ctx, r.scopes())
	if err != nil && r.isSilent() {
		c.lose(nil)
	}
	if err != nil {
		return false, err
	}
	m := b.decide(look)
	if r.isSilent() {
		m = moves{} // others may take what is ours at any moment
	}
	c.lose(m.mine)
	m.take = append(m.take, c.unknown(m.mine)...)
	for _, u := range m.give {
		if err := r.give(ctx, c, u); err != nil {
			return true, err
		}
	}
	taken, err := r.take(ctx, m.take)
	c.gain(taken)
	return len(m.give)+len(taken) > 0, err
}

// give ends the work on a lease and gives it back.
func (r *run) give(ctx context.Context, c *crew, u unit) error {
	epoch, mine := c.held[u]
	if !mine {
		return nil
	}
	c.leave(u)
	crash.At(crash.LeaseDrained)
	r.config.Logger.Debug("gives a lease back", "scope", u.scope, "shard", u.shard)
	defer crash.At(crash.LeaseGiven)
	return r.instance.Give(ctx, u.scope, []eventstore.Lease{{Shard: u.shard, Epoch: epoch}})
}

// take takes those of units that nobody is faster to.
func (r *run) take(ctx context.Context, units []unit) (map[unit]int64, error) {
	taken := map[unit]int64{}
	slices.SortFunc(units, compareUnits)
	var failed error
	for len(units) > 0 {
		scope := units[0].scope
		var shards []weir.Shard
		for len(units) > 0 && units[0].scope == scope {
			shards, units = append(shards, units[0].shard), units[1:]
		}
		leases, err := r.instance.Claim(ctx, scope, shards)
		failed = errors.Join(failed, err)
		for _, l := range leases {
			taken[unit{scope, l.Shard}] = l.Epoch
			crash.At(crash.LeaseClaimed)
		}
	}
	if len(taken) > 0 {
		r.config.Logger.Debug("took leases", "leases", len(taken))
	}
	return taken, failed
}

// isSilent reports that the others have heard nothing of this instance for nearly as long
// as makes it dead to them, by our own clock. It stops working then: what it holds of the
// broker's messages would be kept from whoever takes over.
func (r *run) isSilent() bool { return r.silentIn() <= 0 }

// limit ends a lease once isSilent, whatever hangs elsewhere.
func (r *run) limit(lease context.Context, end func()) {
	for !r.isSilent() {
		if !sleep(lease, r.silentIn()) {
			return
		}
	}
	end()
}

// silentIn is how long it is until isSilent, if no heartbeat succeeds.
func (r *run) silentIn() time.Duration {
	return eventstore.Stale - time.Second - time.Since(time.Unix(0, r.beaten.Load()))
}

// beat says every second that the instance lives, whatever else goes on. It closes
// alive after the first time.
func (r *run) beat(ctx context.Context, alive chan<- struct{}) {
	for {
		_, err := r.instance.Heartbeat(ctx)
		switch {
		case err == nil:
			r.beaten.Store(time.Now().UnixNano())
			if alive != nil {
				close(alive)
				alive = nil
				crash.At(crash.LeaseJoined)
			}
		case err != nil && ctx.Err() == nil:
			r.config.Logger.Warn("no heartbeat", "error", err)
		}
		if !sleep(ctx, time.Second) {
			return
		}
	}
}
