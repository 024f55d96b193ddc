package projection

import (
	"context"
	_ "embed"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/eventstore"
)

const maxVersion = weir.Version(math.MaxInt64)

// Difference is a row that is not what the log says.
type Difference struct {
	Key string
	// What is "missing" (the log makes a row that is not there), "extra" (there
	// is a row of which the log knows nothing), "version" (it has not seen the
	// same events), "order" (it has seen them in another order) or "state".
	What string
	// Row and Log are the version of the row and the one that the log makes.
	Row, Log weir.Version
}

func (d Difference) String() string {
	switch d.What {
	case "missing", "extra":
		return fmt.Sprintf("%q is %s", d.Key, d.What)
	case "version":
		return fmt.Sprintf("%q is at version %d instead of %d", d.Key, d.Row, d.Log)
	}
	return fmt.Sprintf("%q differs in its %s at version %d", d.Key, d.What, d.Log)
}

// Verified says what a comparison of a view with the log found.
type Verified struct {
	Rows   int64 // compared
	Events int64 // folded for it
	// Behind are streams that are parked or rewound at the moment; their rows
	// are not compared.
	Behind int64
	// Wrong counts all differences; Differences are the first thousand.
	Wrong       int64
	Differences []Difference
}

const maxDifferences = 1000

func (v *Verified) add(found []Difference) {
	v.Wrong += int64(len(found))
	v.Differences = append(v.Differences, found[:min(len(found), maxDifferences-len(v.Differences))]...)
}

var (
	//go:embed sql/compare_rows.sql
	compareRows string
	//go:embed sql/stray_rows.sql
	strayRows string
	//go:embed sql/behind.sql
	behindSQL string
	//go:embed sql/positions_of.sql
	positionsOf string
)

// comparison compares rows as they should be with those of an edition.
type comparison[S weir.Evolver[S]] struct {
	tables tables
	rows   rowColumns
}

func newComparison[S weir.Evolver[S]](_ View[S], t tables) *comparison[S] {
	return &comparison[S]{tables: t}
}

// expect adds a row.
func (c *comparison[S]) expect(r *state[S]) error {
	if !r.changed {
		return nil
	}
	text, err := r.encode()
	if err != nil {
		return fmt.Errorf("encode row %q: %w", r.key, err)
	}
	c.rows.add(r.key, text, r.version, r.last, r.position, r.column())
	return nil
}

// compare looks at the rows of keys, and forgets what was expected of them.
func (c *comparison[S]) compare(ctx context.Context, q eventstore.Querier, keys []string) ([]Difference, error) {
	rows, err := q.Query(ctx, c.tables.sql(compareRows), append(c.rows.arguments(), keys)...)
	c.rows = rowColumns{}
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, scanDifference)
}

func scanDifference(row pgx.CollectableRow) (d Difference, err error) {
	return d, row.Scan(&d.Key, &d.What, &d.Row, &d.Log)
}

// Verify folds the log again, in memory, and compares every row with what comes out.
// It writes nothing, and live events go on meanwhile: what is compared is compared at
// one moment. A view that is keyed by stream is compared some streams at a time; any
// other needs memory for all its rows. It ends with a *RebuildEventError at an event
// that cannot be folded.
func (v View[S]) Verify(ctx context.Context, s *eventstore.Store) (found Verified, err error) {
	c := &verification[S]{v, s, decoderOf(v, s), newComparison(v, v.tables(s)), &found}
	verify := c.log
	if v.Key.byStream() {
		verify = c.streams
	}
	if err := verify(ctx); err != nil {
		return found, fmt.Errorf("verify view %s: %w", v.Name, v.culprit(err))
	}
	return found, nil
}

type verification[S weir.Evolver[S]] struct {
	view  View[S]
	store *eventstore.Store
	decoder
	*comparison[S]
	found *Verified
}

// still runs act in a transaction that sees one moment.
func (c *verification[S]) still(ctx context.Context, act func(pgx.Tx) error) error {
	return pgx.BeginTxFunc(ctx, c.store.Pool(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, act)
}

func (c *verification[S]) streams(ctx context.Context) error {
	b := &rebuild[S]{view: c.view, store: c.store}
	for after, more := int64(0), true; more; {
		err := c.still(ctx, func(tx pgx.Tx) error {
			heads, err := c.store.Heads(ctx, tx, after, chunkStreams)
			if more = err == nil && len(heads) > 0; !more {
				return err
			}
			if b.upto, err = b.goal(ctx, tx); err != nil {
				return err
			}
			for len(heads) > 0 {
				_, n := b.chunk(heads)
				if err := c.chunk(ctx, tx, heads[:n], b.upto); err != nil {
					return err
				}
				after, heads = heads[n-1].Number, heads[n:]
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return c.strays(ctx)
}

// chunk compares the rows of some streams.
func (c *verification[S]) chunk(ctx context.Context, tx pgx.Tx, heads []eventstore.Head, upto map[weir.Shard]weir.Position) error {
	behind, err := c.behind(ctx, tx)
	if err != nil {
		return err
	}
	positions, err := c.positions(ctx, tx, heads)
	if err != nil {
		return err
	}
	var keys []string
	var ranges []eventstore.Range
	for _, h := range heads {
		if behind[h.Stream] {
			c.found.Behind++
			continue
		}
		keys = append(keys, string(h.Stream))
		// A row that was rewound beside the others may be ahead of them.
		if at := max(upto[h.Shard], positions[string(h.Stream)]); at > 0 {
			ranges = append(ranges, eventstore.Range{Stream: h.Stream, First: 1, Last: h.Version, UpTo: at})
		}
	}
	err = c.view.foldRanges(ctx, source{decoder: c.decoder, store: c.store, q: tx}, ranges, c.expect, func(weir.Event) { c.found.Events++ })
	if err != nil {
		return err
	}
	return c.finish(ctx, tx, keys)
}

func (c *verification[S]) finish(ctx context.Context, q eventstore.Querier, keys []string) error {
	c.found.Rows += int64(len(c.rows.keys))
	differences, err := c.compare(ctx, q, keys)
	c.found.add(differences)
	return err
}

// behind are the streams of which rows are not up to date, and known not to be.
func (c *verification[S]) behind(ctx context.Context, tx pgx.Tx) (map[weir.StreamID]bool, error) {
	rows, err := tx.Query(ctx, c.store.Qualify(behindSQL), c.view.Name)
	if err != nil {
		return nil, err
	}
	streams, err := pgx.CollectRows(rows, pgx.RowTo[weir.StreamID])
	behind := map[weir.StreamID]bool{}
	for _, stream := range streams {
		behind[stream] = true
	}
	return behind, err
}

func (c *verification[S]) positions(ctx context.Context, tx pgx.Tx, heads []eventstore.Head) (map[string]weir.Position, error) {
	names := make([]string, len(heads))
	for i, h := range heads {
		names[i] = string(h.Stream)
	}
	rows, err := tx.Query(ctx, c.tables.sql(positionsOf), names)
	if err != nil {
		return nil, err
	}
	at := map[string]weir.Position{}
	var key string
	var position weir.Position
	_, err = pgx.ForEachRow(rows, []any{&key, &position}, func() error {
		at[key] = position
		return nil
	})
	return at, err
}

// strays are rows of streams that do not exist.
func (c *verification[S]) strays(ctx context.Context) error {
	rows, err := c.store.Pool().Query(ctx, c.tables.sql(strayRows), maxDifferences)
	if err != nil {
		return err
	}
	strays, err := pgx.CollectRows(rows, scanDifference)
	c.found.add(strays)
	return err
}

// log folds the log up to the checkpoint, and compares all rows with what comes out.
func (c *verification[S]) log(ctx context.Context) error {
	return c.still(ctx, func(tx pgx.Tx) error {
		at, err := c.store.CheckpointsIn(ctx, tx, c.view.Name)
		if err != nil {
			return err
		}
		s := newStep(c.view, c.tables, &job{decoder: c.decoder, store: c.store})
		if err := c.foldLog(ctx, s, at[eventstore.WholeLog]); err != nil {
			return err
		}
		for keys := range slices.Chunk(s.keys, chunkStreams) {
			for _, key := range keys {
				if err := c.expect(s.rows[key]); err != nil {
					return err
				}
			}
			if err := c.finish(ctx, tx, keys); err != nil {
				return err
			}
		}
		return c.extra(ctx, tx, s.rows)
	})
}

// foldLog folds everything up to a position.
func (c *verification[S]) foldLog(ctx context.Context, s *viewStep[S], end weir.Position) error {
	for at := weir.Position(0); at < end; {
		events, err := c.store.Page(ctx, at, end, nil, catchUpLimit)
		if err != nil {
			return err
		}
		c.found.Events += int64(len(events))
		s.file(c.all(events))
		for _, key := range s.keys {
			s.row(key)
		}
		if err := s.foldKeys(ctx, nil); err != nil {
			return err
		}
		clear(s.groups)
		if at = end; len(events) == catchUpLimit {
			at = events[len(events)-1].Position
		}
	}
	s.keys = slices.Sorted(maps.Keys(s.rows))
	return nil
}

// extra are rows that the log did not make.
func (c *verification[S]) extra(ctx context.Context, tx pgx.Tx, made map[string]*state[S]) error {
	rows, err := tx.Query(ctx, c.tables.sql(allKeys))
	if err != nil {
		return err
	}
	var key string
	var version weir.Version
	_, err = pgx.ForEachRow(rows, []any{&key, &version}, func() error {
		if made[key] == nil {
			c.found.add([]Difference{{Key: key, What: "extra", Row: version}})
		}
		return nil
	})
	return err
}

//go:embed sql/all_keys.sql
var allKeys string
