package transport

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// held are the deliveries of one Receive that are not acked: it extends them, and
// knows them again when the broker gives them out a second time.
//
// After a reset the broker gives out everything above the ack floor, acked or
// not, and an ack that comes before is not heard. So the acks of the last seconds
// are remembered and sent again when their message comes again. The broker
// matches an ack to a message by its sequence alone. So none is sent after the
// connection was lost until it is known that the stream is still the one it was.
type held struct {
	nats *nats.Conn

	mu      sync.Mutex
	by      map[uint64]*Delivery // by sequence
	acked   [2]map[uint64]int64  // by sequence, when it was stored: since the last tick, and before
	stretch context.Context      // of unbroken connection to the stream that we know
	left    bool                 // Receive has returned
	voided  bool                 // what was delivered is not ours to ack
	done    chan struct{}
	forget  func() bool // follows no lease any more
}

func newHeld(c *Conn) *held {
	return &held{nats: c.nats, by: map[uint64]*Delivery{}, acked: [2]map[uint64]int64{{}, {}}, done: make(chan struct{})}
}

// follow voids everything when lease ends.
func (h *held) follow(lease context.Context) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.forget = context.AfterFunc(lease, h.void)
}

// begin says for how long acks may be sent.
func (h *held) begin(stretch context.Context) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stretch = stretch
}

var errOther = errors.New("a sequence holds another message than before")

// add takes a delivery. It reports known if this very message was delivered
// before: the first delivery of it then goes on, or is acked again if the caller
// was done with it.
func (h *held) add(d *Delivery) (known bool, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	old := h.by[d.Sequence]
	switch {
	case h.voided:
		return true, nil
	case old == nil && h.wasAcked(d):
		_ = h.nats.Publish(d.reply, ackBody) // if it is lost the message comes once more
		return true, nil
	case old == nil:
		h.by[d.Sequence] = d
		return false, nil
	case !old.Stored.Equal(d.Stored):
		h.empty()
		return false, errOther
	}
	old.reply, old.touched = d.reply, d.touched
	return true, nil
}

func (h *held) wasAcked(d *Delivery) bool {
	for _, acked := range h.acked {
		if stored, ok := acked[d.Sequence]; ok && stored == d.Stored.UnixNano() {
			return true
		}
	}
	return false
}

var errLater = errors.New("the connection was lost; the message comes again")

func (h *held) ack(d *Delivery) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.voided || h.by[d.Sequence] != d {
		return nil // acked before, or there is nothing to ack any more
	}
	h.acked[0][d.Sequence] = d.Stored.UnixNano()
	h.drop(d)
	err := errLater
	if h.stretch.Err() == nil {
		err = h.nats.Publish(d.reply, ackBody) // which only buffers
	}
	if err != nil {
		return fmt.Errorf("ack message %d: %w", d.Sequence, err)
	}
	return nil
}

var (
	ackBody        = []byte("+ACK")
	inProgressBody = []byte("+WPI")
)

func (h *held) release(d *Delivery) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.by[d.Sequence] == d {
		h.drop(d)
	}
}

func (h *held) drop(d *Delivery) {
	delete(h.by, d.Sequence)
	h.finish()
}

// leave says that Receive has returned.
func (h *held) leave() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.left = true
	h.finish()
}

// void forgets everything: what the broker has under these sequences is not what
// was delivered, or is for the next owner, and must not be acked.
func (h *held) void() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.empty()
}

func (h *held) empty() {
	h.voided = true
	clear(h.by)
	h.finish()
}

// finish ends the extending when there will be nothing to extend. Lock held.
func (h *held) finish() {
	if !h.left || len(h.by) > 0 {
		return
	}
	select {
	case <-h.done:
	default:
		close(h.done)
		h.forget()
	}
}

// extend keeps the broker from giving out again what is held: it extends what was
// not touched for a third of ackWait.
func (h *held) extend(ackWait time.Duration, closing <-chan struct{}) {
	tick := time.NewTicker(ackWait / 12)
	defer tick.Stop()
	for {
		select {
		case now := <-tick.C:
			for _, reply := range h.older(now.Add(-ackWait/3), now) {
				_ = h.nats.Publish(reply, inProgressBody) // a later tick tries again
			}
		case <-h.done:
			return
		case <-closing:
			return
		}
	}
}

// older lists what was last touched before limit, and touches it.
func (h *held) older(limit, now time.Time) (replies []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stretch != nil && h.stretch.Err() == nil {
		h.acked = [2]map[uint64]int64{{}, h.acked[0]}
	}
	for _, d := range h.by {
		if d.touched.Before(limit) {
			d.touched = now
			replies = append(replies, d.reply)
		}
	}
	return replies
}
