package projection

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/eventstore"
)

// state is a row while a batch is folded into it.
type state[S weir.Evolver[S]] struct {
	key      string
	value    S
	version  weir.Version
	last     weir.ID
	position weir.Position
	changed  bool
	err      error // why the row cannot be read
}

// apply folds one event.
func (r *state[S]) apply(i item, version weir.Version) error {
	if err := cmp.Or(i.err, r.err); err != nil {
		return &eventError{i.Event, err}
	}
	for _, value := range i.values {
		next, err := evolve(r.value, value)
		if err != nil {
			return &eventError{i.Event, err}
		}
		r.value, r.changed = next, true
	}
	r.version = max(r.version, version)
	r.position = max(r.position, i.Position)
	if order := i.Order(); order.Compare(r.last) > 0 {
		r.last = order
	}
	return nil
}

// evolve calls the user's fold; a panic is that event's failure, not the end of
// the process.
func evolve[S weir.Evolver[S]](s S, event any) (next S, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the fold panicked: %v", p)
		}
	}()
	return s.Evolve(event), nil
}

func (r *state[S]) deleted() bool {
	d, ok := any(r.value).(interface{ Deleted() bool })
	return ok && d.Deleted()
}

// viewStep folds one batch into the rows of a view.
type viewStep[S weir.Evolver[S]] struct {
	view   View[S]
	worker *Worker
	keys   []string
	groups map[string][]item // by key, in the order of positions
	rows   map[string]*state[S]
}

func (v View[S]) begin(w *Worker, items []item) step {
	s := &viewStep[S]{view: v, worker: w, groups: map[string][]item{}, rows: map[string]*state[S]{}}
	for _, i := range items {
		if v.Key.byStream() {
			s.group(string(i.Stream), i)
		} else {
			s.groupByKey(i)
		}
	}
	return s
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
	b.Queue(s.view.sql(s.worker.Store, loadRows), s.keys).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			if err := s.load(rows); err != nil {
				return err
			}
		}
		return rows.Err()
	})
}

func (s *viewStep[S]) load(rows pgx.Rows) error {
	r := &state[S]{}
	var text []byte
	var version, position *int64
	var last *[16]byte
	if err := rows.Scan(&r.key, &text, &version, &last, &position); err != nil {
		return err
	}
	if version != nil {
		r.version = weir.Version(*version)
	}
	if position != nil {
		r.position = weir.Position(*position)
	}
	if last != nil {
		r.last = *last
	}
	s.rows[r.key] = r
	if text == nil {
		return nil
	}
	if err := unmarshal(text, &r.value); err != nil {
		r.err = fmt.Errorf("read row %q: %w", r.key, err)
	}
	return nil
}

// unmarshal reads a state. It calls the user's code too.
func unmarshal(text []byte, into any) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the state panicked: %v", p)
		}
	}()
	return json.Unmarshal(text, into)
}

// finish folds and queues the writes.
func (s *viewStep[S]) finish(ctx context.Context, tx pgx.Tx, writes *pgx.Batch) error {
	for _, key := range s.keys {
		if s.rows[key] == nil {
			s.rows[key] = &state[S]{key: key}
		}
	}
	fold := s.foldKeys
	if s.view.Key.byStream() {
		fold = s.foldStreams
	}
	if err := fold(ctx, tx); err != nil {
		return err
	}
	return s.queueWrites(writes)
}

// foldKeys folds each group in the order of positions. Positions come once and
// grow, so the row's position says what it has seen.
func (s *viewStep[S]) foldKeys(context.Context, pgx.Tx) error {
	for _, key := range s.keys {
		r := s.rows[key]
		seen := r.position
		for _, i := range s.groups[key] {
			if i.Position <= seen {
				continue
			}
			if err := r.apply(i, r.version+1); err != nil {
				return err
			}
		}
	}
	return nil
}

// foldStreams folds each stream in the order of ids. The row's version says what
// it has seen; what is missing between that and the batch is read first.
func (s *viewStep[S]) foldStreams(ctx context.Context, tx pgx.Tx) error {
	for _, key := range s.keys {
		s.groups[key] = unseen(s.groups[key], s.rows[key].version)
	}
	if err := s.fillHoles(ctx, tx); err != nil {
		return err
	}
	for _, key := range s.keys {
		if err := s.foldStream(ctx, tx, s.rows[key], s.groups[key]); err != nil {
			return err
		}
	}
	return nil
}

// unseen are the items above version, unless none of them is handled.
func unseen(items []item, version weir.Version) []item {
	items = slices.DeleteFunc(items, func(i item) bool { return i.Version <= version })
	if !slices.ContainsFunc(items, func(i item) bool { return i.handled }) {
		return nil
	}
	return items
}

// fillHoles reads what lies between what a row has seen and what the batch
// brings: after a parked stream was released or a lease moved.
func (s *viewStep[S]) fillHoles(ctx context.Context, tx pgx.Tx) error {
	var holes []eventstore.Range
	for _, key := range s.keys {
		holes = append(holes, missing(weir.StreamID(key), s.rows[key].version, s.groups[key])...)
	}
	if len(holes) == 0 {
		return nil
	}
	events, err := s.worker.Store.Ranges(ctx, tx, holes)
	if err != nil {
		return err
	}
	for _, e := range events {
		s.groups[string(e.Stream)] = append(s.groups[string(e.Stream)], s.worker.item(e))
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

// foldStream applies the items in the order of ids, or, where one sorts below
// what the row has seen, replays the whole stream in the order of ids.
func (s *viewStep[S]) foldStream(ctx context.Context, tx pgx.Tx, r *state[S], items []item) error {
	items = slices.DeleteFunc(items, func(i item) bool { return !i.handled })
	sortItems(items)
	if len(items) > 0 && r.version > 0 {
		if first := items[0].Order(); first.Compare(r.last) < 0 {
			return s.rewind(ctx, tx, r, items)
		}
	}
	return r.applyAll(items)
}

func sortItems(items []item) {
	slices.SortStableFunc(items, func(a, b item) int { return weir.CompareEvents(a.Event, b.Event) })
}

func (r *state[S]) applyAll(items []item) error {
	for _, i := range items {
		if err := r.apply(i, i.Version); err != nil {
			return err
		}
	}
	return nil
}

// rewind makes the row come out as if its late events had been on time. It reads
// the stream up to what the batch has brought: the row's version says exactly what
// was folded, and everything above it comes by the feed.
func (s *viewStep[S]) rewind(ctx context.Context, tx pgx.Tx, r *state[S], late []item) error {
	last := r.version
	for _, i := range late {
		last = max(last, i.Version)
	}
	whole := eventstore.Range{Stream: weir.StreamID(r.key), First: 1, Last: last}
	events, err := s.worker.Store.Ranges(ctx, tx, []eventstore.Range{whole})
	if err != nil {
		return err
	}
	var items []item
	for _, e := range events {
		e.IsNew = e.Version > r.version
		if i := s.worker.item(e); i.handled {
			items = append(items, i)
		}
	}
	sortItems(items)
	s.worker.count.Inversions += inversions(late, r.last)
	s.worker.count.Rewinds++
	s.worker.count.Replayed += int64(len(items))
	*r = state[S]{key: r.key, version: r.version}
	return r.applyAll(items)
}

// inversions counts the items that sort below last.
func inversions(items []item, last weir.ID) (n int64) {
	for _, i := range items {
		if order := i.Order(); order.Compare(last) < 0 {
			n++
		}
	}
	return n
}

func (s *viewStep[S]) queueWrites(b *pgx.Batch) error {
	var keys []string
	var states []*string
	var versions, positions []int64
	var ids [][16]byte
	for _, key := range s.keys {
		r := s.rows[key]
		if !r.changed {
			continue
		}
		text, err := r.encode()
		if err != nil {
			return &eventError{s.groups[key][0].Event, fmt.Errorf("encode row %q: %w", key, err)}
		}
		keys, states = append(keys, key), append(states, text)
		versions, positions = append(versions, int64(r.version)), append(positions, int64(r.position))
		ids = append(ids, r.last)
	}
	if len(keys) == 0 {
		return nil
	}
	b.Queue(s.view.sql(s.worker.Store, writeRows), keys, states, versions, ids, positions).
		Exec(s.worker.expectRows(len(keys)))
	return nil
}

// encode is the value of the column state: null for a tombstone. It calls the
// user's code too.
func (r *state[S]) encode() (text *string, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the state panicked: %v", p)
		}
	}()
	if r.deleted() {
		return nil, nil
	}
	encoded, err := json.Marshal(r.value)
	state := string(encoded)
	return &state, err
}
