package eventstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/internal/crash"
)

// sender sends statements that belong to one transaction.
type sender interface {
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

// writer stores a group of requests in one transaction, in two round trips: lock
// the streams and see where they are, with careful also which ids are stored; then,
// after the plan, register in flight, insert and advance.
type writer struct {
	s        *Store
	requests []*request
	careful  bool

	plan     plan
	recorded time.Time
}

// run does it with q. The statements of begin go before the first, those of end
// after the last: they open and commit a transaction without further round
// trips, or are empty where the caller has one.
func (w *writer) run(ctx context.Context, q sender, begin, end []string) error {
	if err := w.lock(ctx, q, begin); err != nil {
		return err
	}
	crash.At(crash.AppendHeld)
	for _, r := range w.requests {
		r.err = w.plan.add(r)
	}
	return w.write(ctx, q, end)
}

// errDeleted says that somebody deleted streams which existed before.
var errDeleted = errors.New("somebody deletes streams")

// lock creates missing streams, locks all in the order of their names, and reads their
// heads, with careful also the events that are stored already.
func (w *writer) lock(ctx context.Context, q sender, begin []string) error {
	streams := w.streams()
	names, categories, shards := w.columns(streams)
	w.plan = newPlan(len(streams), w.requests)

	var b pgx.Batch
	for _, sql := range begin {
		b.Queue(sql)
	}
	if !w.s.existing.all(streams) {
		b.Queue(w.s.sql.EnsureStreams, names, categories, shards)
	}
	b.Queue(w.s.sql.LockStreams, names).Query(func(rows pgx.Rows) error {
		for i := 0; rows.Next(); i++ {
			h := &head{shard: weir.Shard(shards[i])}
			var last *[16]byte
			if err := rows.Scan(&h.id, &h.version, &last, &w.recorded); err != nil {
				return err
			}
			if last != nil {
				h.last = *last
			}
			w.plan.heads[streams[i]] = h
		}
		return rows.Err()
	})
	if w.careful {
		w.queueLookUp(&b)
	}
	if err := q.SendBatch(ctx, &b).Close(); err != nil {
		return err
	}
	if len(w.plan.heads) != len(names) {
		w.s.existing.forget()
		return fmt.Errorf("locked %d of %d streams: %w", len(w.plan.heads), len(names), errDeleted)
	}
	return nil
}

// streams are the distinct streams of the group, sorted by name: every writer locks in
// this order.
func (w *writer) streams() (streams []weir.StreamID) {
	for _, r := range w.requests {
		for _, a := range r.appends {
			streams = append(streams, a.Stream)
		}
	}
	slices.Sort(streams)
	return slices.Compact(streams)
}

func (w *writer) columns(streams []weir.StreamID) (names, categories []string, shards []int16) {
	for _, stream := range streams {
		names = append(names, string(stream))
		categories = append(categories, stream.Category())
		shards = append(shards, int16(stream.Shard(w.s.shards)))
	}
	return names, categories, shards
}

// queueLookUp looks for stored ids once the streams are locked: a statement sees what
// was committed before it began, not before the one that waited.
func (w *writer) queueLookUp(b *pgx.Batch) {
	var ids [][16]byte
	for _, r := range w.requests {
		for _, id := range r.ids {
			ids = append(ids, id)
		}
	}
	b.Queue(w.s.sql.FindEvents, ids).Query(func(rows pgx.Rows) error {
		for event, err := range ScanEvents(rows) {
			if err != nil {
				return err
			}
			w.plan.known[event.ID] = &event
		}
		return nil
	})
}

func (w *writer) write(ctx context.Context, q sender, end []string) error {
	var b pgx.Batch
	if len(w.plan.rows) > 0 {
		w.queueRows(&b)
	}
	for _, sql := range end {
		b.Queue(sql)
	}
	if b.Len() == 0 {
		return nil
	}
	return q.SendBatch(ctx, &b).Close()
}

func (w *writer) queueRows(b *pgx.Batch) {
	b.Queue(w.s.sql.Register, w.s.lock, w.s.table)
	b.Queue(w.s.sql.InsertEvents, insertArguments(w.plan.rows)...).Query(w.scanPositions)
	b.Queue(w.s.sql.AdvanceStreams, advanceArguments(w.plan.heads)...)
}

func (w *writer) scanPositions(rows pgx.Rows) error {
	i, position := 0, int64(0)
	target := []any{&position}
	for ; rows.Next(); i++ {
		if err := rows.Scan(target...); err != nil {
			return err
		}
		e := w.plan.rows[i].event
		e.Position, e.Recorded = weir.Position(position), w.recorded.UTC()
	}
	if rows.Err() == nil && i != len(w.plan.rows) {
		return errors.New("the database stored fewer events than it was given")
	}
	return rows.Err()
}

// insertArguments are the columns of the rows. A column of nothing but nulls is left
// out: the statement sees nulls.
func insertArguments(rows []row) []any {
	n := len(rows)
	streams, versions := make([]int64, n), make([]int64, n)
	ids, shards, types := make(uuids, n), make([]int16, n), make([]string, n)
	var orders uuids
	var data, contents, metadata texts
	var raw [][]byte
	var encoded []byte // metadata, often the same from row to row
	for i, r := range rows {
		e := r.event
		streams[i], versions[i], ids[i] = r.head.id, int64(e.Version), uuid(e.ID)
		shards[i], types[i] = int16(r.head.shard), e.Type
		if e.OrderID != (weir.ID{}) {
			setColumn(&orders, n, i, uuid(e.OrderID))
		}
		if e.Metadata.IsJSON() {
			setColumn(&data, n, i, e.Data)
		} else {
			setColumn(&raw, n, i, append([]byte{}, e.Data...)) // never null
		}
		if content := notEmpty(e.Metadata.ContentType); content != nil {
			setColumn(&contents, n, i, []byte(*content))
		}
		if i == 0 || !isSame(e.Metadata, rows[i-1].event.Metadata) {
			encoded = encodeMetadata(e.Metadata)
		}
		if encoded != nil {
			setColumn(&metadata, n, i, encoded)
		}
	}
	return []any{streams, versions, ids, orders, shards, types, data, raw, contents, metadata}
}

// isSame reports that the column metadata is the same for both, unless Extra has
// anything: then it does not know.
func isSame(a, b weir.Metadata) bool {
	return a.Correlation == b.Correlation && a.Causation == b.Causation && a.Producer == b.Producer &&
		a.TraceParent == b.TraceParent && a.TraceState == b.TraceState && len(a.Extra)+len(b.Extra) == 0
}

// setColumn sets one value of a column that has n, and makes it first if it must.
func setColumn[C ~[]T, T any](column *C, n, i int, value T) {
	if *column == nil {
		*column = make(C, n)
	}
	(*column)[i] = value
}

func notEmpty(text string) *string {
	if text == "" || text == weir.ContentTypeJSON {
		return nil
	}
	return &text
}

func advanceArguments(heads map[weir.StreamID]*head) []any {
	var ids, versions []int64
	var lasts [][16]byte
	for _, h := range heads {
		if h.moved {
			ids = append(ids, h.id)
			versions = append(versions, int64(h.version))
			lasts = append(lasts, h.last)
		}
	}
	return []any{ids, versions, lasts}
}
