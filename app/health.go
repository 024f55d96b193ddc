package app

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/batching"
	"github.com/weir-es/weir/projection"
)

// Stats are what this app did since it was made.
type Stats struct {
	// Stored and Duplicates count facts that came from the broker.
	Stored, Duplicates int64
	// DeadLetters counts messages that could not become events.
	DeadLetters int64
	// Handled counts what Handlers handled, Repeated what came to them again and was
	// passed over.
	Handled, Repeated int64
	// Refused counts transactions that were rolled back because another instance
	// owned their shard by then.
	Refused int64
	// Views are the counts of each projection.
	Views map[string]projection.Counts
	// Windows are what the inbox did, by category; batching.Others has those
	// after the first 256.
	Windows map[string]batching.Stats
}

// Stats counts.
func (a *App) Stats() Stats {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := Stats{Stored: a.count.stored.Load(), Duplicates: a.count.duplicates.Load(), DeadLetters: a.count.deadLetters.Load(), Refused: a.count.refused.Load(),
		Handled: a.count.handled.Load(), Repeated: a.count.repeated.Load(),
		Views: map[string]projection.Counts{}, Windows: a.inbox.Stats()}
	for _, p := range a.config.Projections {
		name := p.ProjectionName()
		s.Views[name] = a.earlier[name]
		if w := a.workers[name]; w != nil {
			s.Views[name] = s.Views[name].Plus(w.Progress().Counts)
		}
	}
	return s
}

// Health is what an orchestrator and an operator want to know.
type Health struct {
	// Alive: the process is worth keeping. It is false only after Kill or Close.
	Alive bool `json:"alive"`
	// Ready: both servers answer and nothing is stuck. Problems says why not.
	Ready    bool     `json:"ready"`
	Problems []string `json:"problems,omitempty"`
	// Leases is how many this instance holds, of Shared among all instances: one
	// for each shard, and one for each view that follows the whole log. One that
	// holds none is ready too.
	Leases int `json:"leases"`
	Shared int `json:"shared"`
	// Waiting is how many messages the broker holds that are not stored yet.
	Waiting int64 `json:"waiting"`
	// Behind says how far each projection is behind the log.
	Behind map[string]Lag `json:"behind"`
	// Parked is how many streams each projection is stopped at, because of an
	// event that it cannot apply. Everything else goes on, so an app with parked
	// streams is ready; somebody should look at them all the same.
	Parked map[string]int `json:"parked,omitempty"`
}

// Lag is how far a projection is behind the head of the log, as the database has
// it at this moment.
type Lag struct {
	// Positions between the projection and the head; an upper bound of events.
	Positions int64 `json:"positions"`
	// Seconds since the oldest event that is not applied was recorded.
	Seconds float64 `json:"seconds"`
}

// Health looks now. It asks both servers, so call it some times a second at most.
func (a *App) Health(ctx context.Context) Health {
	h := Health{Alive: a.life.Err() == nil, Behind: map[string]Lag{}}
	problem := func(err error) {
		if err != nil {
			h.Problems = append(h.Problems, err.Error())
		}
	}
	backlog, err := a.broker.Backlog(ctx)
	problem(err)
	h.Waiting = int64(backlog.Waiting + backlog.Unacked)

	h.Parked, err = a.Store.ParkedCounts(ctx)
	problem(err)
	h.Leases, h.Shared = int(a.owned.Load()), a.shared()
	_, head, err := a.Store.ReadHorizon(ctx)
	problem(err)
	for name, p := range a.progress() {
		problem(p.Err)
		if err == nil {
			lag, err := a.lag(ctx, p.At, head)
			problem(err)
			h.Behind[name] = lag
		}
	}
	h.Ready = h.Alive && len(h.Problems) == 0
	return h
}

func (a *App) progress() map[string]projection.Progress {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := map[string]projection.Progress{}
	for name, w := range a.workers {
		all[name] = w.Progress()
	}
	return all
}

func (a *App) lag(ctx context.Context, at, head weir.Position) (Lag, error) {
	if at >= head {
		return Lag{}, nil
	}
	next, err := a.Store.Page(ctx, at, head, nil, 1)
	if err != nil || len(next) == 0 {
		return Lag{}, err
	}
	return Lag{Positions: int64(head - at), Seconds: time.Since(next[0].Recorded).Seconds()}, nil
}

// HealthHandler serves /alive and /ready (200 or 503) and /health, all with the
// JSON of Health.
func (a *App) HealthHandler() http.Handler {
	mux := http.NewServeMux()
	serve := func(good func(Health) bool) http.HandlerFunc {
		return func(w http.ResponseWriter, req *http.Request) {
			ctx, cancel := context.WithTimeout(req.Context(), 2*time.Second)
			defer cancel()
			h := a.Health(ctx)
			w.Header().Set("Content-Type", "application/json")
			if !good(h) {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
			json.NewEncoder(w).Encode(h)
		}
	}
	mux.HandleFunc("GET /alive", serve(func(h Health) bool { return h.Alive }))
	mux.HandleFunc("GET /ready", serve(func(h Health) bool { return h.Ready }))
	mux.HandleFunc("GET /health", serve(func(Health) bool { return true }))
	return mux
}

// Settle returns when everything that this app's Publisher sent, everything the
// broker holds and everything in the store is applied by every projection. It is
// for tests, demos and batch jobs; while others go on producing it may never
// return, so give it a deadline.
func (a *App) Settle(ctx context.Context) error {
	if err := a.publisher.Flush(ctx); err != nil {
		return fmt.Errorf("settle: %w", err)
	}
	if err := a.settleBroker(ctx); err != nil {
		return fmt.Errorf("settle: wait until the broker's messages are stored: %w", err)
	}
	if err := a.settleViews(ctx); err != nil {
		return fmt.Errorf("settle: wait until the projections are up to date: %w", err)
	}
	return nil
}

func (a *App) settleBroker(ctx context.Context) error {
	for {
		backlog, err := a.broker.Backlog(ctx)
		if err == nil && backlog.IsDone() {
			return nil
		}
		if err := a.nap(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
}

// settleViews waits for workers, which may change while it waits.
func (a *App) settleViews(ctx context.Context) error {
	for {
		_, head, err := a.Store.ReadHorizon(ctx)
		if err == nil && a.applied(ctx, head) {
			return nil
		}
		if err := a.nap(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
}

// applied waits a moment for every projection to reach position. Where others own a
// part of it, the checkpoints say how far they are, as soon as they have noted it.
func (a *App) applied(ctx context.Context, position weir.Position) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	for _, p := range a.config.Projections {
		a.mu.Lock()
		w := a.workers[p.ProjectionName()]
		a.mu.Unlock()
		if w != nil && len(w.Fence.Epochs) == a.leasesOf(p) {
			if w.Wait(ctx, position) != nil {
				return false
			}
			continue
		}
		if done, err := projection.Reached(ctx, a.Store, p, position); err != nil || !done {
			return false
		}
	}
	return true
}

// leasesOf is how many leases a projection's events are spread over.
func (a *App) leasesOf(p projection.Projection) int {
	if p.FollowsWholeLog() {
		return 1
	}
	return a.Store.Shards()
}

// shared is how many leases there are.
func (a *App) shared() int {
	n := a.Store.Shards()
	for _, p := range a.config.Projections {
		if p.FollowsWholeLog() {
			n++
		}
	}
	return n + len(a.config.Handlers)
}

// nap sleeps, and says when there is nothing to wait for any more.
func (a *App) nap(ctx context.Context, d time.Duration) error {
	if !sleep(ctx, d) {
		return ctx.Err()
	}
	if a.life.Err() != nil {
		return context.Cause(a.life)
	}
	return nil
}
