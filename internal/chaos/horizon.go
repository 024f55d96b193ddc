package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/eventstore"
)

// grace is how long readers may take to the end of the log when the writers are
// done. What they were not given by then is lost.
const grace = 30 * time.Second

// horizon plays writers of every kind against readers of every kind.
func horizon(ctx context.Context, o options) (outcome, error) {
	return play(ctx, o, func(near, far, worker *eventstore.Store) []*reader {
		var even, odd []weir.Shard
		for shard := range weir.Shard(near.Shards()) {
			if shard%2 == 0 {
				even = append(even, shard)
			} else {
				odd = append(odd, shard)
			}
		}
		return []*reader{
			{name: "tail by poll", tail: true, store: near, follow: byPoll},
			{name: "tail by wait", tail: true, store: near, follow: byWait},
			{name: "tail elsewhere", tail: true, store: far, follow: byWait},
			{name: "even shards", store: far, shards: even, follow: byWait},
			{name: "odd shards", store: near, shards: odd, follow: byWait},
			{name: "log", store: far, follow: byLog},
			{name: "worker", store: worker, follow: byWorker},
		}
	})
}

// last plays the same writers against a reader without a horizon.
func last(ctx context.Context, o options) (outcome, error) {
	return play(ctx, o, func(near, _, _ *eventstore.Store) []*reader {
		return []*reader{{name: "tail by last", tail: true, store: near, follow: byLast}}
	})
}

// play runs a scenario to its end and reports.
func play(ctx context.Context, o options, cast func(near, far, worker *eventstore.Store) []*reader) (r report, err error) {
	s, err := newStage(ctx, o)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	live, stop := context.WithCancel(ctx)
	s.stop = stop
	var processes []*eventstore.Store
	for _, name := range []string{"near", "far", "worker", "writer", "writer"} {
		store, err := s.process(live, name)
		if err != nil {
			return r, err
		}
		processes = append(processes, store)
	}
	readers := cast(processes[0], processes[1], processes[2])
	s.timeline = timeline{time.Now(), o.length()}
	if err := s.perform(ctx, readers, processes[3:]); err != nil {
		return r, err
	}
	return s.report(ctx, readers)
}

// perform writes, disturbs and reads until the readers have come to the end.
func (s *stage) perform(ctx context.Context, readers []*reader, writers []*eventstore.Store) error {
	reading, giveUp := context.WithCancel(ctx)
	defer giveUp()
	var follow errgroup.Group
	for _, r := range readers {
		follow.Go(func() error {
			if err := r.follow(reading, s, r); err != nil && reading.Err() == nil {
				return fmt.Errorf("reader %s: %w", r.name, err)
			}
			return nil
		})
	}
	work, disturbed := errgroup.WithContext(ctx)
	work.Go(func() error { return s.write(disturbed, writers) })
	work.Go(func() error { return s.kill(disturbed) })
	work.Go(func() error { return s.foreign(disturbed) })
	err := work.Wait()
	if err == nil {
		err = s.settle(ctx, readers[0].store)
	}
	if err != nil {
		giveUp()
	}
	timer := time.AfterFunc(grace, giveUp)
	defer timer.Stop()
	return errors.Join(err, follow.Wait())
}

func (s *stage) report(ctx context.Context, readers []*reader) (r report, err error) {
	stored, err := s.stored(ctx, readers[0].store)
	if err != nil {
		return r, err
	}
	r.killed = s.killed
	r.check(s.ledger, stored)
	var own, foreign []time.Duration
	for _, reader := range readers {
		r.add(compare(reader.name, reader.expects(stored), reader.given))
		if reader.tail {
			o, f := lags(s.timeline, s.ledger.acked, reader.given)
			own, foreign = append(own, o...), append(foreign, f...)
		}
	}
	r.Lag, r.LagForeign = spreadOf(own), spreadOf(foreign)
	return r, nil
}
