package batching

import (
	"cmp"
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cenkalti/backoff/v5"
	"pgregory.net/rapid"
)

// grain is an item of the property: few orders, so that many are equal, and a
// place in the order of sending, so that none can be mistaken for another.
type grain struct {
	key, order, size int
	sent             int
}

// world is a drawn scenario.
type world struct {
	window Window
	gauge  *Gauge // or nil
	grains []grain
	gaps   []time.Duration // before each grain
	buffer int             // of the channel
	slow   []time.Duration // of each call of Flush; the last goes for the rest
	fails  []bool          // of each call of Flush; after the last none does
	idle   bool            // wait for everything to close before the stop
}

// call is what one call of Flush saw, copied.
type call struct {
	at, until time.Duration // since the start
	failed    bool
	batches   []Batch[int, grain]
	held      int // items that were read and have not left yet
}

// history is what happened in a world.
type history struct {
	began   time.Time
	read    []time.Duration // by place of sending
	calls   []call
	stopped time.Duration
	idle    shelf[int, grain] // when all was quiet, if world.idle
	end     shelf[int, grain]
	err     error
}

func drawWorld(t *rapid.T) world {
	upTo := func(most int, name string) int { return rapid.IntRange(0, most).Draw(t, name) }
	w := world{
		window: Window{
			Quiet:    ms(1 + upTo(40, "quiet")),
			MaxAge:   ms(1 + upTo(120, "age")),
			MaxItems: 1 + upTo(60, "items"),
			MaxBytes: 1 + upTo(3000, "bytes"),
			Limit:    1 + upTo(120, "limit"),
		},
		buffer: upTo(8, "buffer"),
		slow:   []time.Duration{0},
		idle:   rapid.Bool().Draw(t, "idle"),
	}
	if make := rapid.SampledFrom([]func(Window) Policy{nil, Adaptive, Fixed, Off}).Draw(t, "policy"); make != nil {
		w.gauge = &Gauge{Policy: make(w.window)}
	}
	for range upTo(8, "calls") {
		w.slow = append(w.slow, ms(upTo(100, "slow")))
		w.fails = append(w.fails, rapid.Bool().Draw(t, "fails"))
	}
	keys, gap := upTo(30, "keys"), upTo(30, "gap")
	for sent := range upTo(150, "grains") {
		w.grains = append(w.grains, grain{upTo(keys, "key"), upTo(9, "order"), upTo(60, "size"), sent})
		w.gaps = append(w.gaps, ms(upTo(gap, "pause")))
	}
	return w
}

// happen lets the scenario happen on fake time.
func (w world) happen(t *testing.T) (h history) {
	synctest.Test(t, func(t *testing.T) {
		h.began = time.Now()
		h.read = make([]time.Duration, len(w.grains))
		source := make(chan grain, w.buffer)
		c := w.collector(&h).begin()
		go func() {
			defer close(source)
			for i, g := range w.grains {
				after(w.gaps[i])
				source <- g
			}
			if w.idle {
				after(time.Hour)
				synctest.Wait()
				h.idle = *c.shelf
			}
			h.stopped = time.Since(h.began)
		}()
		h.err = c.run(t.Context(), source)
		h.end = *c.shelf
	})
	return h
}

func (w world) collector(h *history) Collector[int, grain] {
	held, now := 0, func() time.Duration { return time.Since(h.began) }
	return Collector[int, grain]{
		Window:   w.window,
		Gauge:    w.gauge,
		Category: func(key int) string { return "abc"[key%3 : key%3+1] },
		Place:    func(g grain) [16]byte { return [16]byte{byte(g.order)} },
		Key: func(g grain) int { // called once for each grain, when it is read
			held++
			h.read[g.sent] = now()
			return g.key
		},
		Compare: func(a, b grain) int { return cmp.Compare(a.order, b.order) },
		Size:    func(g grain) int { return g.size },
		Retry:   func() backoff.BackOff { return backoff.NewConstantBackOff(ms(20)) },
		Flush: func(_ context.Context, batches []Batch[int, grain]) error {
			n := len(h.calls)
			c := call{at: now(), held: held, failed: n < len(w.fails) && w.fails[n]}
			after(w.slow[min(n, len(w.slow)-1)])
			c.until = now()
			for _, b := range batches {
				b.Items = slices.Clone(b.Items)
				c.batches = append(c.batches, b)
				if !c.failed {
					held -= len(b.Items)
				}
			}
			h.calls = append(h.calls, c)
			if c.failed {
				return errBroken
			}
			return nil
		},
	}
}

// flushing is how long Collect was busy with Flush and its retries between two times.
func (h history) flushing(from, to time.Duration) (sum time.Duration) {
	var start time.Duration
	again := false
	for _, c := range h.calls {
		if !again {
			start = c.at
		}
		again = c.failed
		if !again {
			sum += max(0, min(to, c.until)-max(from, start))
		}
	}
	return sum
}

// successes are the calls that succeeded, each with when it was first tried.
func (h history) successes() (all []call) {
	var first *call
	for _, c := range h.calls {
		if first == nil {
			first = &c
		}
		if !c.failed {
			c.at, c.held = first.at, first.held
			all = append(all, c)
			first = nil
		}
	}
	return all
}

func check(t *testing.T, holds func(*rapid.T, world, history)) {
	rapid.Check(t, func(r *rapid.T) {
		w := drawWorld(r)
		h := w.happen(t)
		if h.err != nil {
			r.Fatal(h.err)
		}
		holds(r, w, h)
	})
}

func TestP5_EachItemLeavesOnceAndSorted(t *testing.T) {
	check(t, func(t *rapid.T, w world, h history) {
		left, last := map[int]int{}, map[int]int{}
		for _, c := range h.successes() {
			inOneCall := map[int]bool{}
			for i, b := range c.batches {
				if inOneCall[b.Key] {
					t.Fatalf("key %d twice in one call", b.Key)
				}
				inOneCall[b.Key] = true
				if i > 0 && b.First.Before(c.batches[i-1].First) {
					t.Fatalf("batch %d of a call is older than the one before", i)
				}
				checkOrder(t, b)
				newest := last[b.Key]
				for _, g := range b.Items {
					left[g.sent]++
					if g != w.grains[g.sent] || g.key != b.Key {
						t.Fatalf("%+v left with key %d", g, b.Key)
					}
					if g.sent < last[b.Key] {
						t.Fatalf("%+v left after a batch of later ones", g)
					}
					newest = max(newest, g.sent)
				}
				last[b.Key] = newest
			}
		}
		for _, g := range w.grains {
			if left[g.sent] != 1 {
				t.Fatalf("%+v left %d times", g, left[g.sent])
			}
		}
	})
}

func checkOrder(t *rapid.T, b Batch[int, grain]) {
	for i := 1; i < len(b.Items); i++ {
		before, g := b.Items[i-1], b.Items[i]
		if before.order > g.order || before.order == g.order && before.sent > g.sent {
			t.Fatalf("%+v before %+v", before, g)
		}
	}
}

func TestFailedFlushComesAgainTheSame(t *testing.T) {
	same := func(a, b Batch[int, grain]) bool {
		return a.Key == b.Key && a.First.Equal(b.First) && slices.Equal(a.Items, b.Items)
	}
	check(t, func(t *rapid.T, w world, h history) {
		for i, c := range h.calls[:max(0, len(h.calls)-1)] {
			if c.failed && !slices.EqualFunc(c.batches, h.calls[i+1].batches, same) {
				t.Fatalf("call %d failed with %v, then came %v", i, c.batches, h.calls[i+1].batches)
			}
		}
	})
}

// TestWindowsCloseInTimeAndNotBefore, whatever arrives: a window that is asked again and
// again to wait for one more is closed by its age. (jasperfx#533, wolverine#3502: a
// debounce timer that a trickle began anew each time)
func TestWindowsCloseInTimeAndNotBefore(t *testing.T) {
	check(t, func(t *rapid.T, w world, h history) {
		for _, c := range h.successes() {
			for _, b := range c.batches {
				checkTimes(t, w, h, c, b)
			}
		}
	})
}

func checkTimes(t *rapid.T, w world, h history, c call, b Batch[int, grain]) {
	bytes, first, last := 0, time.Hour, time.Duration(0)
	for _, g := range b.Items {
		bytes += g.size
		first = min(first, h.read[g.sent])
		last = max(last, h.read[g.sent])
	}
	if got := b.First.Sub(h.began); got != first {
		t.Fatalf("First is %v, the first item was read at %v", got, first)
	}
	aged, quiet := first+w.window.MaxAge, last+w.window.Quiet
	if late := c.at - aged - h.flushing(first, c.at); late > 0 {
		t.Fatalf("%v was flushed %v too late for its age", b, late)
	}
	if late := c.at - quiet - h.flushing(last, c.at); late > 0 {
		t.Fatalf("%v was flushed %v too late for its quiet", b, late)
	}
	if soonest := last + w.leastQuiet(); c.at >= min(aged, soonest) || len(b.Items) >= w.window.MaxItems || bytes >= w.window.MaxBytes {
		return
	}
	if c.held < w.window.Limit && c.at < h.stopped && bytes+nextSize(w, b) <= w.window.MaxBytes {
		t.Fatalf("%v was flushed at %v for no reason", b, c.at)
	}
}

// leastQuiet is how long every batch waits for the next item at least.
func (w world) leastQuiet() time.Duration {
	switch {
	case w.gauge == nil || w.gauge.Policy.mode == fixed:
		return w.window.Quiet
	case w.gauge.Policy.mode == adaptive:
		return min(leastQuiet, w.window.Quiet)
	}
	return 0
}

// nextSize is the size of the first item of the same key after the batch.
func nextSize(w world, b Batch[int, grain]) int {
	newest := 0
	for _, g := range b.Items {
		newest = max(newest, g.sent)
	}
	for _, g := range w.grains[newest+1:] {
		if g.key == b.Key {
			return g.size
		}
	}
	return 0
}

func TestP9_OpenBatchesAreBounded(t *testing.T) {
	check(t, func(t *rapid.T, w world, h history) {
		for _, c := range h.calls {
			if c.held > w.window.Limit {
				t.Fatalf("%d items held, the limit is %d", c.held, w.window.Limit)
			}
			for _, b := range c.batches {
				checkSize(t, w, b)
			}
		}
		checkEmpty(t, &h.idle)
		checkEmpty(t, &h.end)
		if h.idle.trails != nil && !h.idle.trails.isEmpty() {
			t.Fatal("an idle shelf remembers keys")
		}
	})
}

func checkSize(t *rapid.T, w world, b Batch[int, grain]) {
	bytes := 0
	for _, g := range b.Items {
		bytes += g.size
	}
	if n := len(b.Items); n == 0 || n > w.window.MaxItems || n > 1 && bytes > w.window.MaxBytes {
		t.Fatalf("a batch of %d items and %d bytes", n, bytes)
	}
}

// checkEmpty looks for anything an idle shelf still holds.
func checkEmpty(t *rapid.T, s *shelf[int, grain]) {
	listed := s.byFirst.head != nil || s.byFirst.tail != nil
	for _, c := range s.categories {
		listed = listed || c.byLast.head != nil || c.byLast.tail != nil
	}
	if len(s.open) != 0 || s.items != 0 || s.slots != 0 || listed || len(s.closed) != 0 {
		t.Fatalf("an idle shelf holds %d keys, %d items, %d slots", len(s.open), s.items, s.slots)
	}
	unused := 0
	for _, e := range s.spare {
		unused += cap(e.Items)
	}
	if unused != s.unused || unused > spareSlots {
		t.Fatalf("%d spare slots, counted as %d", unused, s.unused)
	}
}
