package batching

import (
	"maps"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// leastQuiet is the shortest Quiet of an adaptive window: what the items of
	// one burst take to get through a network and a scheduler.
	leastQuiet = 2 * time.Millisecond
	// punctual is the part of all items that an adaptive window is there for.
	// The one in a thousand that comes later is right all the same, at a price.
	punctual = 0.999
	// margin is how much longer than the lateness Quiet is.
	margin = 2
	// relief is how long it takes until a single late item widens half as much.
	relief = 5 * time.Second
	// maxCategories is how many categories a Gauge tells apart.
	maxCategories = 256
)

// Others is the name under which a [Gauge] keeps all categories after the first
// 256.
const Others = "*"

// Gauge watches the batches of one boundary, by category: how late items come,
// how long they wait, and how many leave together. With an [Adaptive] policy it
// decides Quiet by that.
//
// The lateness of an item is how long ago, by the clock of this process, the first
// item of the same key arrived that sorts after it: exactly the Quiet that would
// have caught it, whatever producers' clocks say. It is zero if there was none, or
// if so long ago that the key is forgotten: when it was silent for the longest Quiet.
//
// Quiet is twice the lateness that 999 of 1000 recent items do not exceed, where
// 30 s ago counts half. One item that is later than that widens it at once to
// twice its own lateness, and that is halved every 5 s, unless it is later than the
// policy's Quiet: one that no window would have caught widens none. Quiet stays
// between 2 ms, where it begins, and the policy's.
//
// The zero value is adaptive within the limits of Window{}. It holds three
// sketches of 800 bytes for each of at most 257 categories. Safe for concurrent
// use: the Collectors that share a boundary's work share a Gauge, and each knows
// what the others learned.
type Gauge struct {
	// Policy is what decides Quiet. It must not change once the Gauge is in use.
	Policy Policy

	mu    sync.Mutex
	dials atomic.Pointer[map[string]*dial] // replaced, never changed
}

// Stats is what a Gauge has seen of one category. The counts are of all times, the
// quantiles of late: what is 30 s old counts half. They are too high by a fifth
// at most.
type Stats struct {
	Items, Batches int64
	// Late counts the items with a lateness above zero.
	Late int64
	// Quiet is how long a batch waits for the next item now.
	Quiet time.Duration
	// Lateness is what 999 of 1000 items do not exceed.
	Lateness time.Duration
	// WaitP50 and WaitP99 are how long the first item of a batch waited until
	// the batch left.
	WaitP50, WaitP99 time.Duration
	// SizeP50 and SizeP99 are items of a batch.
	SizeP50, SizeP99 int
}

// Stats says what was seen of each category.
func (g *Gauge) Stats() map[string]Stats {
	all := map[string]Stats{}
	for name, d := range g.all() {
		all[name] = d.read()
	}
	return all
}

func (g *Gauge) all() map[string]*dial {
	if dials := g.dials.Load(); dials != nil {
		return *dials
	}
	return nil
}

// dial is the one of a category; beyond maxCategories, that of the others.
func (g *Gauge) dial(category string) *dial {
	if d := g.all()[category]; d != nil {
		return d
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	all := g.all()
	if len(all) >= maxCategories {
		category = Others
	}
	if d := all[category]; d != nil {
		return d
	}
	d := newDial(g.Policy)
	more := map[string]*dial{category: d}
	maps.Copy(more, all)
	g.dials.Store(&more)
	return d
}

// dial is what a Gauge knows of one category.
type dial struct {
	mode    mode
	ceiling time.Duration
	quiet   atomic.Int64 // a time.Duration

	mu                   sync.Mutex
	lateness, wait, size sketch
	stats                Stats         // its counts
	latest               time.Duration // of single items, at
	at                   time.Time
}

func newDial(p Policy) *dial {
	d := &dial{mode: p.mode, ceiling: p.orDefaults().Quiet}
	switch p.mode {
	case adaptive:
		d.quiet.Store(int64(min(leastQuiet, d.ceiling)))
	case fixed:
		d.quiet.Store(int64(d.ceiling))
	}
	return d
}

// arrived notes n items that were on time.
func (d *dial) arrived(now time.Time, n int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stats.Items += n
	d.lateness.addTime(now, 0, n)
	d.decide(now)
}

// late notes one that was not.
func (d *dial) late(now time.Time, lateness time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stats.Items++
	d.stats.Late++
	d.lateness.addTime(now, lateness, 1)
	if lateness <= d.ceiling && lateness > d.remembered(now) {
		d.latest, d.at = lateness, now
	}
	d.decide(now)
}

// left notes a batch that is on its way out.
func (d *dial) left(wait time.Duration, items int, now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stats.Batches++
	d.wait.addTime(now, wait, 1)
	d.size.add(now, float64(items), 1)
}

// remembered is what is left of the latest single item.
func (d *dial) remembered(now time.Time) time.Duration {
	return time.Duration(float64(d.latest) * math.Exp2(-now.Sub(d.at).Seconds()/relief.Seconds()))
}

// decide chooses Quiet, if it is not chosen already.
func (d *dial) decide(now time.Time) {
	if d.mode != adaptive {
		return
	}
	quiet := margin * max(d.lateness.quantileTime(punctual), d.remembered(now))
	d.quiet.Store(int64(min(max(quiet, leastQuiet), d.ceiling)))
}

func (d *dial) read() Stats {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.stats
	s.Quiet = time.Duration(d.quiet.Load())
	s.Lateness = d.lateness.quantileTime(punctual)
	s.WaitP50, s.WaitP99 = d.wait.quantileTime(0.5), d.wait.quantileTime(0.99)
	s.SizeP50, s.SizeP99 = int(d.size.quantile(0.5)), int(d.size.quantile(0.99))
	return s
}
