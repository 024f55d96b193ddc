package main

import (
	"context"
	"iter"

	"github.com/jackc/pgx/v5"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/eventstore"
)

// importOurs imports history into an empty store.
func importOurs(ctx context.Context, t *trial) error {
	s, end, err := t.store(ctx, fresh)
	if err != nil {
		return err
	}
	defer end()
	events := facts(t.n, streamsOf(t.n))
	err = t.measure(func() error {
		_, err := s.Import(ctx, each(events), eventstore.ImportOptions{})
		return err
	})
	if err != nil {
		return err
	}
	return t.expectEvents(ctx, s, 0)
}

// importTwin copies the same events in one COPY, into a table with the columns and
// indexes of ours. It is the least because it checks nothing, keeps no streams,
// believes the versions that it counts itself, and can neither go on where it was
// interrupted nor meet an event twice.
func importTwin(ctx context.Context, t *trial) error {
	conn, end, err := t.connection(ctx, fresh)
	if err != nil {
		return err
	}
	defer end()
	events, numbers := facts(t.n, streamsOf(t.n)), numbersOf(streamsOf(t.n))
	err = t.measure(func() error { return copyRows(ctx, conn, events, numbers) })
	if err != nil {
		return err
	}
	return t.expectRows(ctx, conn, 0)
}

// numbersOf are the numbers of streams.
func numbersOf(streams int) map[weir.StreamID]int64 {
	numbers := make(map[weir.StreamID]int64, streams)
	for i := range streams {
		numbers[streamName(i)] = int64(i + 1)
	}
	return numbers
}

func copyRows(ctx context.Context, conn *pgx.Conn, events []weir.Message, numbers map[weir.StreamID]int64) error {
	h := heads{}
	columns := []string{"stream_id", "version", "event_id", "shard", "type", "data", "metadata"}
	_, err := conn.CopyFrom(ctx, pgx.Identifier{"twin", "events"}, columns, pgx.CopyFromSlice(len(events), func(i int) ([]any, error) {
		m := &events[i]
		number := numbers[m.Stream]
		return []any{number, h.next(number), [16]byte(m.ID), int16(m.Stream.Shard(weir.DefaultShards)), m.Type, m.Data, metadata}, nil
	}))
	return err
}

// each yields messages as a source that cannot fail.
func each(messages []weir.Message) iter.Seq2[weir.Message, error] {
	return func(yield func(weir.Message, error) bool) {
		for _, m := range messages {
			if !yield(m, nil) {
				return
			}
		}
	}
}
