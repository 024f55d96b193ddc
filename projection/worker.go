package projection

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/eventstore"
	"github.com/weir-es/weir/internal/crash"
	"github.com/weir-es/weir/internal/pace"
)

// Worker runs one projection over the shards that its fence holds. A batch is one
// transaction: fence, read rows, fold, write rows, move the checkpoint.
type Worker struct {
	Store      *eventstore.Store
	Projection Projection
	// Fence holds the leases; its shards are what the worker follows.
	Fence eventstore.Fence
	// Limit is the most events of one batch. Default 1000, and up to 4000 while
	// the worker is far behind.
	Limit int
	// Audit is how often the worker counts again what it has passed. Default
	// 30 s.
	Audit time.Duration
	// Rewinds is how many rows may be rewound beside the others at a time, where
	// that takes long. Default 3.
	Rewinds int

	// Owned by Run.
	cursor
	rested  time.Time // from when it takes the next batch
	noticed time.Time // when it was last looked for released streams
	parked  map[weir.StreamID]bool
	edition int64   // of the view's table; 0 is not known yet
	newest  weir.ID // the highest order id applied since resume
	audit   audit
	ahead   *ahead
	besides *besides
	longest weir.Version // events that a rewind may replay within a batch; 0 is longestRewind

	mu       sync.Mutex
	progress Progress
	changed  chan struct{}
}

// Counts are what a worker did since it began.
type Counts struct {
	Batches    int64 // transactions
	Applied    int64 // events of handled types
	Inversions int64 // events that sorted below what their row had seen
	Rewinds    int64 // rows folded again from their stream
	// FromSnapshot are the rewinds that began with a snapshot.
	FromSnapshot int64
	Replayed     int64 // events folded by rewinds
	// SnapshotsFailed are the batches that were written without their snapshots.
	SnapshotsFailed int64
	Skipped         int64 // rows that were not written, since a newer version was there
	Parked          int64 // streams stopped at a failing event
	Alarms          int64 // events that turned up behind the worker; see Worker.Audit
}

// Progress says where a worker is and what it did.
type Progress struct {
	At weir.Position
	Counts
	// Err is why it does not move, if it does not.
	Err error
}

// Plus is the sum of two counts.
func (c Counts) Plus(o Counts) Counts {
	return Counts{c.Batches + o.Batches, c.Applied + o.Applied, c.Inversions + o.Inversions, c.Rewinds + o.Rewinds,
		c.FromSnapshot + o.FromSnapshot, c.Replayed + o.Replayed, c.SnapshotsFailed + o.SnapshotsFailed, c.Skipped + o.Skipped, c.Parked + o.Parked, c.Alarms + o.Alarms}
}

// Progress is safe to call while Run runs.
func (w *Worker) Progress() Progress {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.progress
}

// Wait returns once everything at or below position is applied, or with the error
// of ctx.
func (w *Worker) Wait(ctx context.Context, position weir.Position) error {
	for {
		w.mu.Lock()
		at, changed := w.progress.At, w.signal()
		w.mu.Unlock()
		if at >= position {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// signal is closed at the next change. The lock is held.
func (w *Worker) signal() chan struct{} {
	if w.changed == nil {
		w.changed = make(chan struct{})
	}
	return w.changed
}

// report publishes where Run is.
func (w *Worker) report(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.progress.At, w.progress.Err = w.at, err
	if first, some := w.besides.first(); some {
		w.progress.At = min(w.at, first-1)
	}
	close(w.signal())
	w.changed = nil
}

// markEvery is how often the checkpoints of quiet shards are moved, so that a
// restart does not read what is known to hold nothing for them.
const markEvery = time.Second

// Run applies events until ctx ends; then it returns nil. It returns
// weir.ErrLeaseLost when another owner took over, and nothing was written then.
// Anything that time may mend is tried again.
func (w *Worker) Run(ctx context.Context) error {
	w.besides = newBesides(w.Rewinds)
	defer w.besides.running.Wait()
	running, stop := context.WithCancel(ctx)
	defer stop()
	err := w.retry(running, w.resume)
	for err == nil {
		if err = w.cycle(running); errors.Is(err, errMoved) {
			err = w.retry(running, w.resume)
		}
	}
	if ctx.Err() != nil && !errors.Is(err, weir.ErrLeaseLost) {
		w.leave(ctx)
		return nil
	}
	w.report(err)
	return fmt.Errorf("run projection %s: %w", w.Projection.ProjectionName(), err)
}

// leave notes how far quiet shards have come, for the next owner's sake.
func (w *Worker) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if err := w.mark(ctx); err != nil {
		w.Store.Logger().Debug("checkpoint at stop", "projection", w.Projection.ProjectionName(), "error", err)
	}
}

// resume reads the checkpoints and what is parked.
func (w *Worker) resume(ctx context.Context) error {
	name := w.Projection.ProjectionName()
	done, err := w.Store.Checkpoints(ctx, name)
	if err != nil {
		return err
	}
	parked, err := w.Store.Parked(ctx, name)
	if err != nil {
		return err
	}
	w.parked = map[weir.StreamID]bool{}
	for _, p := range parked {
		w.parked[p.Stream] = true
	}
	w.cursor = newCursor(w.shards(), done, time.Now())
	w.audit, w.ahead, w.edition, w.newest = audit{}, nil, 0, weir.ID{}
	w.besides.forget()
	if err := w.resumeRewinds(ctx); err != nil {
		return err
	}
	w.report(nil)
	return nil
}

// shards are those of the fence, sorted.
func (w *Worker) shards() []weir.Shard {
	var shards []weir.Shard
	for shard := range w.Fence.Epochs {
		shards = append(shards, shard)
	}
	slices.Sort(shards)
	return shards
}

// cycle waits for events, reads a page and applies it.
func (w *Worker) cycle(ctx context.Context) error {
	if err := w.landAll(ctx); err != nil {
		return err
	}
	if err := w.retry(ctx, w.notice); err != nil {
		return err
	}
	horizon, err := w.next(ctx)
	if err != nil {
		return err
	}
	if horizon == w.at {
		return w.retry(ctx, w.rest)
	}
	began := time.Now()
	p, err := w.fetch(ctx, horizon)
	if err != nil {
		return err
	}
	crash.At(crash.ApplyRead)
	if err := w.apply(ctx, w.unseen(p.items), p.to); err != nil {
		return err
	}
	w.audit.pass(passage{w.at, p.to, int64(len(p.items))})
	w.at = p.to
	w.remember(p.items)
	w.report(nil)
	if !p.full {
		w.rested = time.Now().Add(pace.Rest(len(p.items), time.Since(began)))
	}
	return w.retry(ctx, w.look)
}

// remember keeps the highest order id.
func (w *Worker) remember(items []item) {
	for _, i := range items {
		if order := i.Order(); order.Compare(w.newest) > 0 {
			w.newest = order
		}
	}
}

// next is the horizon once it is above w.at, or w.at when there is something to do
// at rest, or a rewind has landed.
func (w *Worker) next(ctx context.Context) (weir.Position, error) {
	soon, cancel := context.WithCancel(ctx)
	defer cancel()
	w.besides.callBack(cancel)
	defer w.besides.callBack(nil)
	if due, ok := w.due(); ok {
		soon, cancel = context.WithDeadline(soon, due)
		defer cancel()
	}
	pace.Sleep(soon, time.Until(w.rested), nil)
	at, err := w.Store.WaitHorizon(soon, w.at)
	if err != nil && ctx.Err() == nil && soon.Err() != nil {
		return w.at, nil
	}
	return at, err
}

// due is when to do what is done at rest, if there is anything.
func (w *Worker) due() (time.Time, bool) {
	due, ok := w.audit.due(w.auditEvery())
	if mark, some := w.markDue(); some && (!ok || mark.Before(due)) {
		due, ok = mark, true
	}
	if notice := w.noticed.Add(noticeEvery); len(w.parked) > 0 && (!ok || notice.Before(due)) {
		due, ok = notice, true
	}
	return due, ok
}

// rest moves the checkpoints of quiet shards along and looks back.
func (w *Worker) rest(ctx context.Context) error {
	if err := w.mark(ctx); err != nil {
		return err
	}
	return w.look(ctx)
}

// filter are the shards to read, nil for all.
func (w *Worker) filter() []weir.Shard {
	shards := w.shards()
	if w.Projection.FollowsWholeLog() || len(shards) == w.Store.Shards() {
		return nil
	}
	return shards
}

// unseen drops what a shard had applied before Run began.
func (w *Worker) unseen(items []item) []item {
	if w.at >= w.doneTo {
		return items
	}
	return slices.DeleteFunc(slices.Clone(items), func(i item) bool { return w.has(w.shardOf(i.Event), i.Position) })
}

func (w *Worker) shardOf(e weir.Event) weir.Shard {
	if w.Projection.FollowsWholeLog() {
		return eventstore.WholeLog
	}
	return e.Stream.Shard(w.Store.Shards())
}

func (w *Worker) job() *job {
	return &job{decoder: decoderOf(w.Projection, w.Store), store: w.Store, edition: &w.edition, newest: w.newest, longest: cmp.Or(w.longest, longestRewind)}
}

// persist applies items and moves the checkpoint to to, in one transaction.
// Without anything to apply the checkpoint moves later, with mark.
func (w *Worker) persist(ctx context.Context, items []item, to weir.Position) error {
	shards := touched(items, w.shardOf)
	if len(shards) == 0 {
		return nil
	}
	batch := slices.Clone(items)
	if !w.Projection.FollowsWholeLog() {
		ByEventID.sort(batch)
	}
	return w.carryOut(ctx, w.job(), shards, to, w.moved(len(shards)), func(j *job) step {
		j.count.Batches++
		for _, i := range items {
			if i.handled {
				j.count.Applied++
			}
		}
		return w.Projection.begin(j, slices.Clone(batch))
	})
}

// carryOut does what a step does, if need be without the snapshots of its rows, which
// are worth nothing but time.
func (w *Worker) carryOut(ctx context.Context, j *job, shards []weir.Shard, to weir.Position, check func(pgconn.CommandTag) error, begin func(*job) step) error {
	again := *j
	err := w.transact(ctx, j, shards, to, check, begin(j))
	if j.shots > 0 && isRefused(err) {
		refused := err
		j, again.plain = &again, true
		if err = w.transact(ctx, j, shards, to, check, begin(j)); err == nil {
			w.Store.Logger().Warn("snapshots of rows cannot be written", "projection", w.Projection.ProjectionName(), "error", refused)
			j.count.SnapshotsFailed++
		}
	}
	if err == nil {
		crash.At(crash.ApplyCommitted)
		w.committed(ctx, j)
	}
	return err
}

// isRefused reports that the database did not want what it was given.
func isRefused(err error) bool {
	var event *eventError
	var pg *pgconn.PgError
	return errors.As(err, &pg) && !errors.As(err, &event) && !eventstore.IsTransient(err)
}

// committed takes over what came of a job.
func (w *Worker) committed(ctx context.Context, j *job) {
	for _, d := range j.behind {
		w.beside(ctx, d)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.progress.Counts = w.progress.Counts.Plus(j.count)
}

// errMoved says that a checkpoint is further than this worker knows: an earlier
// transaction was committed, but its answer was lost.
var errMoved = errors.New("the checkpoint has moved already")

// moved checks that all checkpoints of a batch were still to be moved, so that a
// batch is never applied a second time.
func (w *Worker) moved(n int) func(pgconn.CommandTag) error {
	return func(tag pgconn.CommandTag) error {
		if tag.RowsAffected() != int64(n) {
			return errMoved
		}
		return nil
	}
}

// anyway does not mind checkpoints that are there already.
func anyway(pgconn.CommandTag) error { return nil }

// answerLimit is how long the database may take to answer, which its own limits under a
// fence keep well below: a connection on which nothing comes back any more must not
// hold a worker up.
const answerLimit = 15 * time.Second

// transact runs a step between the fence and the checkpoint.
func (w *Worker) transact(ctx context.Context, j *job, shards []weir.Shard, to weir.Position, check func(pgconn.CommandTag) error, s step) (err error) {
	defer func() {
		if err == nil {
			w.marks.move(shards, to)
		}
	}()
	conn, err := w.Store.Pool().Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	limited, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()

	var reads, writes pgx.Batch
	reads.BeginTx(pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	w.Store.QueueFence(&reads, w.Fence, shards)
	s.queueReads(&reads)
	results := conn.SendBatch(limited, &reads)
	tx := results.Tx()
	defer rollback(ctx, tx)
	if err := results.Close(); err != nil {
		return err
	}
	crash.At(crash.ApplyFenced)
	if err := s.finish(ctx, tx, &writes); err != nil {
		return err
	}
	crash.At(crash.ApplyFolded)
	w.queueAdvance(&writes, shards, to).Exec(check)
	j.queueCounts(&writes, w.Projection.ProjectionName(), shards[0])
	w.queueBehind(&writes, j)
	if !s.hooked() {
		writes.Queue("commit")
	}
	limited, cancel = context.WithTimeout(ctx, answerLimit)
	defer cancel()
	if err := tx.SendBatch(limited, &writes).Close(); err != nil || !s.hooked() {
		return err
	}
	crash.At(crash.ApplyWritten)
	if err := s.after(ctx, tx); err != nil {
		return err
	}
	limited, cancel = context.WithTimeout(ctx, answerLimit)
	defer cancel()
	return tx.Commit(limited)
}

// rollback does not depend on the context that was just cancelled. It does nothing when
// the transaction has ended.
func rollback(ctx context.Context, tx pgx.Tx) {
	if tx.Conn().PgConn().TxStatus() == 'I' {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	tx.Rollback(ctx)
}

// noStep changes nothing but the checkpoint.
type noStep struct{}

func (noStep) queueReads(*pgx.Batch)                            {}
func (noStep) finish(context.Context, pgx.Tx, *pgx.Batch) error { return nil }
func (noStep) hooked() bool                                     { return false }
func (noStep) after(context.Context, pgx.Tx) error              { return nil }

// mark moves the checkpoints of all shards to where the worker is.
func (w *Worker) mark(ctx context.Context) error {
	if w.marked == w.at {
		return nil
	}
	if err := w.transact(ctx, w.job(), w.shards(), w.at, anyway, noStep{}); err != nil {
		return err
	}
	crash.At(crash.CheckpointMoved)
	w.cursor.mark(time.Now())
	return nil
}
