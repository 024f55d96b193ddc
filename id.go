package weir

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"io"
	"math"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"
)

// ID identifies a message. Its bytes sort in the order of emission:
//
//	48 bits milliseconds · 32 bits counter · 12 bits place · 36 bits random
//
// The place is 0 but for derived ids.
//
// It is a ULID in text and 16 bytes in the database. Ids come from a Generator,
// from Derive (ids that repeat when the work is repeated) or from an Importer
// (ids of history).
type ID = ulid.ULID

// MaxAhead is how far ahead of the local clock an observed id may be by default.
const MaxAhead = time.Minute

// Generator issues ids so that issue order is byte order, across goroutines and
// through clock steps. The zero value is ready to use.
//
// It is a hybrid clock (Kulkarni et al., "Logical Physical Clocks", 2014): what
// Observe has seen sorts before what New issues next, whatever the wall clocks of
// the machines say.
type Generator struct {
	// Clock tells the time. Default time.Now.
	Clock func() time.Time
	// Random is where the random bits come from. Default crypto/rand.
	Random io.Reader
	// Ahead is how far in the future of Clock an observed id may lie before it
	// is refused. Default MaxAhead.
	Ahead time.Duration

	mu      sync.Mutex
	millis  uint64
	counter uint32
}

var standard Generator

// NewID issues an id from the generator of this process.
func NewID() ID { return standard.New() }

// Observe makes the next id of this process sort after id. See Generator.Observe.
func Observe(id ID) error { return standard.Observe(id) }

// New issues the next id. It never fails: should the system's random source be
// broken, crypto/rand ends the process.
func (g *Generator) New() ID {
	var random [14]byte
	g.mu.Lock()
	defer g.mu.Unlock()
	g.read(random[:])
	g.step(binary.BigEndian.Uint32(random[:4]), random[4])
	return root(compose(g.millis, g.counter, random[8:14]))
}

// step moves to the next (millisecond, counter). In a new millisecond the
// counter starts at a random 31-bit value; in the same one it grows by 1 to 16.
// An exhausted counter borrows the next millisecond; a clock that went back is
// ignored until it has caught up.
func (g *Generator) step(start uint32, growth byte) {
	now := g.now()
	grown := uint64(g.counter) + uint64(growth%16) + 1
	switch {
	case now > g.millis:
		g.millis, g.counter = now, start>>1
	case grown > math.MaxUint32:
		g.millis, g.counter = g.millis+1, start>>1
	default:
		g.counter = uint32(grown)
	}
}

// Observe makes the next id sort after id, so that an effect sorts after its
// cause. An id further ahead than Ahead is refused with a *FutureIDError and
// changes nothing. Safe to repeat.
func (g *Generator) Observe(id ID) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	millis, counter := id.Time(), counterOf(id)
	if millis < g.millis || millis == g.millis && counter <= g.counter {
		return nil
	}
	if ahead := int64(millis) - int64(g.now()); ahead > g.ahead().Milliseconds() {
		return &FutureIDError{ID: id, Ahead: saturated(ahead), Limit: g.ahead()}
	}
	g.millis, g.counter = millis, counter
	return nil
}

// saturated is a number of milliseconds as a duration, or the longest one: ids
// reach to the year 10889, durations 292 years.
func saturated(millis int64) time.Duration {
	return time.Duration(min(millis, math.MaxInt64/int64(time.Millisecond))) * time.Millisecond
}

func (g *Generator) now() uint64 {
	if g.Clock == nil {
		return ulid.Timestamp(time.Now())
	}
	return ulid.Timestamp(g.Clock())
}

func (g *Generator) ahead() time.Duration {
	if g.Ahead == 0 {
		return MaxAhead
	}
	return g.Ahead
}

func (g *Generator) read(b []byte) {
	if g.Random == nil {
		rand.Read(b)
		return
	}
	if _, err := io.ReadFull(g.Random, b); err != nil {
		rand.Read(b)
	}
}

func compose(millis uint64, counter uint32, tail []byte) (id ID) {
	binary.BigEndian.PutUint64(id[:8], millis<<16)
	binary.BigEndian.PutUint32(id[6:10], counter)
	copy(id[10:], tail)
	return id
}

// root clears the place, so that everything derived from id sorts after it.
func root(id ID) ID {
	id[10], id[11] = 0, id[11]&0x0f
	return id
}

func placeOf(id ID) int { return int(binary.BigEndian.Uint16(id[10:12]) >> 4) }

func counterOf(id ID) uint32 { return binary.BigEndian.Uint32(id[6:10]) }

const maxOrdinal = 1<<12 - 1

// Derive gives the id of the ordinal-th thing named name that is emitted while
// the message source is handled. The same input gives the same id, so a retry
// emits nothing new; it sorts right after source, in ordinal order, and before
// any later id of the generator that issued source.
//
// The first 80 bits are those of source. Then come 12 bits place: that of source,
// which is 0 for an issued or imported id, plus ordinal, plus 1, saturating at
// 4095; so what is derived from a derived id sorts after it too. Then 36 bits of
// SHA-256 over "weir.derive.v1", source, ordinal and name. Past place 4095 the
// hash alone tells ids apart and order is no longer promised: give so many
// effects of one message a message each to hang from.
func Derive(source ID, ordinal int, name string) ID {
	h := sha256.New()
	h.Write([]byte("weir.derive.v1"))
	h.Write(source[:])
	h.Write(binary.BigEndian.AppendUint64(nil, uint64(ordinal)))
	h.Write([]byte(name))
	sum := h.Sum(nil)

	id := source
	o := uint16(min(placeOf(source)+1+min(max(ordinal, 0), maxOrdinal), maxOrdinal))
	id[10] = byte(o >> 4)
	id[11] = byte(o<<4) | sum[0]&0x0f
	copy(id[12:], sum[1:5])
	return id
}

// Importer gives history its ids: the time is the event's own, the counter counts
// up in issue order within a millisecond, and the rest is derived from name, time
// and place. Importing the same log again gives the same ids, so nothing is
// stored twice. Not safe for concurrent use: issue order is the caller's order.
//
// It remembers one number per distinct millisecond, about 40 bytes each.
type Importer struct {
	name  string
	count map[uint64]uint32
}

// Import begins an import. The name tells two logs with equal times apart.
func Import(name string) *Importer {
	return &Importer{name: name, count: map[uint64]uint32{}}
}

// At issues the id of the next event that happened at t. A time before 1970 or
// after the year 10889 does not fit an id and gives an *InvalidTimeError.
func (i *Importer) At(t time.Time) (ID, error) {
	if t.Before(time.Unix(0, 0)) || t.After(ulid.Time(ulid.MaxTime()).Add(time.Millisecond-1)) {
		return ID{}, &InvalidTimeError{Time: t}
	}
	millis := t.UnixMilli()
	place := i.count[uint64(millis)] + 1
	i.count[uint64(millis)] = place

	h := sha256.New()
	h.Write([]byte("weir.import.v1"))
	h.Write(binary.BigEndian.AppendUint64(nil, uint64(millis)))
	h.Write(binary.BigEndian.AppendUint32(nil, place))
	h.Write([]byte(i.name))
	return root(compose(uint64(millis), place, h.Sum(nil)[:6])), nil
}
