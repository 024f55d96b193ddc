package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v5"
	"golang.org/x/sync/errgroup"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/eventstore"
	"github.com/weir-es/weir/projection"
)

// run is one life of an app. Two contexts: when soft ends, everything finishes
// what it has; when hard ends, everything drops what it has, which loses nothing
// either, since nothing was acknowledged before it was stored.
type run struct {
	*App
	instance   *eventstore.Instance
	soft, hard context.Context
}

// Scopes of leases. All shards of an app have one owner, so that a stream's whole
// path stays in one process; a view that follows the whole log has its own.
const shardScope = "shards"

func viewScope(name string) string { return "view:" + name }

func (r *run) run(stop func(), bodies []func(context.Context) error) error {
	hard, drop := context.WithCancel(r.hard)
	defer drop()
	r.hard = hard
	defer r.instance.Disconnect(context.WithoutCancel(hard))

	var support, work errgroup.Group
	support.Go(func() error { return r.Store.Run(hard) })
	var bodyErr error
	work.Go(func() error { bodyErr = bodiesDone(r.soft, stop, bodies); return nil })
	work.Go(func() error { defer stop(); return r.own() })
	go r.limitStop(drop)
	err := work.Wait()
	if hard.Err() == nil {
		err = errors.Join(err, r.leave())
	}
	drop()
	return errors.Join(bodyErr, err, support.Wait())
}

// limitStop turns a graceful stop that takes too long into an abrupt one.
func (r *run) limitStop(drop func()) {
	select {
	case <-r.soft.Done():
	case <-r.hard.Done():
		return
	}
	timer := time.NewTimer(r.config.StopTimeout)
	defer timer.Stop()
	select {
	case <-timer.C:
		r.config.Logger.Warn("the stop takes too long: dropping what is not done", "after", r.config.StopTimeout)
		drop()
	case <-r.hard.Done():
	}
}

func (r *run) leave() error {
	ctx, cancel := context.WithTimeout(r.hard, 5*time.Second)
	defer cancel()
	if err := r.instance.Leave(ctx); err != nil {
		r.config.Logger.Warn("leases stay until they are stale", "error", err)
	}
	return nil
}

// own claims the leases, works while it holds them, and starts over when somebody
// else took them.
func (r *run) own() error {
	wait := backoff.NewExponentialBackOff()
	for r.soft.Err() == nil && r.hard.Err() == nil {
		err := r.term()
		if r.hard.Err() != nil {
			return nil
		}
		if err != nil && !errors.Is(err, weir.ErrLeaseLost) {
			return err
		}
		if err != nil {
			r.config.Logger.Warn("another instance took over", "error", err)
		}
		sleep(r.soft, wait.NextBackOff())
	}
	return nil
}

// term is one time of ownership: from the first heartbeat to the loss of a lease
// or to the end.
func (r *run) term() error {
	for waited := false; ; waited = true {
		held, err := r.claim()
		switch {
		case r.soft.Err() != nil:
			return nil
		case err != nil && !eventstore.IsTransient(err):
			return err
		case held != nil:
			return r.work(held)
		case !waited:
			r.config.Logger.Info("waiting for the leases of another instance, or of one that died a moment ago", "error", err)
		}
		sleep(r.soft, 200*time.Millisecond)
	}
}

// claim lives and takes all leases, or none.
func (r *run) claim() (map[string][]eventstore.Lease, error) {
	if _, err := r.instance.Heartbeat(r.soft); err != nil {
		return nil, err
	}
	return r.instance.ClaimAll(r.soft, r.scopes())
}

func (r *run) scopes() map[string][]weir.Shard {
	scopes := map[string][]weir.Shard{shardScope: r.shards()}
	for _, p := range r.config.Projections {
		if p.FollowsWholeLog() {
			scopes[viewScope(p.ProjectionName())] = []weir.Shard{eventstore.WholeLog}
		}
	}
	return scopes
}

func (r *run) shards() []weir.Shard {
	shards := make([]weir.Shard, r.Store.Shards())
	for i := range shards {
		shards[i] = weir.Shard(i)
	}
	return shards
}

// work runs everything that needs the leases. The first part that fails ends the
// others, gracefully.
func (r *run) work(held map[string][]eventstore.Lease) error {
	// The group's context is not what the parts work under: when one fails, the
	// others get to finish what they have.
	g, failed := errgroup.WithContext(r.hard)
	soft, cancel := context.WithCancel(r.soft)
	defer cancel()
	defer context.AfterFunc(failed, cancel)()

	r.owner.Store(true)
	defer r.owner.Store(false)
	total := 0
	for _, leases := range held {
		total += len(leases)
	}
	g.Go(func() error { return r.heartbeat(soft, total) })
	g.Go(func() error { return r.purge(soft) })
	for _, shard := range r.shards() {
		g.Go(func() error { return r.ingest(soft, shard) })
	}
	for name, worker := range r.newWorkers(held) {
		g.Go(func() error {
			defer r.retire(name, worker)
			return worker.Run(soft)
		})
	}
	return g.Wait()
}

// heartbeat says every second that the instance lives, and notices when it was
// declared dead meanwhile.
func (r *run) heartbeat(ctx context.Context, leases int) error {
	for sleep(ctx, time.Second) {
		held, err := r.instance.Heartbeat(ctx)
		if err != nil {
			if ctx.Err() == nil {
				r.config.Logger.Warn("no heartbeat", "error", err)
			}
			continue
		}
		if held < leases {
			return fmt.Errorf("%d of %d leases are left: %w", held, leases, weir.ErrLeaseLost)
		}
	}
	return nil
}

// purgeEvery is how often the broker is relieved of what is stored.
const purgeEvery = 10 * time.Second

// purge makes room in the ingest stream, so that a full one is back-pressure and
// never a standstill.
func (r *run) purge(ctx context.Context) error {
	for sleep(ctx, purgeEvery) {
		if _, err := r.broker.Purge(ctx, 0); err != nil && ctx.Err() == nil {
			r.config.Logger.Warn("cannot purge what is stored", "error", err)
		}
	}
	return nil
}

func (r *run) newWorkers(held map[string][]eventstore.Lease) map[string]*projection.Worker {
	workers := map[string]*projection.Worker{}
	for _, p := range r.config.Projections {
		scope := shardScope
		if p.FollowsWholeLog() {
			scope = viewScope(p.ProjectionName())
		}
		workers[p.ProjectionName()] = &projection.Worker{Store: r.Store, Projection: p, Fence: r.instance.Guard(scope, held[scope])}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, w := range workers {
		r.workers[name] = w
	}
	return workers
}

// retire keeps the counts of a worker that ended.
func (r *run) retire(name string, w *projection.Worker) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.earlier[name] = r.earlier[name].Plus(w.Progress().Counts)
	delete(r.workers, name)
}

// sleep reports whether ctx still lives after d.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// sorted are the keys of a map, in order.
func sorted[V any](m map[string]V) []string {
	var keys []string
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}
