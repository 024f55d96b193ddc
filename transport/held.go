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
// The broker matches an ack to a message by its sequence alone. After a reset it
// gives out everything above the ack floor, acked or not, and an ack that comes
// before is not heard. So an ack is sent only in the session in which the broker
// gave the message out last; one that comes between is remembered and sent when
// the message comes again, and so are those of the last seconds.
type held struct {
	nats *nats.Conn

	mu    sync.Mutex
	by    map[uint64]*Delivery // by sequence
	acked [2]map[uint64]int64  // by sequence, when it was stored: since the last tick, and before

	session int
	stretch context.Context // of unbroken connection, in which the session began
	left    bool            // Receive has returned
	voided  bool            // what was delivered is not what the broker holds
	done    chan struct{}
}

func newHeld(c *Conn) *held {
	return &held{nats: c.nats, by: map[uint64]*Delivery{}, acked: [2]map[uint64]int64{{}, {}}, done: make(chan struct{})}
}

// begin is called before a reset and numbers the session.
func (h *held) begin(stretch context.Context) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.session++
	h.stretch = stretch
	return h.session
}

var errOther = errors.New("a sequence holds another message than before")

// add takes a delivery. It reports known if this very message was delivered
// before: the first delivery of it then goes on, or is acked if the caller was
// done with it.
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
	old.reply, old.session, old.touched = d.reply, d.session, d.touched
	if old.acked {
		_ = h.sendAck(old)
	}
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
	d.acked = true
	if d.session != h.session || h.stretch.Err() != nil {
		return h.later(d, errLater)
	}
	return h.sendAck(d)
}

// sendAck tells the broker. Lock held; the client only buffers.
func (h *held) sendAck(d *Delivery) error {
	if err := h.nats.Publish(d.reply, ackBody); err != nil {
		return h.later(d, err)
	}
	h.acked[0][d.Sequence] = d.Stored.UnixNano()
	h.drop(d)
	return nil
}

// later leaves an ack for when the message comes again, if a Receive is there to
// which it could. Lock held.
func (h *held) later(d *Delivery, err error) error {
	if h.left {
		h.drop(d)
	}
	return fmt.Errorf("ack message %d: %w", d.Sequence, err)
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
// was delivered, and must not be acked.
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
	h.acked = [2]map[uint64]int64{{}, h.acked[0]}
	for _, d := range h.by {
		if d.touched.Before(limit) && !d.acked {
			d.touched = now
			replies = append(replies, d.reply)
		}
	}
	return replies
}
