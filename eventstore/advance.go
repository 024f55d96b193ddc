package eventstore

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-es/weir"
)

// QueueAdvance moves the checkpoints of a consumer that may be sent back, as a part
// of b: from where it left them to position at. The command tag counts those that
// were there still; if that is fewer than len(was), somebody else has moved one, the
// transaction is to be rolled back, and the consumer goes on from where its
// checkpoints are now. A shard that has no checkpoint was at 0.
func (s *Store) QueueAdvance(b *pgx.Batch, consumer string, was map[weir.Shard]weir.Position, at weir.Position) *pgx.QueuedQuery {
	shards, positions := make([]weir.Shard, 0, len(was)), make([]int64, 0, len(was))
	for shard, position := range was {
		shards = append(shards, shard)
		positions = append(positions, int64(position))
	}
	return b.Queue(s.sql.AdvanceCheckpoints, consumer, shards, positions, int64(at))
}

// RewindCheckpoints sends a consumer back: those of its checkpoints that are above
// position after are moved there. It returns how many that were. The others go one
// back, below 0 where there was none, so that a consumer that is further than it has
// noted goes back, too. It is for consumers that move with QueueAdvance; others do not
// notice. Safe to repeat.
func (s *Store) RewindCheckpoints(ctx context.Context, consumer string, after weir.Position) (moved int64, err error) {
	err = s.pool.QueryRow(ctx, s.sql.RewindCheckpoints, consumer, int64(after), s.Shards()).Scan(&moved)
	if err != nil {
		return 0, fmt.Errorf("send %s back to position %d: %w", consumer, after, err)
	}
	return moved, nil
}

// PositionBefore is the highest position such that every event recorded at or after
// t lies above it; the last position if there is none. It reads all events.
func (s *Store) PositionBefore(ctx context.Context, t time.Time) (at weir.Position, err error) {
	if err := s.pool.QueryRow(ctx, s.sql.PositionBefore, t).Scan(&at); err != nil {
		return 0, fmt.Errorf("position before %s: %w", t.Format(time.RFC3339), err)
	}
	return at, nil
}
