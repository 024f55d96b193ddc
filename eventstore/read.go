package eventstore

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/weir-es/weir"
)

// pageEvents is how many events are read at a time: enough to make the round
// trip cheap, few enough to keep snapshots short.
const pageEvents = 1000

// Point is a place in a stream or in the log. The zero value is no place.
type Point struct {
	version  weir.Version
	position weir.Position
	id       weir.ID
	until    weir.ID // id, with everything of the same moment below it
}

// AtVersion is the event at a version. It means something in a stream only.
func AtVersion(v weir.Version) Point { return Point{version: v} }

// AtPosition is the event at a position, or where it would be.
func AtPosition(p weir.Position) Point { return Point{position: p} }

// AtID is where an event with this id sorts, by order ids.
func AtID(id weir.ID) Point { return Point{id: id, until: id} }

// AtTime is where an event sorts that was emitted at t, in milliseconds, by the
// time in the order ids. It is the time of emission, not of recording, so that
// imported history and late facts are where they belong.
func AtTime(t time.Time) Point {
	var from, until weir.ID
	millis := uint64(max(t.UnixMilli(), 0))
	if from.SetTime(min(millis, ulid.MaxTime())) != nil {
		return Point{}
	}
	until = from
	for i := 6; i < len(until); i++ {
		until[i] = 0xff
	}
	return Point{id: from, until: until}
}

// Includes reports whether an event is not after the point. The zero value includes
// everything.
func (p Point) Includes(e weir.Event) bool {
	order := e.Order()
	return e.Version <= p.LastVersion() && e.Position <= p.LastPosition() &&
		(p.until == weir.ID{} || order.Compare(p.until) <= 0)
}

// LastVersion is the version of a point in a stream, or the highest that there can be.
func (p Point) LastVersion() weir.Version { return orDefault(p.version, math.MaxInt64) }

// LastPosition is the position of a point, or the highest that there can be.
func (p Point) LastPosition() weir.Position { return orDefault(p.position, math.MaxInt64) }

// WithoutVersion is the same point, as far as it is one of the log.
func (p Point) WithoutVersion() Point {
	p.version = 0
	return p
}

// Read says which events to read, and in which direction. The zero value is all
// of them, oldest first.
type Read struct {
	// Backward reads the newest first.
	Backward bool
	// From is where to begin, included. Default the first event, or the last
	// one when reading backward.
	From Point
	// AsOf leaves out every event after this point, as if it had not happened
	// yet. Default nothing is left out.
	AsOf Point
	// Types and Categories leave out all others. Default nothing is left out.
	Types, Categories []string
	// Limit is the most events to read. Default no limit.
	Limit int
}

// bounds are the limits of a read as the statements take them, all included but
// after.
type bounds struct {
	first, last   weir.Version
	low, high     weir.Position
	since, before *[16]byte
}

func (r Read) bounds() bounds {
	b := bounds{first: 1, last: math.MaxInt64, low: 1, high: math.MaxInt64}
	if r.Backward {
		b.end(r.From)
	} else {
		b.begin(r.From)
	}
	b.end(r.AsOf)
	return b
}

func (b *bounds) begin(p Point) {
	b.first, b.low = max(b.first, p.version), max(b.low, p.position)
	if p.id != (weir.ID{}) {
		b.since = (*[16]byte)(&p.id)
	}
}

func (b *bounds) end(p Point) {
	if p.version > 0 {
		b.last = min(b.last, p.version)
	}
	if p.position > 0 {
		b.high = min(b.high, p.position)
	}
	if p.until != (weir.ID{}) && (b.before == nil || p.until.Compare(*b.before) < 0) {
		b.before = (*[16]byte)(&p.until)
	}
}

// Stream reads the events of a stream above version after, oldest first: it is
// ReadStream for the simple case.
func (s *Store) Stream(ctx context.Context, stream weir.StreamID, after weir.Version) iter.Seq2[weir.Event, error] {
	return s.ReadStream(ctx, stream, Read{From: AtVersion(after + 1)})
}

// ReadStream reads a stream. It holds one page of a thousand events in memory and
// no connection while the loop runs. A stream that does not exist has no events.
// It ends with the first error.
func (s *Store) ReadStream(ctx context.Context, stream weir.StreamID, r Read) iter.Seq2[weir.Event, error] {
	b := r.bounds()
	if len(r.Categories) > 0 && !typeIn(r.Categories, stream.Category()) {
		b.last = 0
	}
	return r.pages(func(limit int) ([]weir.Event, bool, error) {
		page, err := s.streamPage(ctx, s.pool, stream, r, b, limit)
		if n := len(page); n > 0 && r.Backward {
			b.last = page[n-1].Version - 1
		} else if n > 0 {
			b.first = page[n-1].Version + 1
		}
		return page, len(page) < limit, err
	})
}

func typeIn(list []string, name string) bool {
	for _, one := range list {
		if one == name {
			return true
		}
	}
	return false
}

func (s *Store) streamPage(ctx context.Context, q Querier, stream weir.StreamID, r Read, b bounds, limit int) ([]weir.Event, error) {
	sql := s.sql.Stream
	if r.Backward {
		sql = s.sql.StreamBackward
	}
	rows, err := q.Query(ctx, sql, string(stream), int64(b.first-1), int64(b.last), limit, r.Types, b.since, b.before, int64(b.low), int64(b.high))
	page, err := collect(rows, err, limit)
	if err != nil {
		return nil, fmt.Errorf("read stream %s: %w", stream, err)
	}
	return page, nil
}

// Log reads the events of all streams above position after, in the order of the
// log, up to the horizon at the moment of the call: it is ReadLog for the simple
// case.
func (s *Store) Log(ctx context.Context, after weir.Position) iter.Seq2[weir.Event, error] {
	return s.ReadLog(ctx, Read{From: AtPosition(after + 1)})
}

// ReadLog reads the events of all streams in the order of positions, no further
// than the horizon at the moment of the call. It holds one page in memory and no
// connection while the loop runs. No statement looks at more than some hundred
// thousand events, however few of them match. It ends with the first error.
func (s *Store) ReadLog(ctx context.Context, r Read) iter.Seq2[weir.Event, error] {
	if r.From.version > 0 || r.AsOf.version > 0 {
		return failed(errors.New("read log: a version is a place in a stream, not in the log"))
	}
	return func(yield func(weir.Event, error) bool) {
		horizon, _, err := s.ReadHorizon(ctx)
		if err != nil {
			yield(weir.Event{}, fmt.Errorf("read log: %w", err))
			return
		}
		scan := &logScan{Store: s, read: r, bounds: r.bounds(), span: firstSpan}
		if scan.takesAll() {
			scan.span = math.MaxInt64 / 4
		}
		scan.high = min(scan.high, horizon)
		r.pages(func(limit int) ([]weir.Event, bool, error) { return scan.page(ctx, limit) })(yield)
	}
}

func failed(err error) iter.Seq2[weir.Event, error] {
	return func(yield func(weir.Event, error) bool) { yield(weir.Event{}, err) }
}

// How many positions one statement looks at.
const (
	firstSpan = 10_000
	lastSpan  = 200_000
)

// logScan walks through the log in spans, so that a filter that matches nothing
// for a million events costs many short statements instead of one long one.
type logScan struct {
	*Store
	read Read
	bounds
	span weir.Position
}

// takesAll reports that nothing is left out: then the limit of a page is enough, and
// numbers that were given to nobody cost nothing.
func (l *logScan) takesAll() bool {
	return len(l.read.Types) == 0 && len(l.read.Categories) == 0 && l.since == nil && l.before == nil
}

// page reads what the next span holds, and says whether it was the last.
func (l *logScan) page(ctx context.Context, limit int) ([]weir.Event, bool, error) {
	low, high, sql := l.low, min(l.high, l.low+l.span-1), l.sql.Log
	if l.read.Backward {
		low, high, sql = max(l.low, l.high-l.span+1), l.high, l.sql.LogBackward
	}
	rows, err := l.pool.Query(ctx, sql, int64(low-1), int64(high), limit, l.read.Types, l.read.Categories, l.since, l.before)
	page, err := collect(rows, err, limit)
	if err != nil {
		return nil, true, fmt.Errorf("read log at positions %d to %d: %w", low, high, err)
	}
	if n := len(page); n == limit {
		low, high = page[n-1].Position, page[n-1].Position
	}
	if l.read.Backward {
		l.high = low - 1
	} else {
		l.low = high + 1
	}
	l.span = max(l.span, min(2*l.span, lastSpan))
	return page, l.low > l.high, nil
}

// pages yields what next reads until it says that there is no more, or the limit
// is reached.
func (r Read) pages(next func(limit int) (page []weir.Event, last bool, err error)) iter.Seq2[weir.Event, error] {
	return func(yield func(weir.Event, error) bool) {
		left := r.Limit
		if left <= 0 {
			left = math.MaxInt
		}
		for left > 0 {
			page, last, err := next(min(left, pageEvents))
			if !yieldPage(page, err, yield) || last {
				return
			}
			left -= len(page)
		}
	}
}

func yieldPage(page []weir.Event, err error, yield func(weir.Event, error) bool) bool {
	if err != nil {
		yield(weir.Event{}, err)
		return false
	}
	for _, event := range page {
		if !yield(event, nil) {
			return false
		}
	}
	return true
}

// Page reads at most limit events above position after and not above to, of
// these shards (nil: all), in the order of the log. The caller makes sure that
// to is not above the horizon, or events may be missing.
func (s *Store) Page(ctx context.Context, after, to weir.Position, shards []weir.Shard, limit int) ([]weir.Event, error) {
	rows, err := s.pool.Query(ctx, s.sql.Page, int64(after), int64(to), shards, limit)
	page, err := collect(rows, err, limit)
	if err != nil {
		return nil, fmt.Errorf("read log after position %d: %w", after, err)
	}
	return page, nil
}

// CountRange counts the events above position after and not above to, of these
// shards (nil: all).
func (s *Store) CountRange(ctx context.Context, after, to weir.Position, shards []weir.Shard) (n int64, err error) {
	if err := s.pool.QueryRow(ctx, s.sql.CountRange, int64(after), int64(to), shards).Scan(&n); err != nil {
		return 0, fmt.Errorf("count events after position %d: %w", after, err)
	}
	return n, nil
}

// Ranges reads parts of several streams in one round trip. Within a
// stream the events come in the order of their versions.
func (s *Store) Ranges(ctx context.Context, q Querier, ranges []Range) ([]weir.Event, error) {
	names, first, last, _ := rangeColumns(ranges)
	rows, err := q.Query(ctx, s.sql.Ranges, names, first, last)
	events, err := collect(rows, err, 0)
	if err != nil {
		return nil, fmt.Errorf("read parts of %d streams: %w", len(ranges), err)
	}
	return events, nil
}
