package projection

import (
	"context"
	_ "embed"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/eventstore"
)

var (
	//go:embed sql/lock_view.sql
	lockView string
	//go:embed sql/replace_rows.sql
	replaceRows string
	//go:embed sql/delete_row.sql
	deleteRow string
	//go:embed sql/clear_key.sql
	clearKey string
	//go:embed sql/clear_mark.sql
	clearMark string
)

// RebuildKey folds one row again, from the beginning, up to where its view is, and
// writes it whatever was there. Whoever folds into the view waits meanwhile. A stream
// that was parked goes on, unless the view has a hook; then it stays parked until it is
// released. Hooks are not called. Safe to repeat.
func (v View[S]) RebuildKey(ctx context.Context, s *eventstore.Store, key string) error {
	b := &rebuild[S]{view: v, store: s, tables: v.tables(s), decoder: decoderOf(v, s)}
	err := pgx.BeginTxFunc(ctx, s.Pool(), readCommitted, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, s.Qualify(lockView), v.Name); err != nil {
			return err
		}
		r, held, err := b.foldKey(ctx, tx, key)
		if err != nil {
			return err
		}
		return b.replaceRow(ctx, tx, r, held)
	})
	if err != nil {
		return fmt.Errorf("rebuild %q of view %s: %w", key, v.Name, v.culprit(err))
	}
	return nil
}

// foldKey folds a row up to the checkpoint of its view, or, where the view has passed
// over events of the stream, as far as it had come.
func (b *rebuild[S]) foldKey(ctx context.Context, tx pgx.Tx, key string) (r *state[S], held bool, err error) {
	goal, err := b.goal(ctx, tx)
	if err != nil {
		return nil, false, err
	}
	if !b.view.Key.byStream() {
		r, err = b.view.logAt(ctx, b.store, b.decoder, key, eventstore.AtPosition(goal[eventstore.WholeLog]))
		return r, false, err
	}
	to, held, err := b.spanOf(ctx, tx, weir.StreamID(key), goal)
	if err != nil || to.Last == 0 || to.UpTo == 0 {
		return &state[S]{key: key}, held, err
	}
	f, err := b.view.from(ctx, b.source(tx), nil, to, false)
	if err != nil {
		return nil, held, err
	}
	return f.state, held, nil
}

func (b *rebuild[S]) spanOf(ctx context.Context, tx pgx.Tx, stream weir.StreamID, goal map[weir.Shard]weir.Position) (to eventstore.Range, held bool, err error) {
	behind, err := b.heldBack(ctx, tx)
	if err != nil {
		return to, false, err
	}
	for _, r := range behind {
		if r.Stream == stream {
			r.UpTo = weir.Position(maxVersion)
			return r, true, nil
		}
	}
	to = eventstore.Range{Stream: stream, First: 1, Last: maxVersion, UpTo: goal[stream.Shard(b.store.Shards())]}
	row, err := b.view.load(ctx, tx, b.store, string(stream))
	if row != nil {
		to.UpTo = max(to.UpTo, row.position) // see overtake
	}
	return to, false, err
}

// replaceRow writes a row over whatever is there, or takes it away.
func (b *rebuild[S]) replaceRow(ctx context.Context, tx pgx.Tx, r *state[S], held bool) error {
	var batch pgx.Batch
	if r.changed {
		row, err := r.row()
		if err != nil {
			return err
		}
		var c rowColumns
		c.add(row.key, row.state, row.version, row.last, row.position, row.print)
		batch.Queue(b.tables.sql(replaceRows), c.arguments()...)
	} else {
		batch.Queue(b.tables.sql(deleteRow), []string{r.key})
	}
	batch.Queue(b.tables.sql(clearKey), r.key)
	if !held {
		batch.Queue(b.store.Qualify(clearMark), b.view.Name, r.key)
	}
	return tx.SendBatch(ctx, &batch).Close()
}
