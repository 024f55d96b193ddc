package app

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/eventstore"
	"github.com/weir-es/weir/internal/crash"
	"github.com/weir-es/weir/projection"
)

// run is one life of an app. Two contexts: when soft ends, everything finishes
// what it has; when hard ends, everything drops what it has, which loses nothing
// either, since nothing was acknowledged before it was stored.
type run struct {
	*App
	instance   *eventstore.Instance
	soft, hard context.Context
	beaten     atomic.Int64 // when the last heartbeat succeeded, in nanoseconds

	declaring sync.Mutex
	declared  time.Time // when the last declaration that succeeded began
}

func (r *run) run(stop func(), bodies []func(context.Context) error) error {
	hard, drop := context.WithCancel(r.hard)
	defer drop()
	r.hard = hard
	defer r.instance.Disconnect(context.WithoutCancel(hard))

	var support, work, life errgroup.Group
	support.Go(func() error { return r.Store.Run(hard) })
	support.Go(func() error { return r.purge(hard) })
	living, die := context.WithCancel(hard)
	alive := make(chan struct{})
	life.Go(func() error { r.beat(living, alive); return nil })
	var bodyErr error
	work.Go(func() error { bodyErr = bodiesDone(r.soft, stop, bodies); return nil })
	work.Go(func() error { defer stop(); return r.own(alive) })
	go r.limitStop(drop)
	err := work.Wait()
	die()
	life.Wait() // or it would live again after it has left
	crash.At(crash.StopDrained)
	if hard.Err() == nil {
		r.leave()
		crash.At(crash.StopLeft)
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

func (r *run) leave() {
	ctx, cancel := context.WithTimeout(r.hard, 5*time.Second)
	defer cancel()
	if err := r.instance.Leave(ctx); err != nil {
		r.config.Logger.Warn("leases stay until they are stale", "error", err)
	}
}

func (r *run) shards() []weir.Shard {
	shards := make([]weir.Shard, r.Store.Shards())
	for i := range shards {
		shards[i] = weir.Shard(i)
	}
	return shards
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

// employ makes a worker the one of its projection.
func (r *run) employ(name string, w *projection.Worker) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.workers[name] = w
}

// retire keeps the counts of a worker that ended.
func (r *run) retire(name string, w *projection.Worker) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.earlier[name] = r.earlier[name].Plus(w.Progress().Counts)
	if r.workers[name] == w { // or another has begun meanwhile
		delete(r.workers, name)
	}
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
