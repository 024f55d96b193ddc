package projection

import (
	"context"
	_ "embed"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/eventstore"
	"github.com/weir-es/weir/internal/crash"
)

var (
	//go:embed sql/count_upto.sql
	countUpto string
	//go:embed sql/sample_next.sql
	sampleNext string
	//go:embed sql/end_own_rebuild.sql
	endOwnRebuild string
	//go:embed sql/rows_ahead.sql
	rowsAhead string
	//go:embed sql/lock_edition.sql
	lockEdition string
	//go:embed sql/remove_rows.sql
	removeRows string
	//go:embed sql/merge_rows.sql
	mergeRows string
	//go:embed sql/clear_snapshots.sql
	clearSnapshots string
	//go:embed sql/held_back.sql
	heldBackSQL string
	//go:embed sql/unpark.sql
	unpark string
	//go:embed sql/clear_marks.sql
	clearMarks string
	//go:embed sql/count_rows.sql
	countRows string
)

// sampled is how many rows of a new edition are folded a second time, one by one, to
// see whether they come out the same.
const sampled = 100

// check compares the edition with the log, by other ways than those that made it:
// the database counts the events that it should have seen, and some rows are folded
// once more.
func (b *rebuild[S]) check(ctx context.Context) error {
	b.tell("check", b.done)
	var shards []weir.Shard
	var upto []int64
	for shard := range weir.Shard(b.store.Shards()) {
		shards, upto = append(shards, shard), append(upto, int64(b.upto[shard]+b.upto[eventstore.WholeLog]))
	}
	var stored int64
	if err := b.store.Pool().QueryRow(ctx, b.store.Qualify(countUpto), shards, upto).Scan(&stored); err != nil {
		return err
	}
	if stored != b.done {
		return &CheckError{b.view.Name, fmt.Sprintf("the log has %d events there, and %d were read", stored, b.done)}
	}
	if !b.view.Key.byStream() {
		return nil
	}
	return b.checkRows(ctx)
}

func (b *rebuild[S]) checkRows(ctx context.Context) error {
	rows, err := b.store.Pool().Query(ctx, b.tables.sql(sampleNext), sampled)
	if err != nil {
		return err
	}
	keys, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	c := newComparison(b.view, b.tables)
	for _, key := range keys {
		stream := weir.StreamID(key)
		to := eventstore.Range{Stream: stream, Last: maxVersion, UpTo: b.upto[stream.Shard(b.store.Shards())]}
		f, err := b.view.from(ctx, b.source(b.store.Pool()), nil, to, false)
		if err != nil {
			return err
		}
		if err := c.expect(f.state); err != nil {
			return err
		}
	}
	differences, err := c.compare(ctx, b.store.Pool(), keys)
	if err == nil && len(differences) > 0 {
		err = &CheckError{b.view.Name, "row " + differences[0].String()}
	}
	return err
}

// swap puts the edition in the place of the one that serves. Whoever folds into that
// one waits meanwhile, and reads again where it is afterwards.
func (b *rebuild[S]) swap(ctx context.Context) (done Rebuilt, err error) {
	b.tell("swap", b.done)
	err = pgx.BeginTxFunc(ctx, b.store.Pool(), readCommitted, func(tx pgx.Tx) error {
		if err := tx.QueryRow(ctx, b.store.Qualify(lockEdition), b.view.Name, b.view.Schema).Scan(&done.Edition); err != nil {
			return err
		}
		if err := b.catchUp(ctx, tx); err != nil {
			return err
		}
		defer crash.At(crash.RebuildMerged)
		return b.replace(ctx, tx, &done)
	})
	crash.At(crash.RebuildSwapped)
	done.Events, done.Took = b.done, time.Since(b.began)
	return done, err
}

// catchUp brings the edition to where the view is now, which cannot move any more.
func (b *rebuild[S]) catchUp(ctx context.Context, tx pgx.Tx) error {
	goal, err := b.goal(ctx, tx)
	if err != nil {
		return err
	}
	err = b.applyTo(ctx, goal, func(items []item, to weir.Position) error { return b.applyPage(ctx, tx, items, to, goal) })
	if err != nil || !b.view.Key.byStream() {
		return err
	}
	if err := b.overtake(ctx, tx); err != nil {
		return err
	}
	return b.holdBack(ctx, tx)
}

// holdBack leaves the rows of streams of which the view has passed over events where
// they are: whoever applies these events will call the hooks for them.
func (b *rebuild[S]) holdBack(ctx context.Context, tx pgx.Tx) error {
	held, err := b.heldBack(ctx, tx)
	if err != nil || len(held) == 0 {
		return err
	}
	var keys []string
	for _, r := range held {
		keys = append(keys, string(r.Stream))
	}
	if _, err := tx.Exec(ctx, b.tables.sql(deleteRow), keys); err != nil {
		return err
	}
	return b.overtakeFew(ctx, tx, held)
}

// heldBack are the parts of such streams that their rows have seen. A parked stream is
// one of them only where there are hooks to call; else the rebuild goes through it.
func (b *rebuild[S]) heldBack(ctx context.Context, q eventstore.Querier) ([]eventstore.Range, error) {
	rows, err := q.Query(ctx, b.view.tables(b.store).sql(heldBackSQL), b.view.Name, b.view.After != nil)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (r eventstore.Range, err error) {
		r.First = 1
		err = row.Scan(&r.Stream, &r.Last)
		return r, err
	})
}

// queueMarks forgets what is parked and has been rebuilt.
func (b *rebuild[S]) queueMarks(batch *pgx.Batch) {
	switch {
	case !b.view.Key.byStream():
		batch.Queue(b.store.Qualify(clearMarks), b.view.Name)
	case b.view.After == nil:
		batch.Queue(b.store.Qualify(unpark), b.view.Name)
	}
}

// overtake folds the rows that are ahead of their view's checkpoint: those of inline
// views, and those that were rewound beside the others. Their hooks were called.
func (b *rebuild[S]) overtake(ctx context.Context, tx pgx.Tx) error {
	rows, err := tx.Query(ctx, b.view.tables(b.store).both(rowsAhead, b.tables))
	if err != nil {
		return err
	}
	ahead, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (r eventstore.Range, err error) {
		r.First, r.Last = 1, maxVersion
		err = row.Scan(&r.Stream, &r.UpTo)
		return r, err
	})
	if err != nil {
		return err
	}
	for few := range slices.Chunk(ahead, chunkStreams) {
		if err := b.overtakeFew(ctx, tx, few); err != nil {
			return err
		}
	}
	return nil
}

func (b *rebuild[S]) overtakeFew(ctx context.Context, tx pgx.Tx, ranges []eventstore.Range) error {
	var c rowColumns
	err := b.view.foldRanges(ctx, b.source(tx), ranges, func(r *state[S]) error {
		row, err := r.row()
		c.add(row.key, row.state, row.version, row.last, row.position, row.print)
		return err
	}, func(weir.Event) {})
	if err != nil || len(c.keys) == 0 {
		return err
	}
	_, err = tx.Exec(ctx, b.tables.sql(replaceRows), c.arguments()...)
	return err
}

func (b *rebuild[S]) replace(ctx context.Context, tx pgx.Tx, done *Rebuilt) error {
	live := b.view.tables(b.store)
	both := func(text string) string { return live.both(text, b.tables) }
	var batch pgx.Batch
	batch.Queue(both(removeRows)).QueryRow(func(row pgx.Row) error { return row.Scan(&done.Removed) })
	batch.Queue(both(mergeRows)).QueryRow(func(row pgx.Row) error { return row.Scan(&done.Added, &done.Changed) })
	batch.Queue(live.sql(countRows)).QueryRow(func(row pgx.Row) error { return row.Scan(&done.Rows) })
	batch.Queue(live.sql(clearSnapshots))
	batch.Queue(b.tables.sql(clearNext))
	b.queueMarks(&batch)
	batch.Queue(b.store.Qualify(endOwnRebuild), b.view.Name, [16]byte(b.worker)).Exec(mineStill)
	return tx.SendBatch(ctx, &batch).Close()
}
