package ops

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/eventstore"
)

// StreamsOptions say which streams to list.
type StreamsOptions struct {
	Category string `placeholder:"NAME" help:"Only streams of this category."`
	After    string `placeholder:"STREAM" help:"Begin behind this name."`
	Limit    int    `default:"100" help:"The most streams to list; 0 for all."`
}

// StreamRow is a stream as it is listed. ID, Type and Recorded are those of its
// last event.
type StreamRow struct {
	Stream   weir.StreamID `json:"stream"`
	Version  weir.Version  `json:"version"`
	Shard    weir.Shard    `json:"shard"`
	ID       weir.ID       `json:"last_id"`
	Type     string        `json:"last_type"`
	Position weir.Position `json:"last_position"`
	Recorded time.Time     `json:"last_recorded"`
}

// Streams lists streams in the order of their names.
func Streams(ctx context.Context, s *eventstore.Store, o StreamsOptions) iter.Seq2[StreamRow, error] {
	return func(yield func(StreamRow, error) bool) {
		for h, err := range s.Streams(ctx, eventstore.Streams{Category: o.Category, After: weir.StreamID(o.After), Limit: o.Limit}) {
			if !yield(StreamRow{h.Stream, h.Version, h.Shard, h.ID, h.Type, h.Position, h.Recorded}, err) {
				return
			}
		}
	}
}

func (o *StreamsOptions) run(ctx context.Context, s *session) error {
	return s.withStore(ctx, func(store *eventstore.Store) error {
		all := *o
		if o.Limit > 0 {
			all.Limit++ // to know whether there are more
		}
		n, last := 0, weir.StreamID("")
		for row, err := range Streams(ctx, store, all) {
			if err != nil {
				return err
			}
			if n == o.Limit && o.Limit > 0 {
				fmt.Fprintf(s.Stderr, "there are more: --after %q goes on, --limit 0 lists all\n", last)
				return nil
			}
			if err := s.out.print(row); err != nil {
				return err
			}
			n, last = n+1, row.Stream
		}
		return nil
	})
}
