package batching_test

import (
	"bytes"
	"cmp"
	"context"
	"fmt"

	"github.com/weir-es/weir/batching"
)

// Readings of two sensors arrive in disorder and are written in order, all
// that is due in one go.
func Example() {
	type reading struct {
		sensor string
		number int
	}
	source := make(chan reading, 5)
	for _, r := range []reading{{"roof", 2}, {"cellar", 1}, {"roof", 1}, {"cellar", 2}, {"roof", 3}} {
		source <- r
	}
	close(source) // flushes what is open

	collector := batching.Collector[string, reading]{
		Window:  batching.Inbox,
		Key:     func(r reading) string { return r.sensor },
		Compare: func(a, b reading) int { return cmp.Compare(a.number, b.number) },
		Flush: func(ctx context.Context, batches []batching.Batch[string, reading]) error {
			for _, b := range batches {
				fmt.Println(b.Key, b.Items)
			}
			return nil
		},
	}
	fmt.Println(collector.Collect(context.Background(), source))
	// Output:
	// roof [{roof 1} {roof 2} {roof 3}]
	// cellar [{cellar 1} {cellar 2}]
	// <nil>
}

// An adaptive Collector needs to know, besides, what sorts its items and which of
// them are alike. What it learned can be read at any time.
func ExampleGauge() {
	type order struct {
		id   [16]byte
		shop string
	}
	gauge := &batching.Gauge{Policy: batching.Adaptive(batching.Inbox)}
	collector := batching.Collector[string, order]{
		Window:   batching.Inbox,
		Gauge:    gauge,
		Key:      func(o order) string { return o.shop },
		Category: func(string) string { return "shop" },
		Place:    func(o order) [16]byte { return o.id },
		Compare:  func(a, b order) int { return bytes.Compare(a.id[:], b.id[:]) },
		Flush:    func(context.Context, []batching.Batch[string, order]) error { return nil },
	}
	source := make(chan order, 2)
	source <- order{[16]byte{1}, "north"}
	source <- order{[16]byte{2}, "south"}
	close(source)
	fmt.Println(collector.Collect(context.Background(), source))

	shop := gauge.Stats()["shop"]
	fmt.Println(shop.Items, shop.Late, shop.Quiet)
	// Output:
	// <nil>
	// 2 0 2ms
}
