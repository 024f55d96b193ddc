package batching

import (
	"bytes"
	"slices"
	"time"
)

// trail remembers the recent arrivals of one key, to tell how late another is.
//
// Only those matter that sort after everything before them: of all items that
// sort after a late one, the first to arrive is among these. They ascend by place
// and by time.
type trail struct {
	marks []mark
	past  mark   // the last that was forgotten
	turn  uint64 // the generation of trails that it is in
	room  [2]mark
}

type mark struct {
	place [16]byte
	at    time.Time
}

// fineness is how many marks a trail has at most, save one: arrivals that are
// closer together than this part of the memory share a mark, with the time of the
// first, so lateness comes out too high by that much at most.
const fineness = 64

// arrive notes an arrival and says how late it is: how long ago the first item
// arrived that sorts after it; 0 if none did. Beyond memory it says no more than
// that.
func (t *trail) arrive(place [16]byte, now time.Time, memory time.Duration) time.Duration {
	t.forget(now.Add(-memory))
	if before(place, t.past.place) {
		return now.Sub(t.past.at)
	}
	newest := len(t.marks) - 1
	switch {
	case newest < 0 || before(t.marks[newest].place, place) && now.Sub(t.marks[newest].at) >= memory/fineness:
		t.marks = append(t.marks, mark{place, now})
		return 0
	case before(t.marks[newest].place, place):
		t.marks[newest].place = place
		return 0
	}
	i := slices.IndexFunc(t.marks, func(m mark) bool { return before(place, m.place) })
	if i < 0 {
		return 0 // it came again
	}
	return now.Sub(t.marks[i].at)
}

// forget drops what arrived before a time.
func (t *trail) forget(until time.Time) {
	old := 0
	for old < len(t.marks) && t.marks[old].at.Before(until) {
		old++
	}
	if old > 0 {
		t.past = t.marks[old-1]
		t.marks = append(t.marks[:0], t.marks[old:]...)
	}
}

func before(a, b [16]byte) bool { return bytes.Compare(a[:], b[:]) < 0 }

// trails are those of all keys that something arrived for within memory. Older
// ones go a generation at a time, and also when a generation has as many keys as
// it may, so there are never more than 2 * most.
type trails[K comparable] struct {
	memory     time.Duration
	most       int
	young, old map[K]*trail
	turn       uint64
	turned     time.Time
}

func newTrails[K comparable](memory time.Duration, most int) *trails[K] {
	return &trails[K]{memory: memory, most: most, young: map[K]*trail{}, old: map[K]*trail{}}
}

// of finds the trail of key, or begins one. known is the one that the caller
// remembers, if any, which saves the search.
func (t *trails[K]) of(key K, known *trail, now time.Time) *trail {
	if known != nil && known.turn == t.turn {
		return known
	}
	if found := t.young[key]; found != nil {
		return found
	}
	if known == nil {
		known = t.old[key]
	}
	if known == nil {
		known = new(trail)
		known.marks = known.room[:0]
	}
	if len(t.young) >= t.most {
		t.next(now)
	}
	known.turn = t.turn
	t.young[key] = known
	return known
}

// expire forgets a generation if it is old enough. It forgets no key that something
// arrived for within memory.
func (t *trails[K]) expire(now time.Time) {
	if !t.isEmpty() && !now.Before(t.expiry()) {
		t.next(now)
	}
}

// expiry is when expire has something to do, unless t is empty.
func (t *trails[K]) expiry() time.Time { return t.turned.Add(t.memory) }

func (t *trails[K]) isEmpty() bool { return len(t.young)+len(t.old) == 0 }

func (t *trails[K]) next(now time.Time) {
	t.young, t.old = t.old, t.young
	clear(t.young)
	t.turn++
	t.turned = now
}
