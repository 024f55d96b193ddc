package batching

import (
	"slices"
	"time"
)

// Batch is what arrived for one key while its window was open.
type Batch[K comparable, T any] struct {
	Key   K
	Items []T       // sorted by Collector.Compare; equal items in order of arrival
	First time.Time // when the first of them arrived, which need not be Items[0]
}

// sort looks before it works: most batches arrive in order.
func (b *Batch[K, T]) sort(compare func(a, b T) int) {
	if compare == nil || slices.IsSortedFunc(b.Items, compare) {
		return
	}
	slices.SortStableFunc(b.Items, compare)
}
