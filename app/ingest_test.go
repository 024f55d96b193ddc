package app

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/batching"
	"github.com/weir-es/weir/transport"
)

// The inbox: whatever order facts arrive in, each batch that goes to the store is
// sorted by id.
func TestP5_TheInboxHandsOverInTheOrderOfIds(t *testing.T) {
	for name, policy := range policies {
		t.Run(name, func(t *testing.T) {
			r := &run{App: &App{config: Config{Inbox: policy}}, hard: t.Context()}
			r.inbox.Policy = policy
			var sent []*transport.Delivery
			for n := range 300 {
				stream := weir.Stream("seat", fmt.Sprint(n%3))
				sent = append(sent, &transport.Delivery{Message: weir.Message{ID: weir.NewID(), Stream: stream}})
			}
			rand.Shuffle(len(sent), func(i, j int) { sent[i], sent[j] = sent[j], sent[i] })

			handed := 0
			c := r.collector(0)
			c.Flush = func(_ context.Context, batches []batching.Batch[weir.StreamID, *transport.Delivery]) error {
				for _, b := range batches {
					handed += len(b.Items)
					if !slices.IsSortedFunc(b.Items, func(a, b *transport.Delivery) int { return a.Message.ID.Compare(b.Message.ID) }) {
						t.Errorf("a batch of %s is not sorted", b.Key)
					}
				}
				return nil
			}
			source := make(chan *transport.Delivery, len(sent))
			for _, d := range sent {
				source <- d
			}
			close(source)
			if err := c.Collect(t.Context(), source); err != nil || handed != len(sent) {
				t.Errorf("%d of %d facts were handed over, %v", handed, len(sent), err)
			}
		})
	}
}

// Limit is given, so that no store has to be asked for its shards.
var policies = map[string]batching.Policy{
	"adaptive": batching.Adaptive(batching.Window{Limit: 1000}),
	"fixed":    batching.Fixed(batching.Window{Limit: 1000}),
	"off":      batching.Off(batching.Window{Limit: 1000}),
}

func TestInboxAdaptsByDefault(t *testing.T) {
	if got := (Config{}).withDefaults().Inbox; got != batching.Adaptive(batching.Inbox) {
		t.Errorf("inbox: %+v", got)
	}
	if got := (Config{Inbox: batching.Fixed(batching.Window{})}).withDefaults().Inbox; got != batching.Fixed(batching.Window{}) {
		t.Errorf("inbox: %+v, want what was given", got)
	}
}
