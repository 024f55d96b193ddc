package projection

import (
	"github.com/jackc/pgx/v5"

	"github.com/weir-es/weir"
)

// marks are the checkpoints of a worker as it left them, by shard; none is 0.
type marks map[weir.Shard]weir.Position

// behind are those of some shards that are below a position.
func (m marks) behind(shards []weir.Shard, to weir.Position) map[weir.Shard]weir.Position {
	was := map[weir.Shard]weir.Position{}
	for _, shard := range shards {
		if m[shard] < to {
			was[shard] = m[shard]
		}
	}
	return was
}

// move moves them along.
func (m marks) move(shards []weir.Shard, to weir.Position) {
	for _, shard := range shards {
		m[shard] = max(m[shard], to)
	}
}

// queueAdvance moves the checkpoints of shards that are below to, from where this worker
// left them and not from anywhere: the last commit of the worker before it, of the same
// process under the same leases, may still be on its way, and what that has applied is
// not to be applied again.
func (w *Worker) queueAdvance(b *pgx.Batch, shards []weir.Shard, to weir.Position) *pgx.QueuedQuery {
	return w.Store.QueueAdvance(b, w.Projection.ProjectionName(), w.marks.behind(shards, to), to)
}
