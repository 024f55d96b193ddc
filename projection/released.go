package projection

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/eventstore"
)

// turns are the events of a stream that a consumer passed over while the stream was
// parked: from the one that failed to the last that is its turn. What comes after
// that, the feed brings.
func (j *job) turns(ctx context.Context, q eventstore.Querier, stream weir.StreamID, from weir.Position) ([]item, error) {
	var items []item
	all := eventstore.Range{Stream: stream, First: 1, Last: maxVersion, UpTo: j.upto}
	for event, err := range j.store.Replay(ctx, q, true, all) {
		if err != nil {
			return nil, err
		}
		if i := j.item(event); event.Position >= from && i.handled {
			items = append(items, i)
			j.count.Applied++
		}
	}
	return items, nil
}

// keyLanding catches a view that is keyed by a function up with a released stream.
type keyLanding[S weir.Evolver[S]] struct {
	view   View[S]
	stream weir.StreamID
	from   weir.Position
}

func (l *keyLanding[S]) step(j *job) step {
	return &keyLandingStep[S]{newStep(l.view, l.view.tables(j.store), j), l}
}

type keyLandingStep[S weir.Evolver[S]] struct {
	*viewStep[S]
	landing *keyLanding[S]
}

func (s *keyLandingStep[S]) queueReads(b *pgx.Batch) { s.queueEdition(b) }

// finish folds the events into their rows, which have seen later ones of other
// streams: a row's position says nothing about them, the note that the stream is
// behind does, and goes with this transaction.
func (s *keyLandingStep[S]) finish(ctx context.Context, tx pgx.Tx, writes *pgx.Batch) error {
	items, err := s.job.turns(ctx, tx, s.landing.stream, s.landing.from)
	if err != nil {
		return err
	}
	s.file(items)
	var reads pgx.Batch
	s.queueRows(&reads)
	if err := tx.SendBatch(ctx, &reads).Close(); err != nil {
		return err
	}
	for _, key := range s.keys {
		r := s.row(key)
		for _, i := range s.groups[key] {
			if err := r.apply(i, r.version+1); err != nil {
				return err
			}
		}
	}
	return s.queueWrites(writes)
}

// row is the row of a key, new if there was none.
func (s *viewStep[S]) row(key string) *state[S] {
	if s.rows[key] == nil {
		s.rows[key] = &state[S]{key: key}
	}
	return s.rows[key]
}

// replay implements Projection.
func (h Handler) replay(_ context.Context, j *job, stream weir.StreamID) (landing, error) {
	return &handlerLanding{h, stream, j.from}, nil
}

// handlerLanding catches a handler up with a released stream.
type handlerLanding struct {
	handler Handler
	stream  weir.StreamID
	from    weir.Position
}

func (l *handlerLanding) step(j *job) step {
	return &handlerLandingStep{&handlerStep{handler: l.handler}, l, j}
}

type handlerLandingStep struct {
	*handlerStep
	landing *handlerLanding
	job     *job
}

func (s *handlerLandingStep) finish(ctx context.Context, tx pgx.Tx, writes *pgx.Batch) (err error) {
	if s.items, err = s.job.turns(ctx, tx, s.landing.stream, s.landing.from); err != nil {
		return err
	}
	return s.handlerStep.finish(ctx, tx, writes)
}
