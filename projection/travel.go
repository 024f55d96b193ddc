package projection

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/eventstore"
)

// GetAt folds what a row was at an earlier moment: by the version of its stream (of a
// view that is keyed By a function: by how many events made the row), by position,
// id or time. By id and time it is what the row would be if nothing had happened
// after them, with late events where they belong. It reads the log, from the newest
// snapshot that fits, so it knows what is committed, whether the view has come there
// or not. It writes nothing. There is nothing: weir.ErrNotFound.
//
// A view that is not keyed by stream is folded from the beginning of the log.
func (v View[S]) GetAt(ctx context.Context, s *eventstore.Store, key string, when eventstore.Point) (state S, err error) {
	r, err := v.at(ctx, s, key, when)
	if err == nil && (r.version == 0 || r.gone) {
		err = weir.ErrNotFound
	}
	if err != nil {
		return state, fmt.Errorf("get %q of view %s as it was: %w", key, v.Name, v.culprit(err))
	}
	return r.value, nil
}

func (v View[S]) at(ctx context.Context, s *eventstore.Store, key string, when eventstore.Point) (*state[S], error) {
	d := decoderOf(v, s)
	if !v.Key.byStream() {
		return v.logAt(ctx, s, d, key, when)
	}
	bases, err := v.basesAt(ctx, s, key, when)
	if err != nil {
		return nil, err
	}
	to := eventstore.Range{Stream: weir.StreamID(key), Last: when.LastVersion(), UpTo: when.LastPosition()}
	f, err := v.from(ctx, source{d, s, s.Pool(), when.Includes}, bases, to, false)
	if err != nil {
		return nil, err
	}
	return f.state, f.err
}

// basesAt are the snapshots that hold nothing after a point, and the row itself.
func (v View[S]) basesAt(ctx context.Context, s *eventstore.Store, key string, when eventstore.Point) ([]snapshot, error) {
	t := v.tables(s)
	bases, err := t.snapshots(ctx, s.Pool(), key, v.Schema)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(bases, func(one snapshot) bool {
		return !when.Includes(weir.Event{Message: weir.Message{ID: one.last}, Version: one.reached, Position: one.position})
	}), nil
}

// logAt folds the events of a key along the log.
func (v View[S]) logAt(ctx context.Context, s *eventstore.Store, d decoder, key string, when eventstore.Point) (*state[S], error) {
	r := &state[S]{key: key}
	for i, err := range v.itemsOf(ctx, s, d, key, eventstore.Read{AsOf: when.WithoutVersion()}) {
		if err != nil {
			return nil, err
		}
		if r.version >= when.LastVersion() {
			break
		}
		if err := r.apply(i, r.version+1); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// itemsOf are the events of a row of a view that is not keyed by stream, one for each
// value that goes into it.
func (v View[S]) itemsOf(ctx context.Context, s *eventstore.Store, d decoder, key string, read eventstore.Read) iter.Seq2[item, error] {
	read.Types = v.Types
	return func(yield func(item, error) bool) {
		for event, err := range s.ReadLog(ctx, read) {
			if err != nil {
				yield(item{}, err)
				return
			}
			one := newStep(v, tables{}, &job{})
			one.file([]item{d.item(event)})
			for _, i := range one.groups[key] {
				if !yield(i, nil) {
					return
				}
			}
		}
	}
}

// Explain gives the events that made a row, in the order in which they were folded.
// Their metadata name their causes. It ends with the first error; a row that is not
// there has no events.
func (v View[S]) Explain(ctx context.Context, s *eventstore.Store, key string) iter.Seq2[weir.Event, error] {
	return func(yield func(weir.Event, error) bool) {
		r, err := v.load(ctx, s.Pool(), s, key)
		if err != nil || r == nil {
			if err != nil {
				yield(weir.Event{}, fmt.Errorf("explain %q of view %s: %w", key, v.Name, err))
			}
			return
		}
		for event, err := range v.made(ctx, s, r) {
			if !yield(event, err) || err != nil {
				return
			}
		}
	}
}

// made are the events that a row has seen.
func (v View[S]) made(ctx context.Context, s *eventstore.Store, r *state[S]) iter.Seq2[weir.Event, error] {
	src := source{decoder: decoderOf(v, s), store: s, q: s.Pool()}
	return func(yield func(weir.Event, error) bool) {
		if !v.Key.byStream() {
			for i, err := range v.itemsOf(ctx, s, src.decoder, r.key, eventstore.Read{AsOf: eventstore.AtPosition(r.position)}) {
				if !yield(i.Event, err) {
					return
				}
			}
			return
		}
		all := eventstore.Range{Stream: weir.StreamID(r.key), First: 1, Last: r.version}
		for i, err := range src.replay(ctx, v.Order, all) {
			if err == nil && !i.handled {
				continue
			}
			if !yield(i.Event, err) {
				return
			}
		}
	}
}

// load reads a row, nil if there is none.
func (v View[S]) load(ctx context.Context, q eventstore.Querier, s *eventstore.Store, key string) (r *state[S], err error) {
	rows, err := q.Query(ctx, v.tables(s).sql(loadRows), []string{key})
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	if rows.Next() {
		if r, err = scanState[S](rows); err != nil {
			return nil, err
		}
	}
	return r, errors.Join(err, rows.Err())
}
