package eventstore

import (
	"encoding/binary"
	"slices"

	"github.com/weir-es/weir"
)

// head is where a locked stream is.
type head struct {
	id      int64
	shard   weir.Shard
	version weir.Version
	last    weir.ID // highest order id
	moved   bool
}

// row is an event on its way into the table.
type row struct {
	head  *head
	event *weir.Event
	order weir.ID // what the event sorts by
}

// plan decides what a group of requests stores. It is pure: it is given where the
// locked streams are and which ids are stored already, and leaves the rows to
// insert, in order, and the answer to each request.
type plan struct {
	heads map[weir.StreamID]*head
	// known are the events stored already, among the ids of the group, and those
	// planned so far. Without a lookup beforehand it starts empty; then a stored
	// id shows itself when the unique index refuses the insert.
	known map[weir.ID]*weir.Event
	rows  []row
}

func newPlan(streams int, requests []*request) plan {
	events := 0
	for _, r := range requests {
		events += len(r.ids)
	}
	return plan{make(map[weir.StreamID]*head, streams), make(map[weir.ID]*weir.Event, events), make([]row, 0, events)}
}

// add plans one request. A conflict leaves the plan as it was.
func (p *plan) add(r *request) error {
	for _, a := range r.appends {
		if err := p.check(a); err != nil {
			return err
		}
	}
	start := len(p.rows)
	for _, a := range r.appends {
		p.number(a, r.facts)
	}
	added := p.rows[start:]
	if len(r.appends) > 1 { // each is in order
		slices.SortStableFunc(added, func(a, b row) int { return a.order.Compare(b.order) })
	}
	r.stored = len(added)
	r.answer(p.known)
	return nil
}

// check compares the version of a stream with what the writer expects. What is
// stored already counts as stored by this very append, so that a repeat
// succeeds, also with the version expected the first time.
func (p *plan) check(a Append) error {
	if a.Expected < 0 {
		return nil
	}
	fresh, repeated := 0, map[weir.Version]bool{}
	for _, m := range a.Messages {
		switch e := p.known[m.ID]; {
		case e == nil:
			fresh++
		case e.Stream == a.Stream && e.Version > weir.Version(a.Expected):
			repeated[e.Version] = true
		}
	}
	at := p.heads[a.Stream].version
	if fresh == 0 && len(a.Messages) > 0 || at == weir.Version(a.Expected)+weir.Version(len(repeated)) {
		return nil
	}
	return &weir.ConflictError{Stream: a.Stream, Expected: a.Expected, Actual: at}
}

// number gives the messages that are not stored yet, which are sorted by id, their
// versions.
func (p *plan) number(a Append, facts bool) {
	h := p.heads[a.Stream]
	events := make([]weir.Event, len(a.Messages))
	for i := range a.Messages {
		e := &events[i]
		if e.Message = a.Messages[i]; p.known[e.ID] != nil {
			continue
		}
		p.known[e.ID] = e
		p.rows = append(p.rows, row{h, e, h.next(e, facts)})
	}
}

// next makes e the next event of the stream and returns what it sorts by. A decision
// knew every event before it, so it sorts after them: where its id does not, it gets
// an order id just above the last. A fact keeps its place in time.
func (h *head) next(e *weir.Event, facts bool) weir.ID {
	h.version++
	h.moved = true
	e.Version, e.IsNew = h.version, true
	order := e.ID
	if !facts && order.Compare(h.last) <= 0 {
		order = justAbove(h.last)
		e.OrderID = order
	}
	if order.Compare(h.last) > 0 {
		h.last = order
	}
	return order
}

// justAbove is the smallest id greater than id.
func justAbove(id weir.ID) weir.ID {
	low := binary.BigEndian.Uint64(id[8:]) + 1
	binary.BigEndian.PutUint64(id[8:], low)
	if low == 0 {
		binary.BigEndian.PutUint64(id[:8], binary.BigEndian.Uint64(id[:8])+1)
	}
	return id
}
