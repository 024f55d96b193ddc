package ops

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/eventstore"
)

// ParkedRow is a stream that a consumer stopped at; see eventstore.Parked.
type ParkedRow struct {
	Consumer string        `json:"consumer"`
	Stream   weir.StreamID `json:"stream"`
	Version  weir.Version  `json:"version"`
	Reason   string        `json:"reason"`
	Attempts int           `json:"attempts"`
	Error    string        `json:"error"`
}

// Parked lists the streams that consumers stopped at: all consumers, or one.
func Parked(ctx context.Context, s *eventstore.Store, consumer string) (rows []ParkedRow, err error) {
	counts, err := s.ParkedCounts(ctx)
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		if consumer != "" && name != consumer {
			continue
		}
		parked, err := s.Parked(ctx, name)
		if err != nil {
			return nil, err
		}
		for _, p := range parked {
			rows = append(rows, ParkedRow{name, p.Stream, p.Version, p.Reason, p.Attempts, p.Error})
		}
	}
	return rows, nil
}

// ReleasedRow says that a consumer goes on with a stream.
type ReleasedRow struct {
	Consumer string        `json:"consumer"`
	Stream   weir.StreamID `json:"stream"`
}

// Retry lets a consumer go on with a stream, or with all that it stopped at, and
// returns which those are. Whoever runs it notices within seconds.
func Retry(ctx context.Context, s *eventstore.Store, consumer string, stream weir.StreamID) (released []ReleasedRow, err error) {
	rows, err := Parked(ctx, s, consumer)
	for _, row := range rows {
		if stream != "" && row.Stream != stream {
			continue
		}
		was, err := s.Release(ctx, row.Consumer, row.Stream)
		if err != nil {
			return released, err
		}
		if was {
			released = append(released, ReleasedRow{row.Consumer, row.Stream})
		}
	}
	return released, err
}

type parkedVerbs struct {
	List  parkedListCommand  `cmd:"" default:"withargs" help:"List the streams that views and handlers stopped at, and why."`
	Retry parkedRetryCommand `cmd:"" help:"Let a view or handler go on with a stream, from the event that failed."`
}

type parkedListCommand struct {
	Consumer string `arg:"" optional:"" help:"The view or handler. Default all."`
}

func (c *parkedListCommand) run(ctx context.Context, s *session) error {
	return s.withStore(ctx, func(store *eventstore.Store) error {
		rows, err := Parked(ctx, store, c.Consumer)
		return errors.Join(printAll(s, rows), err)
	})
}

type parkedRetryCommand struct {
	Consumer string        `arg:"" help:"The view or handler."`
	Stream   weir.StreamID `arg:"" optional:"" help:"The stream."`
	All      bool          `help:"All streams that it stopped at."`
}

func (c *parkedRetryCommand) run(ctx context.Context, s *session) error {
	if (c.Stream == "") != c.All {
		return &unableError{errors.New("name a stream, or say --all")}
	}
	return s.withStore(ctx, func(store *eventstore.Store) error {
		rows, err := Retry(ctx, store, c.Consumer, c.Stream)
		if err = errors.Join(printAll(s, rows), err); err != nil {
			return err
		}
		if len(rows) == 0 {
			return fmt.Errorf("%s has stopped at no such stream; the verb parked lists those there are", c.Consumer)
		}
		return nil
	})
}

func printAll[R any](s *session, rows []R) error {
	for _, row := range rows {
		if err := s.out.print(row); err != nil {
			return err
		}
	}
	return nil
}
