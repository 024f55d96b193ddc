package eventstore

import (
	"context"
	"fmt"
	"iter"
	"math"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-es/weir"
)

// Streams says which streams to list. The zero value is all of them.
type Streams struct {
	// Category leaves out the streams of all others.
	Category string
	// After is the name behind which to begin. Default before the first.
	After weir.StreamID
	// Limit is the most streams to list. Default no limit.
	Limit int
}

// StreamHead is a stream and its last event.
type StreamHead struct {
	Stream  weir.StreamID
	Version weir.Version
	Shard   weir.Shard
	Created time.Time
	// Position, ID, Type and Recorded are those of the last event; zero if the
	// store is damaged and has lost it.
	Position weir.Position
	ID       weir.ID
	Type     string
	Recorded time.Time
}

// lastName sorts after every name of a stream.
var lastName = strings.Repeat("\U0010FFFF", weir.MaxStreamBytes/4+1)

// between are the names before and behind those that are wanted.
func (l Streams) between() (after, before string) {
	if l.Category == "" {
		return string(l.After), lastName
	}
	// Its names begin with "category-", and '.' is the byte after '-'.
	return max(string(l.After), l.Category+"-"), l.Category + "."
}

// Streams lists streams that have events, in the order of the bytes of their
// names. It holds one page of a thousand in memory and no connection while the loop
// runs, so it is no snapshot: streams may appear between pages. It ends with the
// first error.
func (s *Store) Streams(ctx context.Context, l Streams) iter.Seq2[StreamHead, error] {
	return func(yield func(StreamHead, error) bool) {
		if strings.Contains(l.Category, "-") {
			yield(StreamHead{}, fmt.Errorf("list streams of category %q: a category ends at the first dash", l.Category))
			return
		}
		after, before := l.between()
		left := l.Limit
		if left <= 0 {
			left = math.MaxInt
		}
		for left > 0 {
			size := min(left, pageEvents)
			page, err := s.streamsPage(ctx, after, before, size)
			if !yieldHeads(page, err, yield) || len(page) < size {
				return
			}
			after, left = string(page[size-1].Stream), left-size
		}
	}
}

func yieldHeads(page []StreamHead, err error, yield func(StreamHead, error) bool) bool {
	if err != nil {
		yield(StreamHead{}, err)
		return false
	}
	for _, head := range page {
		if !yield(head, nil) {
			return false
		}
	}
	return true
}

func (s *Store) streamsPage(ctx context.Context, after, before string, size int) ([]StreamHead, error) {
	rows, err := s.pool.Query(ctx, s.sql.Streams, after, before, size)
	if err != nil {
		return nil, fmt.Errorf("list streams after %q: %w", after, err)
	}
	page, err := pgx.CollectRows(rows, scanHead)
	if err != nil {
		return nil, fmt.Errorf("list streams after %q: %w", after, err)
	}
	return page, nil
}

func scanHead(row pgx.CollectableRow) (h StreamHead, err error) {
	var position *weir.Position // these are null where the last event is missing, which doctor tells
	var id *[16]byte
	var name *string
	var recorded *time.Time
	err = row.Scan(&h.Stream, &h.Version, &h.Shard, &h.Created, &position, &id, &name, &recorded)
	if err != nil || position == nil {
		return h, err
	}
	h.Position, h.ID, h.Type = *position, *id, *name
	h.Created, h.Recorded = h.Created.UTC(), recorded.UTC()
	return h, nil
}
