package eventstore

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/cenkalti/backoff/v5"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/weir-es/weir"
)

// ImportOptions say how history is stored. The zero value works.
type ImportOptions struct {
	// Batch is the most events of one transaction. Default 10,000. Narrower:
	// readers of the log and writers of the same streams wait less; wider: a
	// stream with events all over the history is touched less often.
	Batch int
	// Progress is told after each batch what was done so far, by the goroutine
	// that called Import. Default nobody is told.
	Progress func(ImportResult)
}

// importBytes closes a batch whose events are large, so that memory has a limit:
// one batch is stored while the next is read.
const importBytes = 16 << 20

func (o ImportOptions) withDefaults() ImportOptions {
	if o.Batch <= 0 {
		o.Batch = MaxBatch
	}
	if o.Progress == nil {
		o.Progress = func(ImportResult) {}
	}
	return o
}

// ImportResult says what became of a history, in events.
type ImportResult struct {
	// Read were taken from the source. Those that are neither stored nor
	// duplicates are still to come.
	Read int64
	// Stored are new.
	Stored int64
	// Duplicates were stored before, or came twice.
	Duplicates int64
	// Last is the highest position of what was stored; 0 when nothing was.
	Last weir.Position
}

// ImportError names the event that ended an import. Nothing of its batch is
// stored; what came before its batch is.
type ImportError struct {
	// Ordinal is the place in the source, from 1.
	Ordinal int64
	// ID is zero when the source failed before it gave one.
	ID  weir.ID
	Err error
}

func (e *ImportError) Error() string {
	return fmt.Sprintf("import event %d of the source: %v", e.Ordinal, e.Err)
}

func (e *ImportError) Unwrap() error { return e.Err }

// Import stores history: messages of any streams, in any order, with ids of their
// own, which say when they happened (see weir.Import). They are facts: each is
// stored once, whatever the version of its stream, and keeps its id as its order;
// in each batch versions and positions follow the order of ids.
//
// Batches are stored one after the other, each whole or not at all, with COPY.
// Safe to repeat, also after it was interrupted: what is stored is passed over. It
// is safe beside other writers of the same streams. What source yields is kept
// until its batch is stored, so its bytes must not change. source runs on the
// goroutine of the caller.
//
// Errors: *ImportError with the errors of weir.Message.Validate, with what source
// yields, and with what the database refuses. A database that is away is tried for
// Config.RetryTimeout. The result holds what was done also when there is an error.
func (s *Store) Import(ctx context.Context, source iter.Seq2[weir.Message, error], options ImportOptions) (ImportResult, error) {
	return s.ImportEvents(ctx, func(yield func(weir.Event, error) bool) {
		for m, err := range source {
			if !yield(weir.Event{Message: m}, err) {
				return
			}
		}
	}, options)
}

// ImportEvents is Import for what a store has numbered before. Order ids are kept,
// and in each batch versions and positions follow the positions that the events
// had, so that a log read oldest first comes out the same. Events without
// positions are sorted by their order ids. The versions are new, so that streams
// which were imported in part, or had events already, have no gaps.
func (s *Store) ImportEvents(ctx context.Context, source iter.Seq2[weir.Event, error], options ImportOptions) (ImportResult, error) {
	i := &importing{s: s, options: options.withDefaults(), careful: true, streams: map[weir.StreamID]int64{}}
	err := i.run(ctx, source)
	return i.result, err
}

// importing is an import while it goes on: one batch is stored while the next is
// read.
type importing struct {
	s       *Store
	options ImportOptions
	result  ImportResult
	sent    chan outcome // of the batch on its way, nil when there is none

	// Owned by the batch on its way.

	// careful looks for stored ids beforehand, as long as some are found.
	// Otherwise the unique index finds them, and refuses the batch.
	careful bool
	streams map[weir.StreamID]int64 // their numbers, as far as remembered
}

// outcome is what became of a batch.
type outcome struct {
	stored, duplicates int64
	last               weir.Position
	err                error
}

// run reads the source to its end. Whatever ends it, nothing goes on behind the
// caller's back; and what is wrong with an earlier batch comes first.
func (i *importing) run(ctx context.Context, source iter.Seq2[weir.Event, error]) error {
	later := i.read(ctx, source)
	return cmp.Or(i.settle(), later)
}

func (i *importing) read(ctx context.Context, source iter.Seq2[weir.Event, error]) error {
	b := &importBatch{}
	for e, err := range source {
		if ctx.Err() != nil {
			return fmt.Errorf("import events: %w", ctx.Err())
		}
		i.result.Read++
		if err == nil {
			err = i.check(&e)
		}
		if err != nil {
			return &ImportError{i.result.Read, e.ID, err}
		}
		if b.add(e, i.result.Read); b.isFull(i.options.Batch) {
			if err := i.send(ctx, b); err != nil {
				return err
			}
			b = &importBatch{events: make([]imported, 0, len(b.events))}
		}
	}
	return i.send(ctx, b)
}

func (i *importing) check(e *weir.Event) error {
	if e.Stream == weir.Singleton {
		e.Stream = e.Stream.Resolve(e.ID)
	}
	return e.Validate(i.s.config.MaxDataBytes)
}

// send stores a batch after the one before it, and does not wait for it.
func (i *importing) send(ctx context.Context, b *importBatch) error {
	if err := i.settle(); err != nil || len(b.events) == 0 {
		return err
	}
	i.sent = make(chan outcome, 1)
	go func(sent chan<- outcome) { sent <- i.store(ctx, b) }(i.sent)
	return nil
}

// settle waits for the batch on its way.
func (i *importing) settle() error {
	if i.sent == nil {
		return nil
	}
	o := <-i.sent
	i.sent = nil
	if o.err != nil {
		return o.err
	}
	i.result.Stored += o.stored
	i.result.Duplicates += o.duplicates
	i.result.Last = max(i.result.Last, o.last)
	i.options.Progress(i.result)
	return nil
}

// store stores a batch, again where a second try may help. After an answer that
// was lost the ids are looked for.
func (i *importing) store(ctx context.Context, b *importBatch) outcome {
	attempt := func() (outcome, error) {
		o, err := i.try(ctx, b)
		if isDuplicateEvent(err) && !i.careful {
			i.careful = true
			o, err = i.try(ctx, b)
		}
		if err != nil {
			i.careful = true
			clear(i.streams)
		}
		if err != nil && !isTransient(err) && !isDuplicateEvent(err) {
			err = backoff.Permanent(err)
		}
		return o, err
	}
	o, err := backoff.Retry(ctx, attempt, backoff.WithBackOff(newBackOff()),
		backoff.WithMaxElapsedTime(i.s.config.RetryTimeout))
	if err != nil {
		o.err = b.explain(err)
		return o
	}
	i.careful = i.careful && o.duplicates > 0
	i.remember(b.fresh)
	i.s.horizon.poke()
	return o
}

func (i *importing) try(ctx context.Context, b *importBatch) (o outcome, err error) {
	var known map[weir.ID]bool
	if i.careful {
		if known, err = i.s.known(ctx, b.events); err != nil {
			return o, err
		}
	}
	b.choose(known)
	o.stored, o.duplicates = int64(len(b.fresh)), int64(len(b.events)-len(b.fresh))
	if len(b.fresh) == 0 {
		return o, nil
	}
	err = i.s.inTx(ctx, func(tx pgx.Tx) (err error) {
		o.last, err = i.copyIn(ctx, tx, b.fresh)
		return err
	})
	return o, err
}

// known are the ids that are stored already.
func (s *Store) known(ctx context.Context, events []imported) (map[weir.ID]bool, error) {
	ids := make([][16]byte, len(events))
	for i := range events {
		ids[i] = events[i].ID
	}
	rows, err := s.pool.Query(ctx, s.sql.ImportKnown, ids)
	if err != nil {
		return nil, err
	}
	known := make(map[weir.ID]bool, len(events))
	var id [16]byte
	_, err = pgx.ForEachRow(rows, []any{&id}, func() error {
		known[id] = true
		return nil
	})
	return known, err
}

// copyIn stores sorted events in tx and returns the last position. The heads move
// before the transaction registers, since readers of the log wait from there on.
func (i *importing) copyIn(ctx context.Context, tx pgx.Tx, events []*imported) (last weir.Position, err error) {
	streams := streamsOf(events)
	if err := i.identify(ctx, tx, streams); err != nil {
		return 0, err
	}
	if err := i.advance(ctx, tx, streams); err != nil {
		return 0, err
	}
	if _, err := tx.Exec(ctx, i.s.sql.Register, i.s.lock, i.s.table); err != nil {
		return 0, err
	}
	source := &copySource{events: events}
	if _, err := tx.CopyFrom(ctx, pgx.Identifier{i.s.config.Schema, "events"}, copyColumns, source); err != nil {
		return 0, err
	}
	err = tx.QueryRow(ctx, i.s.sql.ImportLast).Scan(&last)
	return last, err
}

// longer is a stream that a batch makes longer.
type longer struct {
	name    weir.StreamID
	shard   int16
	id      int64
	added   int64
	last    weir.ID      // highest order id of the batch
	version weir.Version // of the last event numbered so far
}

// streamsOf are the streams of the events, sorted by name, as every writer locks
// them.
func streamsOf(events []*imported) []*longer {
	byName := make(map[weir.StreamID]*longer, len(events))
	for _, e := range events {
		l := byName[e.Stream]
		if l == nil {
			l = &longer{name: e.Stream}
			byName[e.Stream] = l
		}
		l.added++
		if e.order.Compare(l.last) > 0 {
			l.last = e.order
		}
		e.into = l
	}
	return slices.SortedFunc(maps.Values(byName), func(a, b *longer) int { return cmp.Compare(a.name, b.name) })
}

// identify gives the streams their numbers, and creates those that are missing.
func (i *importing) identify(ctx context.Context, tx pgx.Tx, streams []*longer) error {
	var names, categories []string
	var shards []int16
	var missing []*longer
	for _, l := range streams {
		l.shard = int16(l.name.Shard(i.s.shards))
		if l.id = i.streams[l.name]; l.id == 0 {
			missing = append(missing, l)
			names, categories, shards = append(names, string(l.name)), append(categories, l.name.Category()), append(shards, l.shard)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	var b pgx.Batch
	b.Queue(i.s.sql.EnsureStreams, names, categories, shards)
	b.Queue(i.s.sql.ImportStreams, names).Query(func(rows pgx.Rows) error {
		for at := 0; rows.Next(); at++ {
			if err := rows.Scan(&missing[at].id); err != nil {
				return err
			}
		}
		return rows.Err()
	})
	return tx.SendBatch(ctx, &b).Close()
}

// remember keeps the numbers of streams that are committed, up to a limit.
func (i *importing) remember(events []*imported) {
	if len(i.streams) > importStreams {
		clear(i.streams)
	}
	for _, e := range events {
		i.streams[e.Stream] = e.into.id
	}
}

// importStreams is how many streams an import remembers, of some 100 bytes each.
const importStreams = 200_000

// advance locks the streams, moves their heads and learns where they were.
func (i *importing) advance(ctx context.Context, tx pgx.Tx, streams []*longer) error {
	ids, added, lasts := make([]int64, len(streams)), make([]int64, len(streams)), make([][16]byte, len(streams))
	for at, l := range streams {
		ids[at], added[at], lasts[at] = l.id, l.added, l.last
	}
	rows, err := tx.Query(ctx, i.s.sql.ImportAdvance, ids, added, lasts)
	if err != nil {
		return err
	}
	var name string
	var version weir.Version
	at := 0
	_, err = pgx.ForEachRow(rows, []any{&name, &version}, func() error {
		l := streams[at]
		if weir.StreamID(name) != l.name {
			return fmt.Errorf("stream %d is not %s any more, but %q: somebody deletes streams", l.id, l.name, name)
		}
		l.version = version - weir.Version(l.added)
		at++
		return nil
	})
	return err
}

// copyColumns are the columns that an import writes. Positions are drawn by their
// default, row by row, in the order of the rows.
var copyColumns = []string{"stream_id", "version", "event_id", "order_id", "shard", "type", "data", "bytes", "content_type", "metadata"}

// copySource gives the columns of one event after the other.
type copySource struct {
	events []*imported
	row    [10]any
}

func (c *copySource) Next() bool { return len(c.events) > 0 }

func (c *copySource) Err() error { return nil }

func (c *copySource) Values() ([]any, error) {
	e := c.events[0]
	c.events = c.events[1:]
	e.into.version++
	c.row = [10]any{e.into.id, int64(e.into.version), [16]byte(e.ID), nil, e.into.shard, e.Type, nil, nil,
		notEmpty(e.Metadata.ContentType), encodeMetadata(e.Metadata)}
	if e.OrderID != (weir.ID{}) {
		c.row[3] = [16]byte(e.OrderID)
	}
	if e.Metadata.IsJSON() {
		c.row[6] = e.Data
	} else {
		c.row[7] = append([]byte{}, e.Data...) // never null
	}
	return c.row[:], nil
}

// imported is an event on its way in.
type imported struct {
	weir.Event
	order   weir.ID
	ordinal int64 // in the source, from 1
	into    *longer
}

// importBatch is what one transaction stores.
type importBatch struct {
	events []imported
	size   int // bytes

	fresh []*imported // those to store, in the order of storing
}

func (b *importBatch) add(e weir.Event, ordinal int64) {
	b.events = append(b.events, imported{Event: e, order: e.Order(), ordinal: ordinal})
	b.size += sizeOf(e)
}

// sizeOf is about what an event takes in memory, in bytes.
func sizeOf(e weir.Event) int {
	m := e.Metadata
	size := 500 + len(e.Data) + len(e.Stream) + len(m.Correlation) + len(m.Causation) + len(m.Producer) + len(m.TraceParent) + len(m.TraceState)
	for k, v := range m.Extra {
		size += len(k) + len(v) + 50
	}
	return size
}

func (b *importBatch) isFull(limit int) bool {
	return len(b.events) >= limit || b.size >= importBytes
}

// choose puts those that are not known, if anybody looked, in order: that of their positions where all
// have one, of their order ids otherwise. Both agree with the versions in a stream.
func (b *importBatch) choose(known map[weir.ID]bool) {
	b.fresh = make([]*imported, 0, len(b.events))
	numbered := true
	for i := range b.events {
		e := &b.events[i]
		if known[e.ID] {
			continue
		}
		if known != nil {
			known[e.ID] = true
		}
		numbered = numbered && e.Position > 0
		b.fresh = append(b.fresh, e)
	}
	slices.SortStableFunc(b.fresh, func(x, y *imported) int {
		if numbered {
			return cmp.Compare(x.Position, y.Position)
		}
		return bytes.Compare(x.order[:], y.order[:])
	})
}

// explain names the event that the database refused.
func (b *importBatch) explain(err error) error {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || !IsRefused(err) {
		return fmt.Errorf("import %d events: %w", len(b.events), err)
	}
	line := 0
	if _, scan := fmt.Sscanf(pg.Where, "COPY events, line %d", &line); scan != nil || line < 1 || line > len(b.fresh) {
		return fmt.Errorf("import %d events: %w", len(b.events), err)
	}
	e := b.fresh[line-1]
	return &ImportError{e.ordinal, e.ID, err}
}
