package ops

import (
	"context"
	"fmt"
	"iter"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/eventstore"
)

// StreamOptions say which events of which stream to read.
type StreamOptions struct {
	Stream   weir.StreamID `arg:"" help:"The name of the stream, such as seat-A1."`
	From     InStream      `placeholder:"PLACE" help:"Begin at this version, id or time, or so long ago (15m)."`
	AsOf     InStream      `placeholder:"PLACE" help:"Leave out everything after this version, id or time."`
	Type     []string      `placeholder:"NAME" help:"Only events of these types."`
	Backward bool          `short:"b" help:"The newest first."`
	Limit    int           `short:"n" help:"The most events to print; 0 for all."`
}

// Stream reads events of a stream. It ends with an error that is weir.ErrNotFound
// when there is no such stream.
func Stream(ctx context.Context, s *eventstore.Store, o StreamOptions) iter.Seq2[weir.Event, error] {
	read := eventstore.Read{From: o.From.Point, AsOf: o.AsOf.Point, Types: o.Type, Backward: o.Backward, Limit: o.Limit}
	return func(yield func(weir.Event, error) bool) {
		n := 0
		for e, err := range s.ReadStream(ctx, o.Stream, read) {
			if !yield(e, err) || err != nil {
				return
			}
			n++
		}
		if n > 0 {
			return
		}
		if err := exists(ctx, s, o.Stream); err != nil {
			yield(weir.Event{}, err)
		}
	}
}

// exists tells a stream of which nothing was asked for from one that is not there.
func exists(ctx context.Context, s *eventstore.Store, stream weir.StreamID) error {
	for _, err := range s.ReadStream(ctx, stream, eventstore.Read{Backward: true, Limit: 1}) {
		return err
	}
	return fmt.Errorf("stream %.200q: %w", stream, weir.ErrNotFound)
}

func (o *StreamOptions) run(ctx context.Context, s *session) error {
	return s.withStore(ctx, func(store *eventstore.Store) error {
		for e, err := range Stream(ctx, store, *o) {
			if err != nil {
				return err
			}
			if err := s.out.print(eventRow(e)); err != nil {
				return err
			}
		}
		return nil
	})
}
