package main

import (
	"context"
	"fmt"
	"time"
)

// stalledAfter is how long nothing may move before the run is given up: longer
// than any server takes to come back, short enough for a person to wait.
const stalledAfter = 3 * time.Minute

// watch shows progress until done, and ends the run if there is none.
func (r *run) watch(ctx context.Context, done <-chan struct{}) error {
	tick := time.NewTicker(r.display.every)
	defer tick.Stop()
	last, moved := progress{}, time.Now()
	for {
		select {
		case <-tick.C:
		case <-done:
			return nil
		case <-ctx.Done():
			return nil
		}
		now := r.progress()
		r.display.show(now)
		if now != last {
			last, moved = now, time.Now()
		}
		if idle := time.Since(moved); idle > stalledAfter {
			return fmt.Errorf("nothing has moved for %s: %d published, %d stored, %d applied of %d",
				idle.Round(time.Second), now.published, now.stored, now.applied, r.found.Events)
		}
	}
}

func (r *run) progress() progress {
	counted := r.counted()
	return progress{
		published: r.sent.first.Load(),
		stored:    min(counted.stored, r.found.Events), // an event may be received twice
		applied:   counted.applied,
	}
}
