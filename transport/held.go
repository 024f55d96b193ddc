package transport

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// held are the deliveries of one Receive that are not acked: it extends them, and
// knows them again when the broker gives them out a second time.
//
// The broker matches an ack to a message by its sequence alone, and forgets after
// a reset what it had given out. So an ack is sent only in the session in which
// the broker gave the message out last; one that comes between is remembered and
// sent when the message comes again.
type held struct {
	nats *nats.Conn

	mu         sync.Mutex
	by         map[uint64]*Delivery // by sequence
	session    int
	reconnects uint64 // of the connection, when the session began
	left       bool   // Receive has returned
	voided     bool   // what was delivered is not what the broker holds
	done       chan struct{}
}

func newHeld(c *Conn) *held {
	return &held{nats: c.nats, by: map[uint64]*Delivery{}, done: make(chan struct{})}
}

// begin is called before a reset and numbers the session.
func (h *held) begin(reconnects uint64) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.session++
	h.reconnects = reconnects
	return h.session
}

var errOther = errors.New("a sequence holds another message than before")

// add takes a delivery. It reports known if this very message is held already;
// the first delivery of it then goes on, or is acked if the caller was done.
func (h *held) add(d *Delivery) (known bool, err error) {
	h.mu.Lock()
	old := h.by[d.Sequence]
	switch {
	case h.voided:
		h.mu.Unlock()
		return true, nil
	case old == nil:
		h.by[d.Sequence] = d
		h.mu.Unlock()
		return false, nil
	case !old.Stored.Equal(d.Stored):
		h.mu.Unlock()
		h.void()
		return false, errOther
	}
	old.reply, old.session, old.touched = d.reply, d.session, d.touched
	acked := old.acked
	h.mu.Unlock()
	if acked {
		_ = h.sendAck(old, d.reply) // if it fails the message comes once more
	}
	return true, nil
}

var errLater = errors.New("the connection was lost; the message comes again")

func (h *held) ack(d *Delivery) error {
	h.mu.Lock()
	if h.voided || h.by[d.Sequence] != d {
		h.mu.Unlock()
		return nil // acked before, or there is nothing to ack any more
	}
	d.acked = true
	reply := d.reply
	current := d.session == h.session && h.nats.Stats().Reconnects == h.reconnects
	h.mu.Unlock()
	if !current {
		h.forget(d)
		return fmt.Errorf("ack message %d: %w", d.Sequence, errLater)
	}
	return h.sendAck(d, reply)
}

func (h *held) sendAck(d *Delivery, reply string) error {
	if err := h.nats.Publish(reply, ackBody); err != nil {
		h.forget(d)
		return fmt.Errorf("ack message %d: %w", d.Sequence, err)
	}
	h.release(d)
	return nil
}

// forget gives up an ack that could not be sent, if no Receive is there to which
// the message could come again.
func (h *held) forget(d *Delivery) {
	h.mu.Lock()
	left := h.left
	h.mu.Unlock()
	if left {
		h.release(d)
	}
}

var (
	ackBody        = []byte("+ACK")
	inProgressBody = []byte("+WPI")
)

func (h *held) release(d *Delivery) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.by[d.Sequence] == d {
		delete(h.by, d.Sequence)
	}
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

// extend keeps the broker from giving out again what is held: every interval it
// extends what was not extended for as long.
func (h *held) extend(every time.Duration, closing <-chan struct{}) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case now := <-tick.C:
			for _, reply := range h.older(now.Add(-every), now) {
				_ = h.nats.Publish(reply, inProgressBody) // the next tick tries again
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
	for _, d := range h.by {
		if d.touched.Before(limit) && !d.acked {
			d.touched = now
			replies = append(replies, d.reply)
		}
	}
	return replies
}
