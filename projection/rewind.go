package projection

import (
	"context"
	_ "embed"
	"errors"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/eventstore"
	"github.com/weir-es/weir/internal/crash"
)

// errStale says that a snapshot was taken before an event that belongs into it was
// stored.
var errStale = errors.New("an event belongs before the snapshot")

// refold folds a stream again, from a snapshot or from nothing, in the order of ids.
type refold[S weir.Evolver[S]] struct {
	*state[S]
	order    Order
	schema   int
	base     snapshot
	seen     prefix
	left     int64 // events still to come, nearly
	folded   int64
	catching bool       // whether to take snapshots on the way
	caught   []snapshot // oldest first
}

// newRefold begins at base; head is about where it will end.
func (v View[S]) newRefold(key string, base snapshot, head weir.Version, catching bool) *refold[S] {
	return &refold[S]{state: restore[S](key, base), order: v.Order, schema: v.Schema, base: base,
		seen: prefix{upto: base.upto}, left: int64(head - base.upto), catching: catching}
}

// take folds the next event.
func (f *refold[S]) take(i item) error {
	f.seen.add(i.Version)
	f.left--
	switch inside, err := f.isInside(i); {
	case err != nil:
		return err
	case i.handled && !inside:
		f.folded++
		if err := f.apply(i, i.Version); err != nil {
			return err
		}
	}
	if f.catching && takenAt(int(f.left), rewindEvery) && f.version > 0 {
		return f.catch(i)
	}
	return nil
}

// isInside reports whether the base holds an event already.
func (f *refold[S]) isInside(i item) (bool, error) {
	switch {
	case f.base.reached == 0:
		return false, nil
	case f.order == ByVersion:
		return i.Version <= f.base.reached, nil
	case !i.handled || i.Order().Compare(f.base.last) > 0:
		return false, nil
	case i.Version > f.base.reached:
		return false, errStale
	}
	return true, nil
}

func (f *refold[S]) catch(i item) error {
	shot, err := f.state.take(f.schema, f.seen.upto)
	if err != nil {
		return &eventError{i.Event, err}
	}
	f.caught = add(f.caught, shot)
	return nil
}

// whole is the row as a snapshot, for whoever goes on from here.
func (f *refold[S]) whole() (snapshot, error) { return f.state.take(f.schema, f.seen.upto) }

// prefix says up to which version everything was seen, whatever the order.
type prefix struct {
	upto  weir.Version
	ahead map[weir.Version]bool
}

func (p *prefix) add(v weir.Version) {
	if p.ahead == nil {
		p.ahead = map[weir.Version]bool{}
	}
	p.ahead[v] = true
	for p.ahead[p.upto+1] {
		p.upto++
		delete(p.ahead, p.upto)
	}
}

// from folds a stream from the newest base that holds, which is none at all in the
// end, through to its versions in to. Bases are sorted, the oldest first.
func (v View[S]) from(ctx context.Context, src source, bases []snapshot, to eventstore.Range, catching bool) (*refold[S], error) {
	for {
		var base snapshot
		if n := len(bases); n > 0 {
			base, bases = bases[n-1], bases[:n-1]
		}
		f := v.newRefold(string(to.Stream), base, to.Last, catching)
		to.First = base.upto + 1
		err := f.fold(ctx, src, to)
		if !errors.Is(err, errStale) {
			return f, err
		}
	}
}

func (f *refold[S]) fold(ctx context.Context, src source, to eventstore.Range) error {
	for i, err := range src.replay(ctx, f.order, to) {
		if err != nil {
			return err
		}
		if err := f.take(i); err != nil {
			return err
		}
	}
	return nil
}

// rewind makes the rows of keys come out as if their late events had been on time:
// from the newest snapshot that sorts below the first of them, or from the
// beginning. It reads each stream up to what the batch has brought: the row's
// version says exactly what was folded, and everything above it comes by the feed.
// What is long is not done here but noted, to go on beside the other streams.
func (s *viewStep[S]) rewind(ctx context.Context, q eventstore.Querier, keys []string) error {
	if len(keys) == 0 {
		return nil
	}
	guessed := func(key string) bool { return s.shelf.late[key] == s.late(key) }
	if err := s.loadSnapshots(ctx, q, slices.DeleteFunc(slices.Clone(keys), guessed)); err != nil {
		return err
	}
	crash.At(crash.RewindRead)
	var short []string
	var ranges []eventstore.Range
	for _, key := range keys {
		s.countLate(key)
		to := s.span(key)
		if longest := s.job.longest; longest > 0 && to.Last-to.First >= longest {
			s.postpone(key)
			continue
		}
		short, ranges = append(short, key), append(ranges, to)
	}
	return s.refoldAll(ctx, q, short, ranges)
}

// loadSnapshots reads what the rewinds of keys may begin with.
func (s *viewStep[S]) loadSnapshots(ctx context.Context, q eventstore.Querier, keys []string) error {
	if s.tables.shots == "" || len(keys) == 0 {
		return nil
	}
	var b pgx.Batch
	s.shelf.read(s.tables, &b, keys, s.lates(keys), s.view.Schema, false)
	return q.SendBatch(ctx, &b).Close()
}

func (s *viewStep[S]) lates(keys []string) []weir.ID {
	late := make([]weir.ID, len(keys))
	for i, key := range keys {
		late[i] = s.late(key)
	}
	return late
}

// late is the lowest of the handled items of a key, zero when there is none.
func (s *viewStep[S]) late(key string) (first weir.ID) {
	for _, i := range s.groups[key] {
		if order := i.Order(); i.handled && (first == weir.ID{} || order.Compare(first) < 0) {
			first = order
		}
	}
	return first
}

func (s *viewStep[S]) base(key string) snapshot {
	return s.shelf.newest(key, below(s.late(key), s.view.Schema))
}

// span is what a rewind of a key has to read.
func (s *viewStep[S]) span(key string) eventstore.Range {
	last := s.rows[key].version
	for _, i := range s.groups[key] {
		last = max(last, i.Version)
	}
	return eventstore.Range{Stream: weir.StreamID(key), First: s.base(key).upto + 1, Last: last}
}

// countLate counts the items that sort below what the row has seen.
func (s *viewStep[S]) countLate(key string) {
	for _, i := range s.groups[key] {
		if order := i.Order(); order.Compare(s.rows[key].last) < 0 {
			s.job.count.Inversions++
		}
	}
}

// refoldAll reads the ranges of keys in one go and folds each as its events come.
func (s *viewStep[S]) refoldAll(ctx context.Context, q eventstore.Querier, keys []string, ranges []eventstore.Range) error {
	if len(keys) == 0 {
		return nil
	}
	folds := map[weir.StreamID]*refold[S]{}
	for i, key := range keys {
		folds[weir.StreamID(key)] = s.view.newRefold(key, s.base(key), ranges[i].Last, s.tables.shots != "")
	}
	rest, err := s.refoldEarly(folds, ranges)
	if err != nil {
		return err
	}
	for i, err := range s.job.source(q).replay(ctx, ByEventID, rest...) {
		if err != nil {
			return err
		}
		if err := folds[i.Stream].take(i); err != nil {
			return err
		}
	}
	crash.At(crash.RewindFolded)
	for _, key := range keys {
		s.land(key, folds[weir.StreamID(key)])
	}
	return nil
}

// land puts the outcome of a rewind in the place of a row.
func (s *viewStep[S]) land(key string, f *refold[S]) {
	s.job.count = s.job.count.Plus(f.counts())
	s.rows[key] = f.state
	s.shelf.replace(key, below(s.late(key), s.view.Schema), f.caught, f.version)
}

// postpone leaves a row as it is, drops the snapshots that are worth nothing any
// more, and has its stream rewound beside the others.
func (s *viewStep[S]) postpone(key string) {
	s.shelf.replace(key, below(s.late(key), s.view.Schema), nil, s.rows[key].version)
	first := slices.MinFunc(s.groups[key], func(a, b item) int { return int(a.Position - b.Position) })
	s.job.behind = append(s.job.behind, deferred{weir.StreamID(key), first.Position})
	s.groups[key] = nil
}
