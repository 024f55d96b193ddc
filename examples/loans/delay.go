package main

import (
	"container/heap"
	"context"
	"time"

	"github.com/weir-es/weir"
)

// item is a message on its way to its producer.
type item struct {
	message weir.Message
	// again marks the second copy of a message that is sent twice.
	again bool
	// hold is how long the item is held back.
	hold time.Duration
}

// delay holds each item back for its own time, so that neighbours overtake each
// other. Items that are due at the same time leave in the order they came.
type delay struct {
	in <-chan item
	// limit is how many items are held at once; beyond it nothing is taken in.
	limit int
	out   func(context.Context, item) error

	// Owned by run.
	held  dueHeap
	count uint64
	timer *time.Timer
}

// run passes items on until in is closed and nothing is held, or ctx is done, or
// out fails. While out blocks nothing is taken in.
func (d *delay) run(ctx context.Context) error {
	d.timer = time.NewTimer(0)
	defer d.timer.Stop()
	for d.in != nil || len(d.held) > 0 {
		if err := d.release(ctx); err != nil {
			return err
		}
		if err := d.wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

// release hands on everything that is due.
func (d *delay) release(ctx context.Context) error {
	for len(d.held) > 0 && !time.Now().Before(d.held[0].at) {
		next := heap.Pop(&d.held).(due)
		if err := d.out(ctx, next.item); err != nil {
			return err
		}
	}
	return nil
}

// wait returns when an item came or one is due.
func (d *delay) wait(ctx context.Context) error {
	in := d.in
	if len(d.held) >= d.limit {
		in = nil
	}
	var ripe <-chan time.Time
	if len(d.held) > 0 {
		d.timer.Reset(time.Until(d.held[0].at))
		ripe = d.timer.C
	}
	if in == nil && ripe == nil {
		return ctx.Err()
	}
	select {
	case next, ok := <-in:
		d.take(next, ok)
		return nil
	case <-ripe:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (d *delay) take(next item, ok bool) {
	if !ok {
		d.in = nil
		return
	}
	d.count++
	heap.Push(&d.held, due{next, time.Now().Add(next.hold), d.count})
}

// due is a held item, when it is due and which one it was.
type due struct {
	item  item
	at    time.Time
	place uint64
}

type dueHeap []due

func (h dueHeap) Len() int { return len(h) }
func (h dueHeap) Less(i, j int) bool {
	if h[i].at.Equal(h[j].at) {
		return h[i].place < h[j].place
	}
	return h[i].at.Before(h[j].at)
}
func (h dueHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *dueHeap) Push(x any)   { *h = append(*h, x.(due)) }
func (h *dueHeap) Pop() any {
	last := len(*h) - 1
	x := (*h)[last]
	(*h)[last] = due{} // let go of the message
	*h = (*h)[:last]
	return x
}
