package app

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/eventstore"
	"github.com/weir-es/weir/internal/crash"
	"github.com/weir-es/weir/projection"
)

// crew is everything that works on the leases that are held: for each shard one that
// ingests, for each projection a worker on all of its shards. What is not touched by
// a change goes on through it.
type crew struct {
	r    *run
	held map[unit]int64 // with epochs

	ingests map[weir.Shard]*hand
	workers map[string]*hand
	late    []*hand // were told to end and have not

	mu     sync.Mutex
	failed error
	nudge  chan struct{} // something ended that should not have
}

// hand is one goroutine of a crew.
type hand struct {
	name  string // of its projection
	stop  context.CancelFunc
	ended chan struct{}
	scope map[unit]int64 // what it works on

	// abandon has one that ingests forget what it has received and not stored.
	abandon context.CancelFunc
}

func newCrew(r *run) *crew {
	return &crew{r: r, held: map[unit]int64{}, ingests: map[weir.Shard]*hand{}, workers: map[string]*hand{},
		nudge: make(chan struct{}, 1)}
}

// err is what ends the app.
func (c *crew) err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failed
}

func (c *crew) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failed = errors.Join(c.failed, err)
}

// rest waits, less when something ended.
func (c *crew) rest(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-c.nudge:
		sleep(c.r.soft, moveEvery)
	case <-c.r.soft.Done():
	case <-c.r.hard.Done():
	}
}

// begin starts a hand. It stops gracefully with the app, or when it is told to.
func (c *crew) begin(name string, scope map[unit]int64, act func(ctx context.Context) error) *hand {
	ctx, cancel := context.WithCancel(c.r.soft)
	p := &hand{name: name, stop: cancel, ended: make(chan struct{}), scope: scope, abandon: func() {}}
	go func() {
		defer close(p.ended)
		defer context.AfterFunc(c.r.hard, cancel)()
		switch err := act(ctx); {
		case errors.Is(err, weir.ErrLeaseLost):
			c.r.count.refused.Add(1)
		case err != nil:
			c.fail(err)
		}
		select {
		case c.nudge <- struct{}{}:
		default:
		}
	}()
	return p
}

func (p *hand) hasEnded() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// lose ends the work on leases that are not ours any more: somebody took them while we
// were silent, or may at any moment, or a person gave them away.
func (c *crew) lose(mine map[unit]int64) {
	before := len(c.held)
	maps.DeleteFunc(c.held, func(u unit, epoch int64) bool { return mine[u] != epoch })
	if lost := before - len(c.held); lost > 0 {
		c.r.config.Logger.Warn("another instance took over", "leases", lost)
	}
	c.arrange()
	c.abandonLate()
}

// abandonLate has those forget what they have that were told to end and have not: their
// leases are others' from now on. A stop of the app has more patience.
func (c *crew) abandonLate() {
	if c.r.soft.Err() != nil {
		return
	}
	for _, p := range c.late {
		p.abandon()
	}
}

// unknown are leases that are ours and that nobody works on: their taking was committed,
// and its answer lost. They are taken once more.
func (c *crew) unknown(mine map[unit]int64) (units []unit) {
	for u := range mine {
		if _, held := c.held[u]; !held {
			units = append(units, u)
		}
	}
	return units
}

// gain begins the work on new leases.
func (c *crew) gain(taken map[unit]int64) {
	maps.Copy(c.held, taken)
	c.arrange()
}

// leave ends the work on a lease, which is ours until it has ended.
func (c *crew) leave(u unit) {
	delete(c.held, u)
	c.arrange()
	c.abandonLate()
}

// arrange makes the hands fit what is held. All that have to end are told so at once, and
// whatever is ready begins without waiting for the others.
func (c *crew) arrange() {
	wanted := c.scopes()
	ending := c.dismiss(wanted)
	slow := await(ending, 50*time.Millisecond)
	for _, p := range slow {
		delete(wanted, p.name)
	}
	c.fill(wanted)
	if len(slow) > 0 {
		if slow = await(slow, patience); len(slow) > 0 {
			c.r.config.Logger.Warn("something takes long to end: going on without it", "parts", len(slow))
			c.late = append(c.late, slow...)
		}
		c.fill(c.scopes())
	}
	c.r.owned.Store(int64(len(c.held)))
}

// isLate reports that a projection's last worker has not ended. Another would only hang
// at the same event, with a connection of its own.
func (c *crew) isLate(name string) bool {
	c.late = slices.DeleteFunc(c.late, (*hand).hasEnded)
	return slices.ContainsFunc(c.late, func(p *hand) bool { return p.name == name })
}

// dismiss tells those to end that work on what is not held any more, and workers whose
// shards have changed. Whoever has ended by itself makes room for another.
func (c *crew) dismiss(wanted map[string]map[unit]int64) (ending []*hand) {
	for shard, p := range c.ingests {
		if _, held := c.held[unit{shardScope, shard}]; !held || p.hasEnded() {
			ending = append(ending, p)
			delete(c.ingests, shard)
		}
	}
	for name, p := range c.workers {
		if p.hasEnded() || !maps.Equal(p.scope, wanted[name]) {
			ending = append(ending, p)
			delete(c.workers, name)
		}
	}
	for _, p := range ending {
		p.stop()
		crash.At(crash.LeaseDraining)
	}
	return ending
}

// patience is how long a change waits for what has to end. What takes longer, such as a
// handler that hangs, ends by itself: it is told to, and what it writes afterwards is
// refused by the fence. Its projection waits for it, everything else goes on.
const patience = time.Second

// await waits for hands to end, so long at most, and returns those that have not.
func await(hands []*hand, limit time.Duration) (slow []*hand) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	for _, p := range hands {
		select {
		case <-p.ended:
		case <-ctx.Done():
		}
		if !p.hasEnded() {
			slow = append(slow, p)
		}
	}
	return slow
}

// scopes are what each projection works on.
func (c *crew) scopes() map[string]map[unit]int64 {
	wanted := map[string]map[unit]int64{}
	for _, p := range c.r.config.Projections {
		wanted[p.ProjectionName()] = c.heldOf(scopeOf(p))
	}
	if c.r.config.Relay {
		wanted[RelayConsumer] = c.heldOf(shardScope)
	}
	for _, h := range c.r.config.Handlers {
		wanted[h.Name] = c.heldOf(handlerScope(h.Name))
	}
	return wanted
}

// heldOf is what is held of a scope.
func (c *crew) heldOf(scope string) map[unit]int64 {
	held := map[unit]int64{}
	for u, epoch := range c.held {
		if u.scope == scope {
			held[u] = epoch
		}
	}
	return held
}

func scopeOf(p projection.Projection) string {
	if p.FollowsWholeLog() {
		return viewScope(p.ProjectionName())
	}
	return shardScope
}

// fill begins what is missing.
func (c *crew) fill(wanted map[string]map[unit]int64) {
	for u := range c.held {
		if u.scope == shardScope && c.ingests[u.shard] == nil {
			c.ingests[u.shard] = c.ingest(u.shard)
			crash.At(crash.LeaseBegun)
		}
	}
	for _, p := range c.r.config.Projections {
		c.employ(p.ProjectionName(), wanted, func(scope map[unit]int64) *hand { return c.work(p, scope) })
	}
	c.employ(RelayConsumer, wanted, func(scope map[unit]int64) *hand {
		fence := c.fence(shardScope, scope)
		return c.begin(RelayConsumer, scope, func(ctx context.Context) error { return c.r.relay(ctx, fence) })
	})
	for _, h := range c.r.config.Handlers {
		c.employ(h.Name, wanted, func(scope map[unit]int64) *hand {
			return c.begin(h.Name, scope, func(ctx context.Context) error { return c.r.handle(ctx, h) })
		})
	}
}

// ingest begins to store the facts of a shard.
func (c *crew) ingest(shard weir.Shard) *hand {
	lease, abandon := context.WithCancel(c.r.hard)
	go c.r.limit(lease, abandon)
	p := c.begin("", nil, func(ctx context.Context) error {
		defer abandon()
		return c.r.ingest(ctx, lease, shard)
	})
	p.abandon = abandon
	return p
}

// employ begins the worker of a name if there is none and something for it to do.
func (c *crew) employ(name string, wanted map[string]map[unit]int64, begin func(scope map[unit]int64) *hand) {
	if scope := wanted[name]; c.workers[name] == nil && len(scope) > 0 && !c.isLate(name) {
		c.workers[name] = begin(scope)
	}
}

// fence guards what is written for leases of one scope.
func (c *crew) fence(scope string, held map[unit]int64) eventstore.Fence {
	fence := eventstore.Fence{Scope: scope, Owner: c.r.instance.ID(), Epochs: map[weir.Shard]int64{}}
	for u, epoch := range held {
		fence.Epochs[u.shard] = epoch
	}
	return fence
}

// work runs a projection over what is held of its scope.
func (c *crew) work(p projection.Projection, scope map[unit]int64) *hand {
	w := &projection.Worker{Store: c.r.Store, Projection: p, Fence: c.fence(scopeOf(p), scope)}
	c.r.employ(p.ProjectionName(), w)
	return c.begin(p.ProjectionName(), scope, func(ctx context.Context) error {
		defer c.r.retire(p.ProjectionName(), w)
		return w.Run(ctx)
	})
}

// stop ends everything, gracefully as long as the app may be graceful.
func (c *crew) stop() {
	clear(c.held)
	c.arrange()
	for _, p := range c.late {
		select {
		case <-p.ended:
		case <-c.r.hard.Done():
			await([]*hand{p}, patience)
		}
	}
}
