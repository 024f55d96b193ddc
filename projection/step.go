package projection

import (
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/eventstore"
)

var (
	//go:embed sql/load_rows.sql
	loadRows string
	//go:embed sql/write_rows.sql
	writeRows string
	//go:embed sql/hold_edition.sql
	holdEdition string
)

// viewStep folds one batch into the rows of a view.
type viewStep[S weir.Evolver[S]] struct {
	view   View[S]
	tables tables
	job    *job
	keys   []string
	groups map[string][]item // by key: new to the row, in the order in which they are folded
	rows   map[string]*state[S]
	shelf  shelf
	early  map[string][]weir.Event // by key: read along with the rows
}

func newStep[S weir.Evolver[S]](v View[S], t tables, j *job) *viewStep[S] {
	return &viewStep[S]{view: v, tables: t, job: j, groups: map[string][]item{}, rows: map[string]*state[S]{}, early: map[string][]weir.Event{}}
}

func (v View[S]) begin(j *job, items []item) step {
	s := newStep(v, v.tables(j.store), j)
	s.file(items)
	return s
}

// file files items under their keys.
func (s *viewStep[S]) file(items []item) {
	for _, i := range items {
		if s.view.Key.byStream() {
			s.group(string(i.Stream), i)
		} else {
			s.groupByKey(i)
		}
	}
}

// group files an item under its key. A stream's group holds its unhandled events
// too, since they make its versions contiguous.
func (s *viewStep[S]) group(key string, i item) {
	if _, ok := s.groups[key]; !ok {
		s.keys = append(s.keys, key)
	}
	s.groups[key] = append(s.groups[key], i)
}

// groupByKey files each value of an item under the key that it names.
func (s *viewStep[S]) groupByKey(i item) {
	if i.err != nil {
		s.group(string(i.Stream), i) // fails as soon as it is applied
		return
	}
	for _, value := range i.values {
		i.values = []any{value}
		switch key, err := s.keyOf(i, value); {
		case err != nil:
			i.err = err
			s.group(string(i.Stream), i)
		case key != "":
			s.group(key, i)
		}
	}
}

// keyOf calls the user's function; a panic is that event's failure.
func (s *viewStep[S]) keyOf(i item, value any) (key string, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the key panicked: %v", p)
		}
	}()
	return s.view.Key.of(i.Event, value), nil
}

func (s *viewStep[S]) queueReads(b *pgx.Batch) {
	s.queueEdition(b)
	s.queueRows(b)
	s.queueEarly(b, s.suspects())
}

// queueEdition holds the table to the end of the transaction, against a rebuild that
// is about to swap, and makes sure that it is the one that is known.
func (s *viewStep[S]) queueEdition(b *pgx.Batch) {
	b.Queue(s.tables.sql(holdEdition), s.view.Name).QueryRow(func(row pgx.Row) error {
		var edition int64
		if err := row.Scan(&edition); err != nil {
			return fmt.Errorf("hold the edition of view %s: %w", s.view.Name, err)
		}
		if *s.job.edition = cmp.Or(*s.job.edition, edition); *s.job.edition != edition {
			return errMoved
		}
		return nil
	})
}

func (s *viewStep[S]) queueRows(b *pgx.Batch) {
	b.Queue(s.tables.sql(loadRows), s.keys).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			r, err := scanState[S](rows)
			if err != nil {
				return err
			}
			s.rows[r.key] = r
		}
		return rows.Err()
	})
}

// finish folds and queues the writes.
func (s *viewStep[S]) finish(ctx context.Context, tx pgx.Tx, writes *pgx.Batch) error {
	for _, key := range s.keys {
		s.row(key)
	}
	fold := s.foldKeys
	if s.view.Key.byStream() {
		fold = s.foldStreams
	}
	if err := fold(ctx, tx); err != nil {
		return err
	}
	s.shelf.queue(s.tables, writes, s.job)
	return s.queueWrites(writes)
}

// foldKeys folds each group in the order of positions. Positions come once and
// grow, so the row's position says what it has seen.
func (s *viewStep[S]) foldKeys(context.Context, eventstore.Querier) error {
	for _, key := range s.keys {
		r := s.rows[key]
		s.groups[key] = slices.DeleteFunc(s.groups[key], func(i item) bool { return i.Position <= r.position })
		for _, i := range s.groups[key] {
			if err := r.apply(i, r.version+1); err != nil {
				return err
			}
		}
	}
	return nil
}

// foldStreams folds each stream in the view's order. The row's version says what it
// has seen; what is missing between that and the batch is read first. Rows that
// have seen later events are folded again.
func (s *viewStep[S]) foldStreams(ctx context.Context, q eventstore.Querier) error {
	for _, key := range s.keys {
		s.groups[key] = unseen(s.groups[key], s.rows[key].version)
	}
	if err := s.fillHoles(ctx, q); err != nil {
		return err
	}
	var late []string
	shots := map[string][]snapshot{}
	for _, key := range s.keys {
		if s.sort(key) {
			late = append(late, key)
		} else if err := s.foldStream(key, shots); err != nil {
			return err
		}
	}
	if err := s.rewind(ctx, q, late); err != nil {
		return err
	}
	return s.addSnapshots(ctx, q, shots)
}

// foldStream folds the events of a stream that come in order. It takes a snapshot
// when the row has seen another hundred, and where there are many of them, also on
// the way, at growing distances before the end.
func (s *viewStep[S]) foldStream(key string, shots map[string][]snapshot) error {
	r, items := s.rows[key], s.groups[key]
	upto := lowest(items, r.version)
	before := r.version
	for n, i := range items {
		if err := r.apply(i, i.Version); err != nil {
			return err
		}
		left := len(items) - 1 - n
		if !takenAt(left, snapshotEvery) && (left > 0 || before/snapshotEvery == r.version/snapshotEvery) || s.tables.shots == "" {
			continue
		}
		shot, err := r.take(s.view.Schema, upto[n])
		if err != nil {
			return &eventError{i.Event, fmt.Errorf("encode row %q: %w", key, err)}
		}
		shots[key] = add(shots[key], shot)
	}
	return nil
}

// lowest are, for each item, the versions up to which everything was folded once it
// is, when everything up to seen was before.
func lowest(items []item, seen weir.Version) []weir.Version {
	upto, rest, last := make([]weir.Version, len(items)), maxVersion, seen
	for _, i := range items {
		last = max(last, i.Version)
	}
	for n := len(items) - 1; n >= 0; n-- {
		upto[n] = min(last, rest-1)
		rest = min(rest, items[n].Version)
	}
	return upto
}

// unseen are the items above version, in the order of versions, unless none of
// them is handled.
func unseen(items []item, version weir.Version) []item {
	items = slices.DeleteFunc(items, func(i item) bool { return i.Version <= version })
	if !slices.ContainsFunc(items, func(i item) bool { return i.handled }) {
		return nil
	}
	ByVersion.sort(items)
	return items
}

// fillHoles reads what lies between what a row has seen and what the batch
// brings: after a parked stream was released or a lease moved.
func (s *viewStep[S]) fillHoles(ctx context.Context, q eventstore.Querier) error {
	var holes []eventstore.Range
	for _, key := range s.keys {
		holes = append(holes, missing(weir.StreamID(key), s.rows[key].version, s.groups[key])...)
	}
	if len(holes) == 0 {
		return nil
	}
	events, err := s.job.store.Ranges(ctx, q, holes)
	if err != nil {
		return err
	}
	for _, e := range events {
		s.groups[string(e.Stream)] = append(s.groups[string(e.Stream)], s.job.item(e))
	}
	return nil
}

// missing are the versions above seen and below the last of items that items
// lack. Items are sorted by version.
func missing(stream weir.StreamID, seen weir.Version, items []item) (holes []eventstore.Range) {
	for _, i := range items {
		if i.Version > seen+1 {
			holes = append(holes, eventstore.Range{Stream: stream, First: seen + 1, Last: i.Version - 1})
		}
		seen = i.Version
	}
	return holes
}

// sort puts the handled items of a stream in the order in which they are folded, and
// reports whether one of them belongs before what the row has seen.
func (s *viewStep[S]) sort(key string) (late bool) {
	items := slices.DeleteFunc(s.groups[key], func(i item) bool { return !i.handled })
	s.view.Order.sort(items)
	s.groups[key] = items
	r := s.rows[key]
	return len(items) > 0 && r.version > 0 && s.view.Order == ByEventID && items[0].Order().Compare(r.last) < 0
}

// addSnapshots puts new snapshots beside those that are there.
func (s *viewStep[S]) addSnapshots(ctx context.Context, q eventstore.Querier, shots map[string][]snapshot) error {
	if len(shots) == 0 {
		return nil
	}
	keys := slices.Collect(maps.Keys(shots))
	if err := s.loadSnapshots(ctx, q, keys); err != nil {
		return err
	}
	for key, fresh := range shots {
		s.shelf.replace(key, func(one snapshot) bool { return one.schema == s.view.Schema }, fresh, s.rows[key].version)
	}
	return nil
}

func (s *viewStep[S]) queueWrites(b *pgx.Batch) error {
	var c rowColumns
	for _, key := range s.keys {
		r := s.rows[key]
		if !r.changed {
			continue
		}
		text, err := r.encode()
		if err != nil {
			return &eventError{s.groups[key][0].Event, fmt.Errorf("encode row %q: %w", key, err)}
		}
		c.add(key, text, r.version, r.last, r.position, r.column())
	}
	if len(c.keys) > 0 {
		b.Queue(s.tables.sql(writeRows), c.arguments()...).Exec(s.job.expectRows(len(c.keys)))
	}
	return nil
}

// rowColumns are rows as the statements take them.
type rowColumns struct {
	keys                []string
	states              []*string
	versions, positions []int64
	lasts               [][16]byte
	prints              [][]byte
}

func (c *rowColumns) add(key string, state *string, version weir.Version, last weir.ID, position weir.Position, print []byte) {
	c.keys, c.states = append(c.keys, key), append(c.states, state)
	c.versions, c.positions = append(c.versions, int64(version)), append(c.positions, int64(position))
	c.lasts, c.prints = append(c.lasts, last), append(c.prints, print)
}

func (c *rowColumns) arguments() []any {
	return []any{c.keys, c.states, c.versions, c.lasts, c.positions, c.prints}
}

func (s *viewStep[S]) hooked() bool { return s.view.After != nil }

// after calls the hook of the view for the events that are new to their rows. The
// rows are written by then.
func (s *viewStep[S]) after(ctx context.Context, tx pgx.Tx) error {
	if !s.hooked() {
		return nil
	}
	for _, key := range s.keys {
		if !s.rows[key].changed {
			continue
		}
		for _, i := range s.groups[key] {
			if err := s.callAfter(ctx, tx, s.rows[key], i); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *viewStep[S]) callAfter(ctx context.Context, tx pgx.Tx, r *state[S], i item) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &eventError{i.Event, fmt.Errorf("the hook panicked: %v", p)}
		}
	}()
	i.IsNew = true
	err = s.view.After(ctx, tx, i.Event, r.exported())
	if err != nil && !tx.Conn().IsClosed() {
		err = &eventError{i.Event, err}
	}
	return err
}

// exported is the row as users see it.
func (r *state[S]) exported() Row[S] {
	row := Row[S]{Key: r.key, State: r.value, Version: r.version, EventID: r.last, Position: r.position, Deleted: r.gone}
	return row
}
