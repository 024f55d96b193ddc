package projection

import (
	"context"
	_ "embed"
	"math"

	"github.com/jackc/pgx/v5"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/eventstore"
)

//go:embed sql/stream_head.sql
var streamHead string

// viewLanding is a stream of a view that was folded again.
type viewLanding[S weir.Evolver[S]] struct {
	view   View[S]
	key    string
	stored []snapshot // of the key, oldest first
	bases  []snapshot // those that still hold, those caught on the way, and the whole
	count  Counts
}

// replay folds a stream again, up to its head: from the newest snapshot below every
// event that the row has not seen.
func (v View[S]) replay(ctx context.Context, j *job, stream weir.StreamID) (landing, error) {
	if !v.Key.byStream() {
		return &keyLanding[S]{v, stream, j.from}, nil
	}
	t := v.tables(j.store)
	l := &viewLanding[S]{view: v, key: string(stream)}
	head, err := v.head(ctx, t, stream)
	if err != nil {
		return nil, err
	}
	if l.stored, err = t.snapshots(ctx, j.store.Pool(), l.key, v.Schema); err != nil {
		return nil, err
	}
	f, err := v.from(ctx, j.source(j.store.Pool()), l.stored, eventstore.Range{Stream: stream, Last: head}, true)
	if err != nil {
		return nil, err
	}
	l.count = f.counts()
	return l, l.accept(f)
}

// accept leaves what the rest of the stream may be folded onto.
func (l *viewLanding[S]) accept(f *refold[S]) error {
	whole, err := f.whole()
	if err != nil {
		return err
	}
	l.bases = append(append(holding(l.stored, f.base), f.caught...), whole)
	return nil
}

// holding are the snapshots up to a base, with it.
func holding(all []snapshot, base snapshot) (held []snapshot) {
	for _, one := range all {
		if base.reached > 0 && one.last.Compare(base.last) <= 0 {
			held = append(held, one)
		}
	}
	return held
}

// counts are what a rewind did.
func (f *refold[S]) counts() Counts {
	c := Counts{Rewinds: 1, Replayed: f.folded}
	if f.base.reached > 0 {
		c.FromSnapshot = 1
	}
	return c
}

// head is the version of a stream.
func (v View[S]) head(ctx context.Context, t tables, stream weir.StreamID) (head weir.Version, err error) {
	return head, t.store.Pool().QueryRow(ctx, t.sql(streamHead), string(stream)).Scan(&head)
}

func (l *viewLanding[S]) step(j *job) step {
	s := newStep(l.view, l.view.tables(j.store), j)
	s.keys = []string{l.key}
	return &landingStep[S]{s, l}
}

// landingStep writes the row.
type landingStep[S weir.Evolver[S]] struct {
	*viewStep[S]
	landing *viewLanding[S]
}

// finish folds what has come since the replay, if need be from an earlier snapshot,
// until there is nothing left: nobody else applies events of the stream meanwhile,
// and what commits later comes by the feed.
func (s *landingStep[S]) finish(ctx context.Context, tx pgx.Tx, writes *pgx.Batch) error {
	l := s.landing
	before := s.rows[l.key]
	if before == nil {
		before = &state[S]{key: l.key}
	}
	rest := eventstore.Range{Stream: weir.StreamID(l.key), Last: math.MaxInt64}
	f, err := l.view.from(ctx, s.job.source(tx), l.bases, rest, false)
	if err != nil {
		return err
	}
	s.job.count = l.count
	s.job.count.Replayed += f.folded
	s.rows[l.key] = f.state
	s.keep(f)
	if err := s.collectNew(ctx, tx, before); err != nil {
		return err
	}
	f.changed = len(s.groups[l.key]) > 0
	s.shelf.queue(s.tables, writes, s.job)
	return s.queueWrites(writes)
}

// keep writes the snapshots that hold and drops the others.
func (s *landingStep[S]) keep(f *refold[S]) {
	l := s.landing
	held := holding(l.bases, f.base)
	var fresh []snapshot
	for _, one := range held {
		if whole := l.bases[len(l.bases)-1]; !contains(l.stored, one) && one.last != whole.last {
			fresh = append(fresh, one)
		}
	}
	s.shelf.there = map[string][]snapshot{l.key: l.stored}
	s.shelf.replace(l.key, func(one snapshot) bool { return contains(held, one) }, fresh, f.version)
}

func contains(all []snapshot, one snapshot) bool {
	for _, other := range all {
		if other.last == one.last && other.reached == one.reached {
			return true
		}
	}
	return false
}

// collectNew reads the events that are new to the row, for the hook.
func (s *landingStep[S]) collectNew(ctx context.Context, tx pgx.Tx, before *state[S]) error {
	key := s.landing.key
	span := eventstore.Range{Stream: weir.StreamID(key), First: before.version + 1, Last: s.rows[key].version}
	for i, err := range s.job.source(tx).replay(ctx, s.view.Order, span) {
		if err != nil {
			return err
		}
		if i.handled {
			s.groups[key] = append(s.groups[key], i)
		}
	}
	s.job.count.Applied += int64(len(s.groups[key]))
	return nil
}
