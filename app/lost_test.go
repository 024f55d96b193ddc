package app_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/internal/testkit"
	"github.com/weir-es/weir/projection"
)

// TestP8_AClaimWhoseAnswerIsLost is made once more: the database says that the leases
// are ours, and nobody would ever work on them.
func TestP8_AClaimWhoseAnswerIsLost(t *testing.T) {
	t.Parallel()
	config := service(t)
	config.Inbox = soon
	wire := testkit.NewWire(t, config.Postgres)
	config.Pool = wire.Pool
	a := open(t, config)
	config.Pool = nil
	watch := open(t, config)
	begin(t, a)
	ownsAll(t, a, 10*time.Second)
	wire.Cut(1)
	alter(t, watch, "update weir.leases set owner = null, epoch = epoch + 1")
	testkit.Await(t, 10*time.Second, "an answer is lost", func() bool { return wire.Lost() > 0 })
	ownsAll(t, a, 10*time.Second)
	publish(t, watch, "seat-1", "Ada")
	awaitGuests(t, watch, "seat-1", 1, 10*time.Second)
}

// TestP8_AHandlerThatHangs holds up neither the other read models nor a handover.
func TestP8_AHandlerThatHangs(t *testing.T) {
	t.Parallel()
	config := service(t)
	config.Inbox = soon
	gate, inside := make(chan bool), make(chan bool)
	release := sync.OnceFunc(func() { close(gate) })
	stuck := projection.Handler{Name: "stuck", Handle: func(_ context.Context, _ pgx.Tx, e weir.Event, _ any) error {
		if e.Stream == "seat-1" {
			select {
			case inside <- true:
			case <-gate:
			}
			<-gate // whatever its context says
		}
		return nil
	}}
	config.Projections = append(slices.Clone(config.Projections), stuck)
	a := open(t, config)
	begin(t, a)
	defer release()
	ownsAll(t, a, 10*time.Second)
	publish(t, a, "seat-1", "Ada")
	<-inside
	b := open(t, config)
	begin(t, b)
	balanced(t, 1, a, b)
	for n := range 40 {
		publish(t, b, weir.StreamID(fmt.Sprint("other-", n)), "Cid")
	}
	for n := range 40 {
		awaitGuests(t, b, fmt.Sprint("other-", n), 1, 20*time.Second)
	}
	release()
}
