package main

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/weir-es/weir/batching"
)

// item is what the windows gather.
type item struct {
	key   string
	order int
}

func compareItems(a, b *item) int { return cmp.Compare(a.order, b.order) }

func placeItem(i *item) (place [16]byte) {
	binary.BigEndian.PutUint64(place[:], uint64(i.order))
	return place
}

// itemsMade is how many different items there are; longer rounds send them again.
const itemsMade = 1 << 18

// items of that many keys, in an order without pattern but the same each time,
// neighbours out of order.
func items(keys int) []item {
	random := rand.New(rand.NewPCG(1, 2))
	all := make([]item, itemsMade)
	for i := range all {
		all[i] = item{fmt.Sprint("account-", random.IntN(keys)), i ^ 0x55}
	}
	return all
}

// send sends n items through a channel of the kind that a receiver fills.
func send(all []item, n int) <-chan *item {
	source := make(chan *item, 256)
	go func() {
		defer close(source)
		for i := range n {
			source <- &all[i%len(all)]
		}
	}()
	return source
}

// collectOurs is batching.Collect with the windows of the inbox, fixed and without
// a gauge.
func collectOurs(keys int) side { return collect(keys, nil) }

// collectAdaptive is the same with windows that adapt, and all that an app has
// measured of them.
func collectAdaptive(keys int) side {
	return collect(keys, func() *batching.Gauge { return &batching.Gauge{Policy: batching.Adaptive(batching.Inbox)} })
}

func collect(keys int, gauge func() *batching.Gauge) side {
	return func(ctx context.Context, t *trial) error {
		all, left := items(keys), 0
		c := batching.Collector[string, *item]{
			Window:   batching.Inbox,
			Key:      func(i *item) string { return i.key },
			Category: func(key string) string { category, _, _ := strings.Cut(key, "-"); return category },
			Place:    placeItem,
			Compare:  compareItems,
			Flush: func(_ context.Context, batches []batching.Batch[string, *item]) error {
				for _, b := range batches {
					left += len(b.Items)
				}
				return nil
			},
		}
		if gauge != nil {
			c.Gauge = gauge()
		}
		err := t.measure(func() error { return c.Collect(ctx, send(all, t.n)) })
		if err != nil {
			return err
		}
		return t.expect("items left", left, t.n)
	}
}

// collectTwin is the least that makes sorted batches per key out of a channel: a
// map of slices, sorted when they leave, all of them at each tick of one ticker
// or when the map holds as much as the windows may; one alone when it is full. It
// has no quiet time and no oldest batch per key, keeps nothing that a flush could
// not write, and looks at no clock.
func collectTwin(keys int) side {
	return func(ctx context.Context, t *trial) error {
		all, g := items(keys), gatherer{open: map[string][]*item{}}
		err := t.measure(func() error { g.gather(send(all, t.n)); return nil })
		if err != nil {
			return err
		}
		return t.expect("items left", g.left, t.n)
	}
}

const (
	gatherLimit = 50_000 // as Window.Limit
	gatherMost  = 1000   // as Window.MaxItems
)

type gatherer struct {
	open map[string][]*item
	held int
	left int
}

func (g *gatherer) gather(source <-chan *item) {
	tick := time.NewTicker(300 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case i, more := <-source:
			if !more {
				g.flushAll()
				return
			}
			g.put(i)
		case <-tick.C:
			g.flushAll()
		}
	}
}

func (g *gatherer) put(i *item) {
	batch := append(g.open[i.key], i)
	g.open[i.key] = batch
	g.held++
	switch {
	case len(batch) == gatherMost:
		g.flush(batch)
		delete(g.open, i.key)
	case g.held == gatherLimit:
		g.flushAll()
	}
}

func (g *gatherer) flushAll() {
	for _, batch := range g.open {
		g.flush(batch)
	}
	clear(g.open)
}

func (g *gatherer) flush(batch []*item) {
	slices.SortFunc(batch, compareItems)
	g.held -= len(batch)
	g.left += len(batch)
}
