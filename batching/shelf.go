package batching

import (
	"cmp"
	"slices"
	"time"
)

// spareSlots is how much room for items is kept between batches, in items.
const spareSlots = 8 << 10

// shelf holds the open batches and decides which of them close. It reads no
// clock and calls nobody; times come in as arguments and never go backwards.
//
// Both lists are in the order of their deadlines because every batch has the
// same Quiet and the same MaxAge, so an arrival moves its batch to an end and
// the next deadline is at the other: O(1) without a heap. A Quiet that differs
// from category to category keeps this with one byLast list per category, since
// within a category the order by last arrival is still the order of deadlines.
type shelf[K comparable, T any] struct {
	window  Window
	open    map[K]*entry[K, T]
	byLast  list[K, T] // the idlest first: Quiet
	byFirst list[K, T] // the oldest first: MaxAge, Limit
	items   int        // in open batches
	slots   int        // room for items in open batches
	opened  uint64     // batches so far

	closed []*entry[K, T] // on their way out, until recycled
	spare  []*entry[K, T]
	unused int // room for items in spare
}

// entry is one batch and its places in the lists.
type entry[K comparable, T any] struct {
	Batch[K, T]
	last  time.Time // arrival of the newest item
	bytes int
	turn  uint64 // how many batches were opened before this one
	links [2]link[K, T]
}

func newShelf[K comparable, T any](window Window) *shelf[K, T] {
	return &shelf[K, T]{
		window:  window,
		open:    map[K]*entry[K, T]{},
		byLast:  list[K, T]{lane: 0},
		byFirst: list[K, T]{lane: 1},
	}
}

// fits says whether an item of size bytes may join e. A batch of one item may
// be any size: it has to leave somehow.
func (s *shelf[K, T]) fits(e *entry[K, T], size int) bool {
	return size <= s.window.MaxBytes-e.bytes
}

// start opens a batch for key, which must have none.
func (s *shelf[K, T]) start(key K, at time.Time) *entry[K, T] {
	e := s.blank()
	e.Key, e.First, e.last, e.turn = key, at, at, s.opened
	s.opened++
	s.slots += cap(e.Items)
	s.open[key] = e
	s.byLast.push(e)
	s.byFirst.push(e)
	return e
}

// put adds item to e, and closes what that makes full.
func (s *shelf[K, T]) put(e *entry[K, T], item T, size int, at time.Time) {
	s.slots -= cap(e.Items)
	e.Items = append(e.Items, item)
	s.slots += cap(e.Items)
	e.bytes += size
	e.last = at
	s.byLast.moveLast(e)
	s.items++
	if len(e.Items) >= s.window.MaxItems || e.bytes >= s.window.MaxBytes {
		s.close(e)
	}
	if s.items >= s.window.Limit {
		s.shed()
	}
}

// shed closes the oldest batches until there is room again.
func (s *shelf[K, T]) shed() {
	for s.items > s.window.room() {
		s.close(s.byFirst.head)
	}
}

// closeDue closes every batch whose time has come.
func (s *shelf[K, T]) closeDue(now time.Time) {
	for e := s.byLast.head; e != nil && now.Sub(e.last) >= s.window.Quiet; e = s.byLast.head {
		s.close(e)
	}
	for e := s.byFirst.head; e != nil && now.Sub(e.First) >= s.window.MaxAge; e = s.byFirst.head {
		s.close(e)
	}
}

// closeAll closes every batch there is.
func (s *shelf[K, T]) closeAll() {
	for s.byFirst.head != nil {
		s.close(s.byFirst.head)
	}
}

func (s *shelf[K, T]) close(e *entry[K, T]) {
	s.byLast.remove(e)
	s.byFirst.remove(e)
	delete(s.open, e.Key)
	s.items -= len(e.Items)
	s.slots -= cap(e.Items)
	s.closed = append(s.closed, e)
}

// deadline is when the next batch closes by itself; false when none is open.
func (s *shelf[K, T]) deadline() (time.Time, bool) {
	if s.byFirst.head == nil {
		return time.Time{}, false
	}
	quiet := s.byLast.head.last.Add(s.window.Quiet)
	aged := s.byFirst.head.First.Add(s.window.MaxAge)
	if aged.Before(quiet) {
		return aged, true
	}
	return quiet, true
}

// sortClosed puts the closed batches in the order of their first items.
func (s *shelf[K, T]) sortClosed() {
	slices.SortFunc(s.closed, func(a, b *entry[K, T]) int { return cmp.Compare(a.turn, b.turn) })
}

// recycle forgets the closed batches and keeps a little of their room.
func (s *shelf[K, T]) recycle() {
	for _, e := range s.closed {
		if s.unused+cap(e.Items) > spareSlots {
			continue
		}
		clear(e.Items) // what the items point at must not live on here
		*e = entry[K, T]{Batch: Batch[K, T]{Items: e.Items[:0]}}
		s.unused += cap(e.Items)
		s.spare = append(s.spare, e)
	}
	clear(s.closed)
	s.closed = s.closed[:0]
}

// blank is a spare batch, or a new one. When large spares have ended up with
// keys of a few items, new ones are small: room stays in proportion to Limit.
func (s *shelf[K, T]) blank() *entry[K, T] {
	if len(s.spare) == 0 || s.slots > 2*s.window.Limit {
		return new(entry[K, T])
	}
	end := len(s.spare) - 1
	e := s.spare[end]
	s.spare[end] = nil
	s.spare = s.spare[:end]
	s.unused -= cap(e.Items)
	return e
}
