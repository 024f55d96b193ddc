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
// that was parked goes on. Hooks are not called. Safe to repeat.
func (v View[S]) RebuildKey(ctx context.Context, s *eventstore.Store, key string) error {
	types, unknown := v.wants()
	b := &rebuild[S]{view: v, store: s, tables: v.tables(s), decoder: decoder{s.Types(), types, unknown}}
	err := pgx.BeginTxFunc(ctx, s.Pool(), readCommitted, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, s.Qualify(lockView), v.Name); err != nil {
			return err
		}
		r, err := b.foldKey(ctx, tx, key)
		if err != nil {
			return err
		}
		return b.replaceRow(ctx, tx, r)
	})
	if err != nil {
		return fmt.Errorf("rebuild %q of view %s: %w", key, v.Name, v.culprit(err))
	}
	return nil
}

// foldKey folds a row up to the checkpoint of its view.
func (b *rebuild[S]) foldKey(ctx context.Context, tx pgx.Tx, key string) (*state[S], error) {
	goal, err := b.goal(ctx, tx)
	if err != nil {
		return nil, err
	}
	if !b.view.Key.byStream() {
		return b.view.logAt(ctx, b.store, b.decoder, key, eventstore.AtPosition(goal[eventstore.WholeLog]))
	}
	stream := weir.StreamID(key)
	upto := goal[stream.Shard(b.store.Shards())]
	row, err := b.view.load(ctx, tx, b.store, key)
	if err != nil {
		return nil, err
	}
	if row != nil {
		upto = max(upto, row.position) // see overtake
	}
	if upto == 0 {
		return &state[S]{key: key}, nil
	}
	f, err := b.view.from(ctx, tx, b.decoder, b.store, nil, eventstore.Range{Stream: stream, Last: maxVersion, UpTo: upto}, false)
	if err != nil {
		return nil, err
	}
	return f.state, nil
}

// replaceRow writes a row over whatever is there, or takes it away.
func (b *rebuild[S]) replaceRow(ctx context.Context, tx pgx.Tx, r *state[S]) error {
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
		batch.Queue(b.tables.sql(deleteRow), r.key)
	}
	batch.Queue(b.tables.sql(clearKey), r.key)
	batch.Queue(b.store.Qualify(clearMark), b.view.Name, r.key)
	return tx.SendBatch(ctx, &batch).Close()
}
