// Package pace keeps instances that share a machine or a database from wearing it out
// with small batches.
package pace

import (
	"context"
	"time"
)

const (
	few     = 50 // items of a batch that somebody may be watching
	times   = 3
	longest = 100 * time.Millisecond
)

// Rest is how long to gather after a batch of n items that took so long. Whatever its
// size, a batch costs its statements and its commit. Where there is much to do, batches
// take long and so do rests: those that follow are larger, and several instances have
// hardly more of them than one has. Where there is little, a batch is short and its
// rest, too, and after one of a few items there is none.
func Rest(n int, took time.Duration) time.Duration {
	if n < few {
		return 0
	}
	return min(times*took, longest)
}

// Sleep waits for d, less when hurry has something or ctx ends.
func Sleep(ctx context.Context, d time.Duration, hurry <-chan struct{}) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-hurry:
	case <-ctx.Done():
	}
}
