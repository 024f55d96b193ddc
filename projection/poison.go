package projection

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/eventstore"
)

// eventError says which event could not be applied.
type eventError struct {
	event weir.Event
	err   error
}

func (e *eventError) Error() string {
	return fmt.Sprintf("apply %s version %d, event %s of type %q: %v", e.event.Stream, e.event.Version, e.event.ID, e.event.Type, e.err)
}

func (e *eventError) Unwrap() error { return e.err }

// fatalError ends a worker, and the service with it.
type fatalError struct{ err error }

func (e *fatalError) Error() string { return e.err.Error() }

func (e *fatalError) Unwrap() error { return e.err }

// isFatal reports that trying the same again is no use.
func isFatal(err error) bool {
	var fatal *fatalError
	return errors.Is(err, weir.ErrLeaseLost) || errors.Is(err, errMoved) || errors.As(err, &fatal)
}

// maxFailures is how often an event may fail before its stream is parked.
const maxFailures = 5

// apply applies items up to position to. When one of them cannot be applied, its
// stream is parked at it, and everything else goes on.
func (w *Worker) apply(ctx context.Context, items []item, to weir.Position) error {
	items = slices.DeleteFunc(items, w.passesOver)
	err := w.retry(ctx, func(ctx context.Context) error { return w.persist(ctx, items, to) })
	if err == nil || !w.isPoison(ctx, err) {
		return err
	}
	if len(items) == 1 {
		return w.insist(ctx, items[0], to, err)
	}
	cut := split(items, err)
	if err := w.apply(ctx, slices.Clone(items[:cut]), items[cut-1].Position); err != nil {
		return err
	}
	return w.apply(ctx, items[cut:], to)
}

// passesOver is true for the events of streams that are parked, or are rewound beside
// the others.
func (w *Worker) passesOver(i item) bool {
	_, beside := w.besides.streams[i.Stream]
	return beside || w.parked[i.Stream]
}

// split says where to divide a batch that failed: around the culprit where it is
// known, else in the middle.
func split(items []item, err error) int {
	var culprit *eventError
	if errors.As(err, &culprit) {
		at := slices.IndexFunc(items, func(i item) bool { return i.Position == culprit.event.Position })
		if at >= 0 {
			return max(at, 1)
		}
	}
	return len(items) / 2
}

// isPoison tells an event that fails by itself from everything that is not its
// fault: stopping, a lost lease, a lost connection, a missing right.
func (w *Worker) isPoison(ctx context.Context, err error) bool {
	if ctx.Err() != nil || isFatal(err) {
		return false
	}
	var event *eventError
	var pg *pgconn.PgError
	switch errors.As(err, &pg); {
	case pg != nil && pg.Code == timedOut:
		return errors.As(err, &event)
	case errors.As(err, &event): // whatever went wrong in the user's code, unless the database says that it was its own doing
		return pg == nil || !eventstore.IsTransient(pg)
	}
	return eventstore.IsRefused(err)
}

// timedOut is what the database says of a statement that took too long. A handler
// whose statement does so again and again is at fault itself.
const timedOut = "57014"

// insist tries one event some more times, then parks its stream.
func (w *Worker) insist(ctx context.Context, i item, to weir.Position, err error) error {
	wait := newBackOff()
	for failures := 1; failures < maxFailures; failures++ {
		w.report(err)
		if !sleep(ctx, wait.NextBackOff()) {
			return ctx.Err()
		}
		err = w.retry(ctx, func(ctx context.Context) error { return w.persist(ctx, []item{i}, to) })
		if err == nil || !w.isPoison(ctx, err) {
			return err
		}
	}
	w.Store.Logger().Error("parked a stream", "projection", w.Projection.ProjectionName(),
		"stream", i.Stream, "version", i.Version, "attempts", maxFailures, "error", err)
	return w.retry(ctx, func(ctx context.Context) error { return w.park(ctx, poisoned(i.Event, err), i, to) })
}

// poisoned is a stream that stops at an event.
func poisoned(e weir.Event, why error) eventstore.Parked {
	return eventstore.Parked{Stream: e.Stream, Version: e.Version, Reason: "poison", Error: why.Error(), Attempts: maxFailures}
}

func (w *Worker) park(ctx context.Context, p eventstore.Parked, i item, to weir.Position) error {
	j := w.job()
	j.count.Parked++
	shards := []weir.Shard{w.shardOf(i.Event)}
	if err := w.transact(ctx, j, shards, to, w.moved(1), parkStep{w, p}); err != nil {
		return err
	}
	w.parked[p.Stream] = true
	w.committed(ctx, j)
	return nil
}

// parkStep records that a stream is parked.
type parkStep struct {
	worker *Worker
	parked eventstore.Parked
}

func (parkStep) queueReads(*pgx.Batch) {}

func (parkStep) hooked() bool { return false }

func (parkStep) after(context.Context, pgx.Tx) error { return nil }

func (s parkStep) finish(ctx context.Context, tx pgx.Tx, _ *pgx.Batch) error {
	return s.worker.Store.Park(ctx, tx, s.worker.Projection.ProjectionName(), s.parked)
}

// retry repeats what time or an operator may mend, for as long as ctx lives. A
// lost lease and an event that fails by itself are returned.
func (w *Worker) retry(ctx context.Context, act func(context.Context) error) error {
	wait := newBackOff()
	for failed := false; ; failed = true {
		err := act(ctx)
		if err == nil && failed {
			w.report(nil)
		}
		if err == nil || ctx.Err() != nil || isFatal(err) || w.isPoison(ctx, err) {
			return errors.Join(err, ctx.Err())
		}
		w.report(err)
		w.Store.Logger().Warn("projection waits", "projection", w.Projection.ProjectionName(), "error", err)
		if !sleep(ctx, wait.NextBackOff()) {
			return ctx.Err()
		}
	}
}

func newBackOff() *backoff.ExponentialBackOff {
	b := backoff.NewExponentialBackOff()
	b.InitialInterval = 50 * time.Millisecond
	b.MaxInterval = 2 * time.Second
	return b
}

// sleep reports whether ctx still lives.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}
