package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/eventstore"
	"github.com/weir-es/weir/projection"
)

var (
	//go:embed sql/create_applied.sql
	createApplied string
	//go:embed sql/note_applied.sql
	noteApplied string
	//go:embed sql/applied.sql
	appliedSQL string
	//go:embed sql/last_position.sql
	lastPosition string
)

// reader follows the log in one way, to its end, and keeps what it was given.
type reader struct {
	name  string
	tail  bool // its lag counts
	store *eventstore.Store
	// shards are those it reads; nil is all.
	shards []weir.Shard
	follow func(context.Context, *stage, *reader) error

	// Owned by follow.
	at    weir.Position
	given []delivery
}

func (r *reader) take(events ...weir.Event) {
	now := time.Now()
	for _, e := range events {
		r.given = append(r.given, delivery{e.ID, e.Stream, e.Version, e.Position, now})
	}
}

// over says whether the reader has come to the end of the log.
func (r *reader) over(s *stage) bool {
	head := s.head.Load()
	return head > 0 && int64(r.at) >= head
}

// expects are those of the events that this reader is to be given.
func (r *reader) expects(stored []delivery) (expected []delivery) {
	for _, d := range stored {
		if r.shards == nil || r.hasShard(d.stream) {
			expected = append(expected, d)
		}
	}
	return expected
}

func (r *reader) hasShard(stream weir.StreamID) bool {
	for _, shard := range r.shards {
		if shard == stream.Shard(r.store.Shards()) {
			return true
		}
	}
	return false
}

// pages reads page by page up to the place that look gives, as long as there is
// something between.
func (r *reader) pages(ctx context.Context, s *stage, look func() (weir.Position, error)) error {
	for !r.over(s) {
		to, err := look()
		if err != nil {
			return err
		}
		if err := r.catchUp(ctx, to); err != nil {
			return err
		}
	}
	return nil
}

// page is how many events the readers ask for at a time: few, so that there are
// many boundaries.
const page = 50

func (r *reader) catchUp(ctx context.Context, to weir.Position) error {
	for r.at < to {
		events, err := r.store.Page(ctx, r.at, to, r.shards, page)
		if err != nil {
			return err
		}
		r.take(events...)
		r.at = to
		if len(events) == page {
			r.at = events[page-1].Position
		}
	}
	return nil
}

// byPoll asks the database itself how far it may go, every few milliseconds.
func byPoll(ctx context.Context, s *stage, r *reader) error {
	dice := s.dice(r.name)
	return r.pages(ctx, s, func() (weir.Position, error) {
		pause(ctx, between(dice, time.Millisecond, 10*time.Millisecond))
		at, _, err := r.store.ReadHorizon(ctx)
		return at, err
	})
}

// byWait is woken when the horizon of its process moves.
func byWait(ctx context.Context, s *stage, r *reader) error {
	return r.pages(ctx, s, func() (weir.Position, error) {
		soon, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		defer cancel()
		at, err := r.store.WaitHorizon(soon, r.at)
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			return r.at, nil
		}
		return at, err
	})
}

// byLast takes the last position drawn for the end of the log, as many do.
func byLast(ctx context.Context, s *stage, r *reader) error {
	dice := s.dice(r.name)
	return r.pages(ctx, s, func() (at weir.Position, err error) {
		pause(ctx, between(dice, time.Millisecond, 10*time.Millisecond))
		return at, r.store.Pool().QueryRow(ctx, lastPosition).Scan(&at)
	})
}

// byLog iterates over the log from a checkpoint that it keeps in the database, and
// breaks off anywhere.
func byLog(ctx context.Context, s *stage, r *reader) error {
	const name = "chaos-log"
	dice := s.dice(r.name)
	for !r.over(s) {
		checkpoints, err := r.store.Checkpoints(ctx, name)
		if err != nil {
			return err
		}
		r.at = checkpoints[eventstore.WholeLog]
		for event, err := range r.store.Log(ctx, r.at) {
			if err != nil {
				return err
			}
			r.take(event)
			r.at = event.Position
			if dice.IntN(100) == 0 {
				break
			}
		}
		var b pgx.Batch
		r.store.QueueCheckpoint(&b, name, []weir.Shard{eventstore.WholeLog}, r.at)
		if err := r.store.Pool().SendBatch(ctx, &b).Close(); err != nil {
			return err
		}
		pause(ctx, between(dice, 0, 10*time.Millisecond))
	}
	return nil
}

// byWorker is a projection that writes down what it is given. Its worker is started
// anew every second or so, and its backends are among the victims.
func byWorker(ctx context.Context, s *stage, r *reader) error {
	note := r.store.Qualify(noteApplied)
	handler := projection.Handler{
		Name:     "chaos",
		WholeLog: true,
		Setup: func(ctx context.Context, store *eventstore.Store) error {
			_, err := store.Pool().Exec(ctx, store.Qualify(createApplied))
			return err
		},
		Handle: func(ctx context.Context, tx pgx.Tx, e weir.Event, _ any) error {
			_, err := tx.Exec(ctx, note, int64(e.Position), [16]byte(e.ID), string(e.Stream), int64(e.Version))
			return err
		},
	}
	if err := handler.Prepare(ctx, r.store); err != nil {
		return err
	}
	dice := s.dice(r.name)
	for !r.over(s) && ctx.Err() == nil {
		if err := r.work(ctx, handler, between(dice, 500*time.Millisecond, 2*time.Second)); err != nil {
			return err
		}
	}
	given, err := deliveries(context.WithoutCancel(ctx), r.store, r.store.Qualify(appliedSQL))
	r.given = given
	return err
}

// work runs one life of a worker.
func (r *reader) work(ctx context.Context, handler projection.Handler, life time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, life)
	defer cancel()
	scope, shards := "view:"+handler.Name, []weir.Shard{eventstore.WholeLog}
	instance := r.store.Join(handler.Name)
	leases, err := instance.Claim(ctx, scope, shards)
	if isKill(err) {
		return nil
	}
	if err != nil || len(leases) == 0 {
		return fmt.Errorf("claim the lease of %s: %w", handler.Name, errors.Join(err, weir.ErrLeaseLost))
	}
	w := &projection.Worker{Store: r.store, Projection: handler, Fence: instance.Guard(scope, leases), Limit: page}
	err = w.Run(ctx)
	r.at = max(r.at, w.Progress().At)
	return err
}
