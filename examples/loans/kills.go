package main

import (
	"context"
	"math/rand/v2"
	"time"
)

// kills says when the app is stopped in the middle. Kill i is due once event
// at[i] of the log is about to be handed over, and happens when the app of that
// time works. The reader of the log does not go past the place of the next kill,
// nor past the last event, before this one has happened, so that each hits an app
// that is not done yet, however short the log.
type kills struct {
	at      []int64
	pause   []time.Duration
	reached []chan struct{}
	done    []chan struct{}
	last    int64

	// next is the next kill to become due. Owned by the reader.
	next int
}

// killPause is how long an app works at most before its kill: somewhere within
// the time that a window is open, a batch is stored or a view is written.
const killPause = 400 * time.Millisecond

// newKills spreads n kills evenly over a log of so many events. A log without
// events has no middle and gets none.
func newKills(n int, events int64, random *rand.Rand) *kills {
	k := &kills{last: events - 1}
	if events == 0 {
		return k
	}
	part := events / int64(n+1)
	for i := range n {
		at := events*int64(i+1)/int64(n+1) + random.Int64N(part/2+1) - part/4
		k.at = append(k.at, at)
		k.pause = append(k.pause, time.Duration(random.Int64N(int64(killPause))))
		k.reached = append(k.reached, make(chan struct{}))
		k.done = append(k.done, make(chan struct{}))
	}
	return k
}

// pass is called before event number place, from 0, is handed over.
func (k *kills) pass(ctx context.Context, place int64) error {
	for k.next < len(k.at) && k.at[k.next] <= place {
		if err := k.awaitDone(ctx, k.next-1); err != nil {
			return err
		}
		close(k.reached[k.next])
		k.next++
	}
	if place < k.last {
		return nil
	}
	return k.awaitDone(ctx, len(k.at)-1)
}

func (k *kills) awaitDone(ctx context.Context, i int) error {
	if i < 0 {
		return nil
	}
	return await(ctx, k.done[i])
}

// awaitDue returns when kill i is due.
func (k *kills) awaitDue(ctx context.Context, i int) error { return await(ctx, k.reached[i]) }

// linger returns when the app has worked for the time that kill i gives it.
func (k *kills) linger(ctx context.Context, i int) error { return await(ctx, time.After(k.pause[i])) }

func await[T any](ctx context.Context, signal <-chan T) error {
	select {
	case <-signal:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
