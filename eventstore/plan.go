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

func newPlan(streams int) plan {
	return plan{heads: make(map[weir.StreamID]*head, streams), known: map[weir.ID]*weir.Event{}}
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
	slices.SortStableFunc(added, func(a, b row) int { return weir.CompareEvents(*a.event, *b.event) })
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

// number gives the messages that are not stored yet their versions, in the order
// of their ids.
func (p *plan) number(a Append, facts bool) {
	h := p.heads[a.Stream]
	sorted := slices.Clone(a.Messages)
	slices.SortStableFunc(sorted, weir.CompareMessages)
	for _, m := range sorted {
		if p.known[m.ID] != nil {
			continue
		}
		e := h.next(m, facts)
		p.known[m.ID] = e
		p.rows = append(p.rows, row{h, e})
	}
}

// next is the message as the next event of the stream. A decision knew every
// event before it, so it sorts after them: where its id does not, it gets an
// order id just above the last. A fact keeps its place in time.
func (h *head) next(m weir.Message, facts bool) *weir.Event {
	h.version++
	h.moved = true
	e := &weir.Event{Message: m, Version: h.version, IsNew: true}
	if !facts && e.ID.Compare(h.last) <= 0 {
		e.OrderID = justAbove(h.last)
	}
	if o := e.Order(); o.Compare(h.last) > 0 {
		h.last = o
	}
	return e
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
