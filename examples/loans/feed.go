package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/weir-es/weir/examples/loans/xes"
)

// feed reads the log and hands every event to the producer of its system, and
// some of them a second time to another one, as a retry by another instance.
type feed struct {
	source source
	mapper *mapper
	out    [len(systems)]chan item
	kills  *kills
	random *rand.Rand
	// share of the messages sent twice, and the longest hold of each.
	share  float64
	jitter time.Duration

	// Owned by run.
	place int64
}

// againAfter is how much later the second copy of a message follows at least.
const againAfter = 5 * time.Millisecond

// run hands over everything and closes the producers' channels.
func (f *feed) run(ctx context.Context) error {
	for _, out := range f.out {
		defer close(out)
	}
	file, err := f.source.open()
	if err != nil {
		return fmt.Errorf("read log: %w", err)
	}
	defer file.Close()

	for trace, err := range xes.Read(file) {
		if err == nil {
			err = f.trace(ctx, trace)
		}
		if err != nil {
			return fmt.Errorf("read log %s: %w", f.source.name, err)
		}
	}
	return nil
}

func (f *feed) trace(ctx context.Context, trace xes.Trace) error {
	for _, event := range trace.Events {
		if err := f.event(ctx, trace, event); err != nil {
			return err
		}
	}
	return nil
}

func (f *feed) event(ctx context.Context, trace xes.Trace, event xes.Event) error {
	message, err := f.mapper.message(trace, event)
	if err != nil {
		return err
	}
	if err := f.kills.pass(ctx, f.place); err != nil {
		return err
	}
	f.place++
	system := systemOf(event.Activity)
	if err := f.hand(ctx, system, item{message: message, hold: f.hold()}); err != nil {
		return err
	}
	if f.random.Float64() >= f.share {
		return nil
	}
	other := (system + 1) % len(f.out)
	return f.hand(ctx, other, item{message: message, again: true, hold: againAfter + f.hold()})
}

func (f *feed) hand(ctx context.Context, system int, next item) error {
	select {
	case f.out[system] <- next:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (f *feed) hold() time.Duration {
	return time.Duration(f.random.Int64N(int64(f.jitter) + 1))
}
