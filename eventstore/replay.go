package eventstore

import (
	"context"
	"fmt"
	"iter"
	"math"

	"github.com/jackc/pgx/v5"

	"github.com/weir-es/weir"
)

// Querier is what a pool, a connection and a transaction have in common.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

// Range is a part of a stream: the versions First to Last, both included.
type Range struct {
	Stream      weir.StreamID
	First, Last weir.Version
	// UpTo leaves out what is above this position. Default nothing.
	UpTo weir.Position
}

// rangeColumns are ranges as the statements take them.
func rangeColumns(ranges []Range) (names []string, first, last, upto []int64) {
	for _, r := range ranges {
		names = append(names, string(r.Stream))
		first, last = append(first, int64(r.First)), append(last, int64(r.Last))
		upto = append(upto, int64(orDefault(r.UpTo, math.MaxInt64)))
	}
	return names, first, last, upto
}

// Replay reads parts of streams, one stream after the other as they are named, each
// in the order of order ids, which is the order in which its events were emitted,
// or, with asStored, in the order of versions. The database sorts, and the events come one by one, so
// that a long stream costs no memory here; q is busy until the loop ends. It ends
// with the first error.
func (s *Store) Replay(ctx context.Context, q Querier, asStored bool, ranges ...Range) iter.Seq2[weir.Event, error] {
	return func(yield func(weir.Event, error) bool) {
		names, first, last, upto := rangeColumns(ranges)
		rows, err := q.Query(ctx, s.sql.Replay, names, first, last, upto, asStored)
		if err != nil {
			yield(weir.Event{}, fmt.Errorf("replay %d streams: %w", len(ranges), err))
			return
		}
		for event, err := range ScanEvents(rows) {
			if err != nil {
				err = fmt.Errorf("replay %d streams: %w", len(ranges), err)
			}
			if !yield(event, err) {
				return
			}
		}
	}
}

// Head is where a stream was when it was looked at.
type Head struct {
	Number  int64 // increases with the age of the store
	Stream  weir.StreamID
	Shard   weir.Shard
	Version weir.Version
}

// Heads reads streams in the order of their creation, those above number after.
func (s *Store) Heads(ctx context.Context, q Querier, after int64, limit int) ([]Head, error) {
	rows, err := q.Query(ctx, s.sql.StreamsByID, after, limit)
	if err != nil {
		return nil, fmt.Errorf("read streams above number %d: %w", after, err)
	}
	heads, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (h Head, err error) {
		return h, row.Scan(&h.Number, &h.Stream, &h.Shard, &h.Version)
	})
	if err != nil {
		return nil, fmt.Errorf("read streams above number %d: %w", after, err)
	}
	return heads, nil
}
