package batching_test

import (
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
