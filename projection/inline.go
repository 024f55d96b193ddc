package projection

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/eventstore"
)

// inline folds the events of an append in its transaction, with the same steps and
// into the same row as a worker would.
type inline[S weir.Evolver[S]] struct {
	view  View[S]
	store *eventstore.Store
}

// Fold implements eventstore.Inline.
func (f inline[S]) Fold(ctx context.Context, tx pgx.Tx, events []weir.Event) error {
	s, writes, err := f.step(ctx, tx, events, false)
	if err != nil {
		return err
	}
	if s.job.shots > 0 {
		// Snapshots are worth nothing but time: without them if need be.
		err = pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error { return tx.SendBatch(ctx, writes).Close() })
		if isRefused(err) {
			if s, writes, err = f.step(ctx, tx, events, true); err == nil {
				err = tx.SendBatch(ctx, writes).Close()
			}
		}
	} else {
		err = tx.SendBatch(ctx, writes).Close()
	}
	if err != nil {
		return err
	}
	return s.after(ctx, tx)
}

// step folds the events and says what is to be written.
func (f inline[S]) step(ctx context.Context, tx pgx.Tx, events []weir.Event, plain bool) (*viewStep[S], *pgx.Batch, error) {
	var edition int64
	j := &job{decoder: decoderOf(f.view, f.store), store: f.store, edition: &edition, plain: plain}
	s := newStep(f.view, f.view.tables(f.store), j)
	s.file(j.all(events))
	var reads, writes pgx.Batch
	s.queueReads(&reads)
	if err := tx.SendBatch(ctx, &reads).Close(); err != nil {
		return nil, nil, err
	}
	if err := s.finish(ctx, tx, &writes); err != nil {
		return nil, nil, err
	}
	j.queueCounts(&writes, f.view.Name, events[0].Stream.Shard(f.store.Shards()))
	return s, &writes, nil
}
