package batching

import (
	"cmp"
	"context"
	"fmt"
	"testing"
)

type message struct {
	stream string
	order  uint64
}

// BenchmarkCollect sends through a channel what another goroutine made before.
// Ordered items cost a look at close, disordered ones a sort.
func BenchmarkCollect(b *testing.B) {
	for _, keys := range []int{1, 100_000} {
		for _, order := range []string{"ordered", "disordered"} {
			b.Run(fmt.Sprintf("keys=%d/%s", keys, order), func(b *testing.B) {
				benchmarkCollect(b, messages(keys, order == "ordered"))
			})
		}
	}
}

func benchmarkCollect(b *testing.B, all []message) {
	source := make(chan *message, 4096)
	var left, calls int
	c := Collector[string, *message]{
		Key:     func(m *message) string { return m.stream },
		Compare: func(a, b *message) int { return cmp.Compare(a.order, b.order) },
		Size:    func(m *message) int { return 256 },
		Flush: func(_ context.Context, batches []Batch[string, *message]) error {
			calls++
			for _, batch := range batches {
				left += len(batch.Items)
			}
			return nil
		},
	}
	b.ReportAllocs()
	b.ResetTimer()
	go func() {
		defer close(source)
		for n := range b.N {
			source <- &all[n%len(all)]
		}
	}()
	if err := c.Collect(b.Context(), source); err != nil {
		b.Fatal(err)
	}
	if left != b.N {
		b.Fatalf("%d of %d items left", left, b.N)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "items/s")
	b.ReportMetric(float64(b.N)/float64(calls), "items/call")
}

// messages are one round of the keys, or 1<<17 of the only one.
func messages(keys int, ordered bool) []message {
	all := make([]message, max(keys, 1<<17))
	for i := range all {
		order := uint64(i)
		if !ordered {
			order ^= 0x55 // shuffles neighbours
		}
		all[i] = message{fmt.Sprintf("stream-%d", i%keys), order}
	}
	return all
}
