package projection

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-es/weir"
)

// longestRewind is how many events a rewind may replay within a batch. A longer one
// goes on beside the other streams of the view, which it would hold up: the stream
// is noted in the transaction that found the late event, its events are passed over
// like those of a parked one, and once its state is folded again, the row is
// written in a transaction that reads what has come meanwhile.
const longestRewind = 2000

// landing is a stream that is to be brought up to date and written.
type landing interface {
	step(j *job) step
}

// besides are the long rewinds of a worker.
type besides struct {
	streams map[weir.StreamID]weir.Position // under way, and the first event of each that is not applied
	slots   chan struct{}                   // one for each that replays
	running sync.WaitGroup
	turn    int // grows when everything begins anew

	mu     sync.Mutex
	landed []landed
	wake   func() // calls Run back, which waits for events
}

// landed is one that has replayed, or cannot.
type landed struct {
	stream  weir.StreamID
	turn    int
	landing landing
	err     error
}

func newBesides(slots int) *besides {
	return &besides{streams: map[weir.StreamID]weir.Position{}, slots: make(chan struct{}, cmp.Or(max(slots, 0), 3))}
}

// first is the first position that is not applied yet, if there is one.
func (b *besides) first() (first weir.Position, some bool) {
	for _, from := range b.streams {
		if !some || from < first {
			first, some = from, true
		}
	}
	return first, some
}

func (b *besides) land(l landed) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.landed = append(b.landed, l)
	if b.wake != nil {
		b.wake()
	}
}

// take are those that have landed.
func (b *besides) take() []landed {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := b.landed
	b.landed = nil
	return all
}

// callBack has wake called as soon as something has landed.
func (b *besides) callBack(wake func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.wake = wake; wake != nil && len(b.landed) > 0 {
		wake()
	}
}

// beside replays a stream beside the others. It is noted already.
func (w *Worker) beside(ctx context.Context, d deferred) {
	b := w.besides
	b.streams[d.stream] = d.from
	j := w.job()
	j.edition, j.from = new(int64), d.from
	turn := b.turn
	b.running.Go(func() {
		select {
		case b.slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		defer func() { <-b.slots }()
		l, err := w.replay(ctx, j, d.stream)
		if ctx.Err() == nil {
			b.land(landed{d.stream, turn, l, err})
		}
	})
}

// replay tries until it succeeds, or until an event fails by itself.
func (w *Worker) replay(ctx context.Context, j *job, stream weir.StreamID) (landing, error) {
	wait := newBackOff()
	for {
		l, err := w.Projection.replay(ctx, j, stream)
		if err == nil || w.isPoison(ctx, err) || isFatal(err) {
			return l, err
		}
		w.Store.Logger().Warn("a rewind waits", "projection", w.Projection.ProjectionName(), "stream", stream, "error", err)
		if !sleep(ctx, wait.NextBackOff()) {
			return nil, ctx.Err()
		}
	}
}

// landAll writes what has landed.
func (w *Worker) landAll(ctx context.Context) error {
	for _, l := range w.besides.take() {
		if err := w.land(ctx, l); err != nil {
			return err
		}
	}
	return nil
}

func (w *Worker) land(ctx context.Context, l landed) error {
	if l.turn != w.besides.turn {
		return nil // a rebuild came in between
	}
	err := l.err
	if err == nil {
		err = w.retry(ctx, func(ctx context.Context) error { return w.landOnce(ctx, l) })
	}
	if w.isPoison(ctx, err) {
		err = w.parkBeside(ctx, l.stream, err)
	}
	if err != nil {
		return err
	}
	delete(w.besides.streams, l.stream)
	w.report(nil)
	return nil
}

func (w *Worker) landOnce(ctx context.Context, l landed) error {
	j := w.job()
	j.longest, j.upto = 0, max(w.at, w.marks[w.shardsOf(l.stream)[0]])
	return w.carryOut(ctx, j, w.shardsOf(l.stream), w.at, anyway, func(j *job) step {
		return landStep{l.landing.step(j), w, l.stream}
	})
}

func (w *Worker) shardsOf(stream weir.StreamID) []weir.Shard {
	return []weir.Shard{w.shardOf(weir.Event{Message: weir.Message{Stream: stream}})}
}

// parkBeside stops at an event that failed in a rewind.
func (w *Worker) parkBeside(ctx context.Context, stream weir.StreamID, err error) error {
	var culprit *eventError
	if !errors.As(err, &culprit) {
		return err
	}
	w.parked[stream] = true
	return w.retry(ctx, func(ctx context.Context) error {
		return w.carryOut(ctx, w.job(), w.shardsOf(stream), w.at, anyway, func(j *job) step {
			j.count.Parked++
			return landStep{parkStep{w, poisoned(culprit.event, err)}, w, stream}
		})
	})
}

// landStep is a step after which a stream is not beside the others any more.
type landStep struct {
	step
	worker *Worker
	stream weir.StreamID
}

func (s landStep) finish(ctx context.Context, tx pgx.Tx, writes *pgx.Batch) error {
	writes.Queue(s.worker.Store.Qualify(endRewind), s.worker.Projection.ProjectionName(), string(s.stream))
	return s.step.finish(ctx, tx, writes)
}

var (
	//go:embed sql/count_rewinds.sql
	countRewinds string
	//go:embed sql/begin_rewinds.sql
	beginRewinds string
	//go:embed sql/end_rewind.sql
	endRewind string
	//go:embed sql/rewinding.sql
	rewindingSQL string
)

// queueBehind notes the streams that a batch left to go on beside the others.
func (w *Worker) queueBehind(b *pgx.Batch, j *job) {
	if len(j.behind) == 0 {
		return
	}
	var names []string
	var from []int64
	for _, d := range j.behind {
		names, from = append(names, string(d.stream)), append(from, int64(d.from))
	}
	b.Queue(w.Store.Qualify(beginRewinds), w.Projection.ProjectionName(), names, from)
}

// notice looks once a second for streams that were parked and are released.
func (w *Worker) notice(ctx context.Context) error {
	if len(w.parked) == 0 || time.Since(w.noticed) < noticeEvery {
		return nil
	}
	w.noticed = time.Now()
	return w.resumeRewinds(ctx)
}

const noticeEvery = time.Second

// forget has everything begin anew: what is on its way may have been folded onto rows
// that are not there any more.
func (b *besides) forget() {
	clear(b.streams)
	b.turn++
}

// resumeRewinds goes on with those that were noted, by this owner or another.
func (w *Worker) resumeRewinds(ctx context.Context) error {
	noted, err := w.noted(ctx)
	if err != nil {
		return err
	}
	mine := w.shards()
	for _, d := range noted {
		_, underWay := w.besides.streams[d.stream]
		if !underWay && slices.Contains(mine, w.shardsOf(d.stream)[0]) {
			delete(w.parked, d.stream)
			w.beside(ctx, d)
		}
	}
	return nil
}

func (w *Worker) noted(ctx context.Context) ([]deferred, error) {
	rows, err := w.Store.Pool().Query(ctx, w.Store.Qualify(rewindingSQL), w.Projection.ProjectionName())
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (d deferred, err error) {
		return d, row.Scan(&d.stream, &d.from)
	})
}
