package projection

import (
	"slices"
	"time"

	"github.com/weir-es/weir"
)

// cursor is where a worker is in the log, between one checkpoint and the next. It reads
// no clock and asks nobody.
type cursor struct {
	at     weir.Position                // everything at or below is applied
	done   map[weir.Shard]weir.Position // what each shard had when the worker resumed
	doneTo weir.Position                // the highest of these
	marked weir.Position                // the checkpoint of every shard is at least here
	noted  time.Time                    // when it was last marked
}

// newCursor begins where the hindmost of shards is, of the checkpoints in done.
func newCursor(shards []weir.Shard, done map[weir.Shard]weir.Position, now time.Time) cursor {
	c := cursor{done: done, noted: now}
	for i, shard := range shards {
		c.doneTo = max(c.doneTo, done[shard])
		if i == 0 || done[shard] < c.at {
			c.at = done[shard]
		}
	}
	c.marked = c.at
	return c
}

// has reports whether a shard had applied what is at a position before the worker
// resumed.
func (c *cursor) has(shard weir.Shard, at weir.Position) bool {
	return at <= c.doneTo && at <= c.done[shard]
}

// markDue is when to move the checkpoints of shards for which nothing came, if there is
// anything to move.
func (c *cursor) markDue() (time.Time, bool) { return c.noted.Add(markEvery), c.marked != c.at }

// mark says that all checkpoints are where the worker is.
func (c *cursor) mark(now time.Time) { c.marked, c.noted = c.at, now }

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
