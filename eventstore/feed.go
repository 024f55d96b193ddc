package eventstore

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/weir-es/weir"
)

// WholeLog stands for all shards together, in the checkpoints of consumers that
// follow the whole log in one order.
const WholeLog weir.Shard = -1

// Checkpoints says where a consumer is, by shard. A shard it never touched is
// absent: it starts at 0.
func (s *Store) Checkpoints(ctx context.Context, consumer string) (map[weir.Shard]weir.Position, error) {
	return s.CheckpointsIn(ctx, s.pool, consumer)
}

// CheckpointsIn is Checkpoints as a transaction sees them.
func (s *Store) CheckpointsIn(ctx context.Context, q Querier, consumer string) (map[weir.Shard]weir.Position, error) {
	rows, err := q.Query(ctx, s.sql.Checkpoints, consumer)
	if err != nil {
		return nil, fmt.Errorf("read checkpoints of %s: %w", consumer, err)
	}
	at := map[weir.Shard]weir.Position{}
	var shard weir.Shard
	var position weir.Position
	_, err = pgx.ForEachRow(rows, []any{&shard, &position}, func() error {
		at[shard] = position
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read checkpoints of %s: %w", consumer, err)
	}
	return at, nil
}

// QueueCheckpoint moves the checkpoints of a consumer to position at as a part of
// b, in the transaction of their effects. They never move back: the command tag
// counts those that moved. A consumer whose effects may not happen twice must roll
// back when one did not; one that may have an heir under the same leases moves them with
// QueueAdvance, from where it left them, since its last commit may still be on its way.
func (s *Store) QueueCheckpoint(b *pgx.Batch, consumer string, shards []weir.Shard, at weir.Position) *pgx.QueuedQuery {
	positions := make([]int64, len(shards))
	for i := range positions {
		positions[i] = int64(at)
	}
	return b.Queue(s.sql.Checkpoint, consumer, shards, positions)
}

// Parked is a stream that a consumer stopped at.
type Parked struct {
	Stream   weir.StreamID
	Version  weir.Version
	Reason   string
	Error    string
	Attempts int
}

// Park stops a consumer at an event of one stream, in tx. Safe to repeat; the
// first failure stays.
func (s *Store) Park(ctx context.Context, tx pgx.Tx, consumer string, p Parked) error {
	_, err := tx.Exec(ctx, s.sql.Park, consumer, string(p.Stream), int64(p.Version), p.Reason, p.Error, p.Attempts)
	if err != nil {
		return fmt.Errorf("park %s of %s: %w", p.Stream, consumer, err)
	}
	return nil
}

// Release lets a consumer go on with a stream that it stopped at, from the event that
// failed, in order, with the code that it has now; whoever runs it notices within
// seconds. It reports whether the stream was parked. Safe to repeat.
func (s *Store) Release(ctx context.Context, consumer string, stream weir.StreamID) (bool, error) {
	tag, err := s.pool.Exec(ctx, s.sql.Release, consumer, string(stream))
	if err != nil {
		return false, fmt.Errorf("release %s of %s: %w", stream, consumer, err)
	}
	return tag.RowsAffected() > 0, nil
}

// ParkedCounts says how many streams each consumer is stopped at.
func (s *Store) ParkedCounts(ctx context.Context) (map[string]int, error) {
	rows, err := s.pool.Query(ctx, s.sql.ParkedCounts)
	if err != nil {
		return nil, fmt.Errorf("count what is parked: %w", err)
	}
	counts := map[string]int{}
	var consumer string
	var n int
	_, err = pgx.ForEachRow(rows, []any{&consumer, &n}, func() error {
		counts[consumer] = n
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("count what is parked: %w", err)
	}
	return counts, nil
}

// Parked lists the streams that a consumer stopped at.
func (s *Store) Parked(ctx context.Context, consumer string) ([]Parked, error) {
	rows, err := s.pool.Query(ctx, s.sql.Parked, consumer)
	if err != nil {
		return nil, fmt.Errorf("list what %s parked: %w", consumer, err)
	}
	parked, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (p Parked, err error) {
		return p, row.Scan(&p.Stream, &p.Version, &p.Reason, &p.Error, &p.Attempts, nil)
	})
	if err != nil {
		return nil, fmt.Errorf("list what %s parked: %w", consumer, err)
	}
	return parked, nil
}
