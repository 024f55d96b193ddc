package projection

import (
	"context"
	"iter"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/eventstore"
)

// source is where the events of streams are read again, and how they are decoded.
type source struct {
	decoder
	store *eventstore.Store
	q     eventstore.Querier
	// within leaves out all other events; nil leaves out none.
	within func(weir.Event) bool
}

// replay gives parts of streams, one stream after the other, each in the order in which
// a view folds it.
func (s source) replay(ctx context.Context, order Order, ranges ...eventstore.Range) iter.Seq2[item, error] {
	return func(yield func(item, error) bool) {
		if len(ranges) == 0 {
			return
		}
		for event, err := range s.store.Replay(ctx, s.q, order == ByVersion, ranges...) {
			event.IsNew = false
			i := item{Event: event}
			if err == nil && (s.within == nil || s.within(event)) {
				i = s.item(event)
			}
			if !yield(i, err) || err != nil {
				return
			}
		}
	}
}
