package projection

import (
	"context"
	"runtime"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"golang.org/x/sync/errgroup"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/eventstore"
	"github.com/weir-es/weir/internal/crash"
)

// How much of the log is folded at a time.
const (
	chunkStreams = 1000
	chunkEvents  = 8000
)

// chunk is some streams that are folded together.
type chunk struct {
	ranges []eventstore.Range
	last   int64 // number of the last stream

	rows []*rowOf
	read int64
	err  error
	done chan struct{}
}

// rowOf is a row as it is copied into the edition.
type rowOf struct {
	key      string
	state    *string
	version  weir.Version
	last     weir.ID
	position weir.Position
	print    []byte
}

// foldStreams folds stream after stream, on all cores, and copies the rows into the
// edition in the order of the streams, each chunk in a transaction of its own.
func (b *rebuild[S]) foldStreams(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	chunks := make(chan *chunk, runtime.GOMAXPROCS(0))
	g.Go(func() error {
		defer close(chunks)
		return b.cut(ctx, func(c *chunk) error {
			g.Go(func() error { b.fold(ctx, c); return nil })
			select {
			case chunks <- c:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	})
	g.Go(func() error {
		for c := range chunks {
			<-c.done
			if err := b.copyChunk(ctx, c); err != nil {
				return err
			}
		}
		return nil
	})
	if err := g.Wait(); err != nil {
		return err
	}
	b.phase = "log"
	return nil
}

// cut makes chunks of the streams that are not done yet.
func (b *rebuild[S]) cut(ctx context.Context, send func(*chunk) error) error {
	for after := b.number; ; {
		heads, err := b.store.Heads(ctx, b.store.Pool(), after, chunkStreams)
		if err != nil || len(heads) == 0 {
			return err
		}
		for len(heads) > 0 {
			c, n := b.chunk(heads)
			after, heads = c.last, heads[n:]
			if err := send(c); err != nil {
				return err
			}
		}
	}
}

// chunk takes the first of heads, so many that they have about chunkEvents events.
func (b *rebuild[S]) chunk(heads []eventstore.Head) (*chunk, int) {
	c := &chunk{done: make(chan struct{})}
	n, events := 0, weir.Version(0)
	for n < len(heads) && (n == 0 || events+heads[n].Version <= chunkEvents) {
		h := heads[n]
		if upto := b.upto[h.Shard]; upto > 0 {
			c.ranges = append(c.ranges, eventstore.Range{Stream: h.Stream, First: 1, Last: h.Version, UpTo: upto})
		}
		events, c.last = events+h.Version, h.Number
		n++
	}
	return c, n
}

// fold folds the streams of a chunk.
func (b *rebuild[S]) fold(ctx context.Context, c *chunk) {
	defer close(c.done)
	c.err = b.view.foldRanges(ctx, b.source(b.store.Pool()), c.ranges, func(r *state[S]) error {
		row, err := r.row()
		c.rows = append(c.rows, row)
		return err
	}, func(weir.Event) { c.read++ })
}

func (r *state[S]) row() (*rowOf, error) {
	text, err := r.encode()
	return &rowOf{r.key, text, r.version, r.last, r.position, r.column()}, err
}

// foldRanges folds streams, one after the other, and gives the row of each that has
// one. read is told of every event.
func (v View[S]) foldRanges(ctx context.Context, src source, ranges []eventstore.Range, give func(*state[S]) error, read func(weir.Event)) error {
	r := &state[S]{}
	finish := func() error {
		if !r.changed {
			return nil
		}
		return give(r)
	}
	for i, err := range src.replay(ctx, v.Order, ranges...) {
		if err != nil {
			return err
		}
		if r.key != string(i.Stream) {
			if err := finish(); err != nil {
				return err
			}
			r = &state[S]{key: string(i.Stream)}
		}
		read(i.Event)
		if !i.handled {
			continue
		}
		if err := r.apply(i, i.Version); err != nil {
			return err
		}
	}
	return finish()
}

// copyChunk writes the rows of a chunk, and notes that its streams are done.
func (b *rebuild[S]) copyChunk(ctx context.Context, c *chunk) error {
	if c.err != nil {
		return c.err
	}
	err := pgx.BeginTxFunc(ctx, b.store.Pool(), readCommitted, func(tx pgx.Tx) error {
		if err := b.copyRows(ctx, tx, c.rows); err != nil {
			return err
		}
		crash.At(crash.RebuildCopied)
		var note pgx.Batch
		b.queueNote(&note, "streams", c.last, b.upto, b.done+c.read)
		return tx.SendBatch(ctx, &note).Close()
	})
	if err == nil {
		b.number = c.last
		b.tell("streams", b.done+c.read)
	}
	return err
}

func (b *rebuild[S]) copyRows(ctx context.Context, tx pgx.Tx, rows []*rowOf) error {
	if len(rows) == 0 {
		return nil
	}
	columns := []string{"key", "state", "version", "event_id", "position", "fingerprint"}
	_, err := tx.CopyFrom(ctx, pgx.Identifier{b.store.Schema(), b.tables.rows}, columns, pgx.CopyFromSlice(len(rows), func(i int) ([]any, error) {
		r := rows[i]
		return []any{r.key, r.state, int64(r.version), [16]byte(r.last), int64(r.position), r.print}, nil
	}))
	return err
}

// mineStill refuses a transaction when the rebuild is somebody else's by now, or
// nobody's.
func mineStill(tag pgconn.CommandTag) error {
	if tag.RowsAffected() == 0 {
		return ErrRebuildCancelled
	}
	return nil
}
