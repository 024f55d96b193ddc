package app_test

import (
	"slices"
	"testing"
	"time"

	"github.com/weir-es/weir/batching"
	"github.com/weir-es/weir/internal/testkit"
)

// TestP5_TheBrokersOrderIsNotTheOrder: facts that the broker numbers and dates in just
// the opposite order, one by one, come out in the order in which they were emitted.
// (nats-server#8368: sequences and times of a stream that disagree)
func TestP5_TheBrokersOrderIsNotTheOrder(t *testing.T) {
	t.Parallel()
	config := service(t)
	config.Inbox = batching.Fixed(batching.Window{Quiet: time.Millisecond, MaxAge: time.Millisecond, MaxItems: 1})
	a := open(t, config)
	begin(t, a)
	c := newCrowd(t, a, 60, 3)
	c.sent = slices.Concat(c.facts["seat-0"], c.facts["seat-1"], c.facts["seat-2"])
	slices.Reverse(c.sent)
	for _, m := range c.sent {
		if err := a.Publisher().Publish(testkit.Context(t), m); err != nil {
			t.Fatal(err)
		}
	}
	settle(t, a, 20*time.Second)
	c.check(t, a)
}
