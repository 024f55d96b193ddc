package eventstore

import (
	"context"
	"fmt"
	"iter"
	"math"

	"github.com/jackc/pgx/v5"

	"github.com/weir-es/weir"
)

// pageEvents is how many events are read at a time: enough to make the round
// trip cheap, few enough to keep snapshots short.
const pageEvents = 1000

// Stream reads the events of a stream above version after, oldest first. It
// holds one page of a thousand events in memory and no connection while the loop
// runs. A stream that does not exist has no events.
func (s *Store) Stream(ctx context.Context, stream weir.StreamID, after weir.Version) iter.Seq2[weir.Event, error] {
	return func(yield func(weir.Event, error) bool) {
		for {
			page, err := s.streamPage(ctx, s.pool, stream, after, math.MaxInt64, pageEvents)
			if !yieldPage(page, err, yield) || len(page) < pageEvents {
				return
			}
			after = page[len(page)-1].Version
		}
	}
}

func (s *Store) streamPage(ctx context.Context, q querier, stream weir.StreamID, after, to weir.Version, limit int) ([]weir.Event, error) {
	rows, err := q.Query(ctx, s.sql.Stream, string(stream), int64(after), int64(to), limit)
	page, err := collect(rows, err, limit)
	if err != nil {
		return nil, fmt.Errorf("read stream %s after version %d: %w", stream, after, err)
	}
	return page, nil
}

// Log reads the events of all streams above position after, in the order of the
// log, up to the horizon at the moment of the call.
func (s *Store) Log(ctx context.Context, after weir.Position) iter.Seq2[weir.Event, error] {
	return func(yield func(weir.Event, error) bool) {
		to, _, err := s.ReadHorizon(ctx)
		if err != nil {
			yield(weir.Event{}, err)
			return
		}
		for {
			page, err := s.Page(ctx, after, to, nil, pageEvents)
			if !yieldPage(page, err, yield) || len(page) < pageEvents {
				return
			}
			after = page[len(page)-1].Position
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

// Range is a part of a stream: the versions First to Last, both included.
type Range struct {
	Stream      weir.StreamID
	First, Last weir.Version
}

// Ranges reads parts of several streams in one round trip, in tx. Within a
// stream the events come in the order of their versions.
func (s *Store) Ranges(ctx context.Context, tx pgx.Tx, ranges []Range) ([]weir.Event, error) {
	names := make([]string, len(ranges))
	first, last := make([]int64, len(ranges)), make([]int64, len(ranges))
	for i, r := range ranges {
		names[i], first[i], last[i] = string(r.Stream), int64(r.First), int64(r.Last)
	}
	rows, err := tx.Query(ctx, s.sql.Ranges, names, first, last)
	events, err := collect(rows, err, 0)
	if err != nil {
		return nil, fmt.Errorf("read parts of %d streams: %w", len(ranges), err)
	}
	return events, nil
}

// Whole reads a stream from its first event to its head, in tx.
func (s *Store) Whole(ctx context.Context, tx pgx.Tx, stream weir.StreamID) ([]weir.Event, error) {
	return s.streamPage(ctx, tx, stream, 0, math.MaxInt64, math.MaxInt32)
}
