package batching

import (
	"cmp"
	"slices"
	"time"
)

// spareSlots is how much room for items is kept between batches, in items.
const spareSlots = 8 << 10

// shelf holds the open batches and decides which of them close. It reads no
// clock and calls nobody but a Gauge; times come in as arguments and never go
// backwards.
//
// All lists are in the order of their deadlines, because within a category every
// batch has the same Quiet, and all have the same MaxAge. So an arrival moves its
// batch to an end and the next deadline is at the other: O(1) without a heap, and
// it stays so when a category's Quiet changes.
type shelf[K comparable, T any] struct {
	window     Window
	open       map[K]*entry[K, T]
	categories []*category[K, T]
	byFirst    list[K, T] // the oldest first: MaxAge, Limit
	items      int        // in open batches
	slots      int        // room for items in open batches
	opened     uint64     // batches so far

	// Of a shelf that a Gauge watches.
	gauge  *Gauge
	name   func(K) string // of a category
	byDial map[*dial]*category[K, T]
	place  func(T) [16]byte // or nil: lateness is not measured
	trails *trails[K]

	closed []*entry[K, T] // on their way out, until recycled
	spare  []*entry[K, T]
	unused int // room for items in spare
}

// category is a group of keys with one Quiet.
type category[K comparable, T any] struct {
	byLast list[K, T] // the idlest first: Quiet
	quiet  time.Duration
	dial   *dial // decides Quiet instead; nil without a Gauge
	onTime int64 // items not told to the dial yet
}

// entry is one batch and its places in the lists.
type entry[K comparable, T any] struct {
	Batch[K, T]
	category *category[K, T]
	trail    *trail
	last     time.Time // arrival of the newest item
	bytes    int
	turn     uint64 // how many batches were opened before this one
	links    [2]link[K, T]
}

func newShelf[K comparable, T any](window Window) *shelf[K, T] {
	return &shelf[K, T]{
		window:     window,
		open:       map[K]*entry[K, T]{},
		categories: []*category[K, T]{newCategory[K, T](window, nil)},
		byFirst:    list[K, T]{lane: 1},
	}
}

func newCategory[K comparable, T any](window Window, d *dial) *category[K, T] {
	return &category[K, T]{byLast: list[K, T]{lane: 0}, quiet: window.Quiet, dial: d}
}

// watch lets a Gauge see every batch. Without place it cannot see lateness, and
// an adaptive policy is a fixed one.
func (s *shelf[K, T]) watch(g *Gauge, name func(K) string, place func(T) [16]byte) {
	s.gauge, s.name, s.place = g, name, place
	s.categories, s.byDial = nil, map[*dial]*category[K, T]{}
	if place != nil {
		s.trails = newTrails[K](s.window.Quiet, s.window.Limit)
	}
}

// categoryOf finds the category of a key. There are no more than a Gauge has.
func (s *shelf[K, T]) categoryOf(key K) *category[K, T] {
	if s.gauge == nil {
		return s.categories[0]
	}
	name := ""
	if s.name != nil {
		name = s.name(key)
	}
	d := s.gauge.dial(name)
	c := s.byDial[d]
	if c == nil {
		c = newCategory[K, T](s.window, d)
		s.byDial[d] = c
		s.categories = append(s.categories, c)
	}
	return c
}

// quietOf is how long the batches of c wait for the next item.
func (s *shelf[K, T]) quietOf(c *category[K, T]) time.Duration {
	if c.dial == nil || c.dial.mode == adaptive && s.place == nil {
		return c.quiet
	}
	return min(c.quiet, time.Duration(c.dial.quiet.Load()))
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
	e.category = s.categoryOf(key)
	e.category.byLast.push(e)
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
	e.category.byLast.moveLast(e)
	s.items++
	s.measure(e, item, at)
	if len(e.Items) >= s.window.MaxItems || e.bytes >= s.window.MaxBytes {
		s.close(e)
	}
	if s.items >= s.window.Limit {
		s.shed()
	}
}

// measure notes how late an item is. Items on time are told to the dial later,
// together.
func (s *shelf[K, T]) measure(e *entry[K, T], item T, at time.Time) {
	if s.gauge == nil {
		return
	}
	late := time.Duration(0)
	if s.place != nil {
		e.trail = s.trails.of(e.Key, e.trail, at)
		late = e.trail.arrive(s.place(item), at, s.window.Quiet)
	}
	if late > 0 {
		e.category.dial.late(at, late)
		return
	}
	e.category.onTime++
}

// shed closes the oldest batches until there is room again.
func (s *shelf[K, T]) shed() {
	for s.items > s.window.room() {
		s.close(s.byFirst.head)
	}
}

// closeDue closes every batch whose time has come.
func (s *shelf[K, T]) closeDue(now time.Time) {
	for _, c := range s.categories {
		quiet := s.quietOf(c)
		for e := c.byLast.head; e != nil && now.Sub(e.last) >= quiet; e = c.byLast.head {
			s.close(e)
		}
	}
	for e := s.byFirst.head; e != nil && now.Sub(e.First) >= s.window.MaxAge; e = s.byFirst.head {
		s.close(e)
	}
	if s.trails != nil {
		s.trails.expire(now)
	}
}

// closeAll closes every batch there is.
func (s *shelf[K, T]) closeAll() {
	for s.byFirst.head != nil {
		s.close(s.byFirst.head)
	}
}

func (s *shelf[K, T]) close(e *entry[K, T]) {
	e.category.byLast.remove(e)
	s.byFirst.remove(e)
	delete(s.open, e.Key)
	s.items -= len(e.Items)
	s.slots -= cap(e.Items)
	s.closed = append(s.closed, e)
}

// deadline is when something has to be done next: a batch closes by itself or,
// when none is open, a memory goes. False when there is neither.
func (s *shelf[K, T]) deadline() (time.Time, bool) {
	if s.byFirst.head == nil {
		if s.trails == nil || s.trails.isEmpty() {
			return time.Time{}, false
		}
		return s.trails.expiry(), true
	}
	first := s.byFirst.head.First.Add(s.window.MaxAge)
	for _, c := range s.categories {
		if c.byLast.head == nil {
			continue
		}
		if quiet := c.byLast.head.last.Add(s.quietOf(c)); quiet.Before(first) {
			first = quiet
		}
	}
	return first, true
}

// report tells the Gauge what leaves, and what came on time since the last report.
func (s *shelf[K, T]) report(now time.Time) {
	if s.gauge == nil {
		return
	}
	for _, e := range s.closed {
		e.category.dial.left(now.Sub(e.First), len(e.Items), now)
	}
	for _, c := range s.categories {
		if c.onTime > 0 {
			c.dial.arrived(now, c.onTime)
			c.onTime = 0
		}
	}
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
