package batching

import (
	"cmp"
	"testing"
)

// Enough items that a sort which is not stable shows it.
func TestP5_EqualItemsStayInOrderOfArrival(t *testing.T) {
	var b Batch[int, grain]
	for sent := range 100 {
		b.Items = append(b.Items, grain{order: sent % 3, sent: sent})
	}
	b.sort(func(a, b grain) int { return cmp.Compare(a.order, b.order) })
	for i := 1; i < len(b.Items); i++ {
		before, g := b.Items[i-1], b.Items[i]
		if before.order > g.order || before.order == g.order && before.sent > g.sent {
			t.Fatalf("%+v before %+v", before, g)
		}
	}
}

func TestWithoutCompareItemsStayAsTheyArrived(t *testing.T) {
	b := Batch[int, int]{Items: []int{3, 1, 2}}
	b.sort(nil)
	if b.Items[0] != 3 || b.Items[1] != 1 || b.Items[2] != 2 {
		t.Errorf("got %v, want 3 1 2", b.Items)
	}
}
