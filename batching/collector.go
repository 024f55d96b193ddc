package batching

import (
	"context"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// burst is how many waiting items are taken between two looks at the clock. It
// bounds how long a busy source can delay a batch that is due.
const burst = 256

// Collector turns a channel of items into batches. Key and Flush must be set;
// everything else works at zero. It holds no state: one value may serve several
// calls of Collect at once if its functions may.
type Collector[K comparable, T any] struct {
	// Window says when a batch closes.
	Window Window

	// Gauge, if set, watches the batches and decides Quiet by its policy, up to
	// Window.Quiet. Nil: Quiet is Window.Quiet, and nobody watches.
	Gauge *Gauge

	// Key tells which batch an item belongs to. It must not be a NaN.
	Key func(T) K

	// Compare orders the items of a batch: below zero when a is before b. Nil
	// keeps them as they arrived.
	Compare func(a, b T) int

	// Category names the group of keys that the Gauge looks at together. Nil: all
	// keys are one, named "".
	Category func(K) string

	// Place is a number that sorts, byte by byte, as Compare does: an id. The
	// Gauge tells by it how late an item is. Nil: it cannot, and an adaptive
	// policy is a fixed one.
	Place func(T) [16]byte

	// Size is the bytes of an item, for Window.MaxBytes. Nil counts none.
	Size func(T) int

	// Flush writes batches: all that are due at one moment in one call, the one
	// whose first item is oldest first, no key twice, at most Window.Limit items
	// in all. Nothing is read from the source meanwhile.
	//
	// After an error it is called again with the same batches, so what it writes
	// must be safe to repeat (or be one transaction). An error made with
	// [backoff.Permanent] is not repeated and ends Collect, for a writer who
	// learned that he may no longer write; [backoff.RetryAfter] names the wait.
	// A panic is the caller's.
	//
	// Flush may neither change the batches nor keep them or their Items after it
	// returned: their room is used again.
	Flush func(ctx context.Context, batches []Batch[K, T]) error

	// Retry gives the waits between attempts to flush; it is asked once for each
	// Collect. Default: doubling from 50 ms to 5 s, half of it random, without
	// end. If it does end, Collect returns the error of the last attempt.
	Retry func() backoff.BackOff

	// Failed hears of each failed flush; the attempts of one flush count from 1.
	// It is not told of a flush that failed because ctx ended. May be nil.
	Failed func(err error, attempt int)
}

// Collect reads source until it is closed, then flushes what is open and
// returns nil. The time of an item is when it is read here.
//
// When ctx ends, it returns the error of ctx at once. Batches that are open, or
// whose flush has not succeeded, are then forgotten: nobody acknowledged their
// items, so they come again. The same holds for an error of Flush that is
// permanent, which is returned. No other error comes back. It may be called
// again after each of these.
func (c Collector[K, T]) Collect(ctx context.Context, source <-chan T) error {
	return c.begin().run(ctx, source)
}

// collection is one run of a Collector.
type collection[K comparable, T any] struct {
	Collector[K, T]
	shelf *shelf[K, T]
	retry backoff.BackOff

	// Owned by run.
	now     time.Time   // the last look at the clock
	timer   *time.Timer // rings at a deadline
	armed   bool        // it has not rung yet
	rings   time.Time   // when it will, if armed
	batches []Batch[K, T]
}

func (c Collector[K, T]) begin() *collection[K, T] {
	if c.Retry == nil {
		c.Retry = patient
	}
	shelf := newShelf[K, T](c.Window.orDefaults())
	if c.Gauge != nil {
		shelf.watch(c.Gauge, c.Category, c.Place)
	}
	return &collection[K, T]{
		Collector: c,
		now:       time.Now(),
		shelf:     shelf,
		retry:     c.Retry(),
	}
}

func patient() backoff.BackOff {
	return &backoff.ExponentialBackOff{
		InitialInterval:     50 * time.Millisecond,
		RandomizationFactor: 0.5,
		Multiplier:          2,
		MaxInterval:         5 * time.Second,
	}
}

func (c *collection[K, T]) run(ctx context.Context, source <-chan T) error {
	c.timer = time.NewTimer(time.Hour)
	c.timer.Stop()
	defer c.timer.Stop()
	for ctx.Err() == nil {
		// First what is waiting, then what is due: after a long flush, silence
		// can be told from not having listened.
		more, err := c.drain(ctx, source)
		if err != nil {
			return err
		}
		if !more {
			c.shelf.closeAll()
			return c.flush(ctx)
		}
		if err := c.flush(ctx); err != nil {
			return err
		}
		if err := c.wait(ctx, source); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// drain takes what is waiting in source, at most a burst; false when source is
// closed.
func (c *collection[K, T]) drain(ctx context.Context, source <-chan T) (more bool, err error) {
	for range burst {
		select {
		case item, more := <-source:
			if !more {
				return false, nil
			}
			if err := c.take(ctx, item); err != nil {
				return true, err
			}
		default:
			return true, nil
		}
	}
	return true, nil
}

// wait returns after the next item, at the next deadline, or when ctx ends.
func (c *collection[K, T]) wait(ctx context.Context, source <-chan T) error {
	c.arm()
	select {
	case item, more := <-source:
		if !more {
			return nil // drain will see it too
		}
		c.now = time.Now()
		return c.take(ctx, item)
	case <-c.timer.C:
		c.now = time.Now()
		c.armed = false
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// arm leaves the timer alone until it has rung, unless it would ring too late: to
// wake once for nothing is cheaper than to move it with every item. The next
// deadline becomes an earlier one only when Quiet is not the same for all and always.
func (c *collection[K, T]) arm() {
	at, some := c.shelf.deadline()
	if !some || c.armed && !at.Before(c.rings) {
		return
	}
	c.armed, c.rings = true, at
	c.timer.Reset(at.Sub(c.now))
}

// take puts item into its batch, and flushes at once if that filled something.
func (c *collection[K, T]) take(ctx context.Context, item T) error {
	key, size, at := c.Key(item), c.size(item), c.now
	e := c.shelf.open[key]
	if e != nil && !c.shelf.fits(e, size) {
		c.shelf.close(e)
		if err := c.flush(ctx); err != nil {
			return err
		}
		e = nil
	}
	if e == nil {
		e = c.shelf.start(key, at)
	}
	c.shelf.put(e, item, size, at)
	if len(c.shelf.closed) == 0 {
		return nil
	}
	return c.flush(ctx)
}

func (c *collection[K, T]) size(item T) int {
	if c.Size == nil {
		return 0
	}
	return c.Size(item)
}

// flush writes what is closed and whatever else is due, if anything is. It
// looks at the clock again afterwards, since it may have taken long.
func (c *collection[K, T]) flush(ctx context.Context) error {
	c.now = time.Now()
	c.shelf.closeDue(c.now)
	if len(c.shelf.closed) == 0 {
		return nil
	}
	c.shelf.report(c.now)
	c.shelf.sortClosed()
	for _, e := range c.shelf.closed {
		e.sort(c.Compare)
		c.batches = append(c.batches, e.Batch)
	}
	if err := c.write(ctx); err != nil {
		return err
	}
	clear(c.batches)
	c.batches = c.batches[:0]
	c.shelf.recycle()
	c.now = time.Now()
	return nil
}

// write calls Flush until it succeeds, ctx ends or Flush says never.
func (c *collection[K, T]) write(ctx context.Context) error {
	attempt := 0
	_, err := backoff.Retry(ctx, func() (struct{}, error) {
		if ctx.Err() != nil {
			return struct{}{}, ctx.Err()
		}
		attempt++
		return struct{}{}, c.attempt(ctx, attempt)
	}, backoff.WithBackOff(c.retry), backoff.WithMaxElapsedTime(0))
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return fmt.Errorf("flush %d batches, attempt %d: %w", len(c.batches), attempt, err)
}

func (c *collection[K, T]) attempt(ctx context.Context, attempt int) error {
	err := c.Flush(ctx, c.batches)
	if err != nil && c.Failed != nil && ctx.Err() == nil {
		c.Failed(err, attempt)
	}
	return err
}
