package projection

import (
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/eventstore"
)

// job is one batch of a projection: what it works with, and what comes of it when
// its transaction is committed.
type job struct {
	decoder
	store *eventstore.Store
	// edition is what the projection's table is known to hold; 0 is not known
	// yet.
	edition *int64
	// longest is how many events a rewind may replay within the batch; longer
	// ones go on beside it. 0 is any number.
	longest weir.Version
	// from and upto are, for a stream that is caught up with beside the others,
	// the first event that is not applied and the last that is its turn.
	from, upto weir.Position
	// newest is the highest order id that the worker applied before this batch, if it
	// remembers one. An event below it may be late.
	newest weir.ID
	// plain leaves snapshots unwritten.
	plain bool

	count  Counts
	shots  int // snapshots that are written
	behind []deferred
}

// deferred is a stream that is to be rewound beside the others. Its events from a
// position on are not applied yet.
type deferred struct {
	stream weir.StreamID
	from   weir.Position
}

// source reads with what the job has.
func (j *job) source(q eventstore.Querier) source {
	return source{decoder: j.decoder, store: j.store, q: q}
}

// expectRows counts the rows that a guarded write passed over.
func (j *job) expectRows(n int) func(pgconn.CommandTag) error {
	return func(tag pgconn.CommandTag) error {
		j.count.Skipped += int64(n) - tag.RowsAffected()
		return nil
	}
}

// queueCounts notes rewinds where other processes see them: at a checkpoint.
func (j *job) queueCounts(b *pgx.Batch, consumer string, shard weir.Shard) {
	if c := j.count; c.Inversions+c.Rewinds+c.Replayed > 0 {
		b.Queue(j.store.Qualify(countRewinds), consumer, shard, c.Inversions, c.Rewinds, c.FromSnapshot, c.Replayed)
	}
}
