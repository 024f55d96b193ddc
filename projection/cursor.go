package projection

import (
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-es/weir"
)

// cursor is where a worker is in the log, between one checkpoint and the next. It reads
// no clock and asks nobody.
type cursor struct {
	at     weir.Position // everything at or below is applied
	marks  marks
	doneTo weir.Position // the highest checkpoint when the worker resumed
	marked weir.Position // the checkpoint of every shard is at least here
	noted  time.Time     // when it was last marked
}

// newCursor begins where the hindmost of shards is, of the checkpoints in done.
func newCursor(shards []weir.Shard, done map[weir.Shard]weir.Position, now time.Time) cursor {
	c := cursor{marks: maps.Clone(done), noted: now}
	for i, shard := range shards {
		c.doneTo = max(c.doneTo, done[shard])
		if i == 0 || done[shard] < c.at {
			c.at = done[shard]
		}
	}
	c.marked = c.at
	return c
}

// has reports whether a shard has applied what is at a position: others may be further
// behind.
func (c *cursor) has(shard weir.Shard, at weir.Position) bool {
	return at <= c.doneTo && at <= c.marks[shard]
}

// markDue is when to move the checkpoints of shards for which nothing came, if there is
// anything to move.
func (c *cursor) markDue() (time.Time, bool) { return c.noted.Add(markEvery), c.marked != c.at }

// mark says that all checkpoints are where the worker is.
func (c *cursor) mark(now time.Time) { c.marked, c.noted = c.at, now }

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

// touched are the shards with something to apply, sorted: those whose checkpoints a
// batch moves.
func touched(items []item, shardOf func(weir.Event) weir.Shard) []weir.Shard {
	set := map[weir.Shard]bool{}
	var last weir.StreamID
	for _, i := range items {
		if !i.handled || i.Stream == last {
			continue
		}
		last = i.Stream
		set[shardOf(i.Event)] = true
	}
	var shards []weir.Shard
	for shard := range set {
		shards = append(shards, shard)
	}
	slices.Sort(shards)
	return shards
}
