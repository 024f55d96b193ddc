package projection

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/eventstore"
	"github.com/weir-es/weir/internal/crash"
)

// Rebuild says how to rebuild a view. The zero value is a good way.
type Rebuild struct {
	// Restart throws away what an interrupted rebuild has done. Default go on
	// with it, unless it was of another Schema.
	Restart bool
	// Progress is told how far it is, after every transaction. May be nil.
	Progress func(Progressed)
}

// Progressed says how far a rebuild is.
type Progressed struct {
	// Phase is "streams", "log", "check" or "swap".
	Phase string
	// Done of Total events are read. Total grows while events are appended.
	Done, Total int64
}

// Rebuilt says what became of a rebuild.
type Rebuilt struct {
	Edition int64 // the number of the edition that serves now
	Events  int64 // read from the log
	Rows    int64
	// Added, Removed and Changed rows are those in which the new edition differs
	// from the one that it replaced.
	Added, Removed, Changed int64
	Took                    time.Duration
}

// ErrRebuildCancelled is what a rebuild ends with after CancelRebuild.
var ErrRebuildCancelled = errors.New("the rebuild was cancelled")

// RebuildRunningError refuses a second edition of a view at the same time.
type RebuildRunningError struct {
	View  string
	Since time.Time
	Alive time.Time // when it was last heard of
}

func (e *RebuildRunningError) Error() string {
	return fmt.Sprintf("view %s is being rebuilt since %s: wait for it, or cancel it", e.View, e.Since.Format(time.RFC3339))
}

// RebuildEventError says at which event a rebuild stopped. When the fold can take it,
// rebuild again: what was done before is kept, unless Schema was raised.
type RebuildEventError struct {
	View    string
	Stream  weir.StreamID
	Version weir.Version
	Type    string
	Err     error
}

func (e *RebuildEventError) Error() string {
	return fmt.Sprintf("view %s cannot take %s version %d of type %q: %v", e.View, e.Stream, e.Version, e.Type, e.Err)
}

func (e *RebuildEventError) Unwrap() error { return e.Err }

// CheckError says that a new edition is not what the log says. It is not swapped in.
type CheckError struct {
	View   string
	Reason string
}

func (e *CheckError) Error() string {
	return fmt.Sprintf("the new edition of view %s is wrong and was not swapped in: %s", e.View, e.Reason)
}

var (
	//go:embed sql/begin_rebuild.sql
	beginRebuild string
	//go:embed sql/running_rebuild.sql
	runningRebuild string
	//go:embed sql/keep_rebuild.sql
	keepRebuild string
	//go:embed sql/note_rebuild.sql
	noteRebuild string
	//go:embed sql/leave_rebuild.sql
	leaveRebuild string
	//go:embed sql/end_rebuild.sql
	endRebuild string
	//go:embed sql/clear_next.sql
	clearNext string
)

// rebuild is an edition under way.
type rebuild[S weir.Evolver[S]] struct {
	view   View[S]
	store  *eventstore.Store
	config Rebuild
	worker weir.ID
	tables tables
	decoder
	began time.Time

	phase  string
	number int64                        // streams up to this number are done
	upto   map[weir.Shard]weir.Position // what the edition has of each shard
	done   int64
	total  int64
}

// Rebuild folds the whole log again into a new edition beside the one that serves,
// checks it, and puts it in its place in one transaction that leaves the table, its
// indexes and rights alone and changes the rows that differ. Live events go on
// meanwhile: the edition follows the checkpoint of the view, so that hooks are called
// for every event once, whoever folds it first. Streams that are parked are rebuilt
// too, and are not parked any more; where the view has a hook, which has not been called
// for what they passed over, they stay parked until they are released. (A view that is
// not keyed by stream is rebuilt through all of them, without its hook.)
//
// When ctx ends it can be called again, from any process, and goes on where it was;
// an edition that another process is at work on is refused with a
// *RebuildRunningError. It stops with a *RebuildEventError at an event that cannot be
// folded. Nothing that is read changes before the end.
func (v View[S]) Rebuild(ctx context.Context, s *eventstore.Store, r Rebuild) (Rebuilt, error) {
	b := &rebuild[S]{view: v, store: s, config: r, worker: weir.NewID(), tables: v.next(s),
		decoder: decoderOf(v, s), began: time.Now()}
	if b.config.Progress == nil {
		b.config.Progress = func(Progressed) {}
	}
	done, err := b.run(ctx)
	if err != nil {
		return done, fmt.Errorf("rebuild view %s: %w", v.Name, v.culprit(err))
	}
	return done, nil
}

// source reads with what the rebuild has.
func (b *rebuild[S]) source(q eventstore.Querier) source {
	return source{decoder: b.decoder, store: b.store, q: q}
}

// culprit names the event that an error is about.
func (v View[S]) culprit(err error) error {
	var event *eventError
	if !errors.As(err, &event) {
		return err
	}
	return &RebuildEventError{v.Name, event.event.Stream, event.event.Version, event.event.Type, event.err}
}

// CancelRebuild stops the rebuild of a view, wherever it runs, and throws away what
// it has done. Without one it does nothing.
func (v View[S]) CancelRebuild(ctx context.Context, s *eventstore.Store) error {
	err := pgx.BeginTxFunc(ctx, s.Pool(), readCommitted, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, s.Qualify(endRebuild), v.Name)
		if err == nil {
			_, err = tx.Exec(ctx, v.next(s).sql(clearNext))
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("cancel the rebuild of view %s: %w", v.Name, err)
	}
	return nil
}

var readCommitted = pgx.TxOptions{IsoLevel: pgx.ReadCommitted}

func (b *rebuild[S]) run(ctx context.Context) (done Rebuilt, err error) {
	if err := b.view.check(); err != nil {
		return done, err
	}
	if b.config.Restart {
		if err := b.view.CancelRebuild(ctx, b.store); err != nil {
			return done, err
		}
	}
	if err := b.begin(ctx); err != nil {
		return done, err
	}
	alive, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var keeper sync.WaitGroup
	keeper.Go(func() { b.keep(alive, cancel) })
	done, err = b.build(alive)
	cancel(nil)
	keeper.Wait()
	switch cause := context.Cause(alive); {
	case err == nil: // its row is gone because it is done
	case errors.Is(cause, ErrRebuildCancelled):
		return done, cause
	default:
		b.leave(ctx)
	}
	return done, err
}

func (b *rebuild[S]) build(ctx context.Context) (done Rebuilt, err error) {
	crash.At(crash.RebuildBegun)
	if b.phase == "streams" {
		if err := b.foldStreams(ctx); err != nil {
			return done, err
		}
	}
	if err := b.follow(ctx); err != nil {
		return done, err
	}
	crash.At(crash.RebuildFollow)
	if err := b.check(ctx); err != nil {
		return done, err
	}
	crash.At(crash.RebuildChecked)
	return b.swap(ctx)
}

// begin takes the rebuild of the view over, or begins one. What an interrupted one of
// another schema has done is worth nothing.
func (b *rebuild[S]) begin(ctx context.Context) error {
	return pgx.BeginTxFunc(ctx, b.store.Pool(), readCommitted, func(tx pgx.Tx) error {
		fresh, err := b.take(ctx, tx)
		if err != nil || !fresh {
			return err
		}
		_, err = tx.Exec(ctx, b.tables.sql(clearNext))
		return err
	})
}

// take makes the row of the rebuild ours.
func (b *rebuild[S]) take(ctx context.Context, tx pgx.Tx) (fresh bool, err error) {
	if err := b.start(ctx, tx); err != nil {
		return false, err
	}
	var upto []byte
	row := tx.QueryRow(ctx, b.store.Qualify(beginRebuild), b.view.Name, b.view.Schema, [16]byte(b.worker), b.phase, encodePlaces(b.upto), b.total)
	err = row.Scan(&fresh, &b.phase, &b.number, &upto, &b.done, &b.total)
	if errors.Is(err, pgx.ErrNoRows) {
		running := &RebuildRunningError{View: b.view.Name}
		if err := tx.QueryRow(ctx, b.store.Qualify(runningRebuild), b.view.Name).Scan(&running.Since, &running.Alive); err != nil {
			return false, err
		}
		return false, running
	}
	if err != nil {
		return false, err
	}
	b.upto = map[weir.Shard]weir.Position{}
	return fresh, json.Unmarshal(upto, &b.upto)
}

func encodePlaces(at map[weir.Shard]weir.Position) string {
	text, err := json.Marshal(at)
	if err != nil {
		panic(err) // numbers only
	}
	return string(text)
}

// start is where a new one begins. A view that is keyed by stream is folded stream
// by stream, up to where its checkpoint is now; any other along the log.
func (b *rebuild[S]) start(ctx context.Context, tx pgx.Tx) (err error) {
	counts, err := b.store.Counts(ctx)
	if err != nil {
		return err
	}
	b.total, b.phase, b.upto = counts.Events, "log", map[weir.Shard]weir.Position{}
	if !b.view.Key.byStream() {
		return nil
	}
	b.phase = "streams"
	b.upto, err = b.goal(ctx, tx)
	return err
}

// goal is how far the edition has to come: to the checkpoints of the view, or, if it
// is inline, to all that is committed.
func (b *rebuild[S]) goal(ctx context.Context, q eventstore.Querier) (map[weir.Shard]weir.Position, error) {
	at, err := b.store.CheckpointsIn(ctx, q, b.view.Name)
	if err != nil {
		return nil, err
	}
	if !b.view.Key.byStream() {
		return map[weir.Shard]weir.Position{eventstore.WholeLog: at[eventstore.WholeLog]}, nil
	}
	goal := map[weir.Shard]weir.Position{}
	for shard := range weir.Shard(b.store.Shards()) {
		goal[shard] = at[shard]
	}
	return goal, nil
}

// keepEvery is how often a rebuild says that it lives; it is given up for dead, and
// may be taken over, after six times that (see begin_rebuild.sql).
const keepEvery = 5 * time.Second

// keep says that the rebuild lives, and notices when somebody cancelled it.
func (b *rebuild[S]) keep(ctx context.Context, cancel context.CancelCauseFunc) {
	for sleep(ctx, keepEvery) {
		tag, err := b.store.Pool().Exec(ctx, b.store.Qualify(keepRebuild), b.view.Name, [16]byte(b.worker))
		if err == nil && tag.RowsAffected() == 0 {
			cancel(ErrRebuildCancelled)
		}
	}
}

// leave lets another go on at once.
func (b *rebuild[S]) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if _, err := b.store.Pool().Exec(ctx, b.store.Qualify(leaveRebuild), b.view.Name, [16]byte(b.worker)); err != nil {
		b.store.Logger().Debug("a rebuild was left", "view", b.view.Name, "error", err)
	}
}

// queueNote notes how far the rebuild is, in the transaction of its rows, and refuses
// them when somebody cancelled it or took it over.
func (b *rebuild[S]) queueNote(batch *pgx.Batch, phase string, number int64, upto map[weir.Shard]weir.Position, done int64) {
	batch.Queue(b.store.Qualify(noteRebuild), b.view.Name, [16]byte(b.worker), phase, number, encodePlaces(upto), done).Exec(mineStill)
}

func (b *rebuild[S]) tell(phase string, done int64) {
	b.phase, b.done = phase, done
	b.total = max(b.total, done)
	b.config.Progress(Progressed{phase, b.done, b.total})
}

// follow applies the log from where the edition is to where the view is, until little
// is left: the swap does the rest.
func (b *rebuild[S]) follow(ctx context.Context) error {
	for {
		goal, err := b.goal(ctx, b.store.Pool())
		if err != nil {
			return err
		}
		before := b.done
		err = b.applyTo(ctx, goal, func(items []item, to weir.Position) error {
			return pgx.BeginTxFunc(ctx, b.store.Pool(), readCommitted, func(tx pgx.Tx) error { return b.applyPage(ctx, tx, items, to, goal) })
		})
		if err != nil || b.done-before < catchUpLimit {
			return err
		}
	}
}

// applyTo reads the log up to goal, page by page.
func (b *rebuild[S]) applyTo(ctx context.Context, goal map[weir.Shard]weir.Position, apply func(items []item, to weir.Position) error) error {
	at, end := behindmost(b.upto, goal), slices.Max(slices.Collect(maps.Values(goal)))
	for at < end {
		events, err := b.store.Page(ctx, at, end, nil, catchUpLimit)
		if err != nil {
			return err
		}
		to := end
		if len(events) == catchUpLimit {
			to = events[len(events)-1].Position
		}
		events = slices.DeleteFunc(events, func(e weir.Event) bool {
			shard := b.shardOf(e)
			return e.Position <= b.upto[shard] || e.Position > goal[shard]
		})
		if err := apply(b.all(events), to); err != nil {
			return err
		}
		at = to
	}
	return nil
}

// behindmost is the lowest position that some shard has and should not stay at.
func behindmost(upto, goal map[weir.Shard]weir.Position) (low weir.Position) {
	first := true
	for shard, to := range goal {
		if at := upto[shard]; at < to && (first || at < low) {
			low, first = at, false
		}
	}
	if first {
		return slices.Max(slices.Collect(maps.Values(goal)))
	}
	return low
}

func (b *rebuild[S]) shardOf(e weir.Event) weir.Shard {
	if !b.view.Key.byStream() {
		return eventstore.WholeLog
	}
	return e.Stream.Shard(b.store.Shards())
}

// applyPage folds items into the edition, and notes that it has everything up to to.
func (b *rebuild[S]) applyPage(ctx context.Context, tx pgx.Tx, items []item, to weir.Position, goal map[weir.Shard]weir.Position) error {
	var unused int64
	s := newStep(b.view, b.tables, &job{decoder: b.decoder, store: b.store, edition: &unused})
	s.file(items)
	var reads, writes pgx.Batch
	s.queueRows(&reads)
	if err := tx.SendBatch(ctx, &reads).Close(); err != nil {
		return err
	}
	if err := s.finish(ctx, tx, &writes); err != nil {
		return err
	}
	upto := maps.Clone(b.upto)
	for shard, end := range goal {
		upto[shard] = max(upto[shard], min(to, end))
	}
	done := b.done + int64(len(items))
	b.queueNote(&writes, "log", b.number, upto, done)
	if err := tx.SendBatch(ctx, &writes).Close(); err != nil {
		return err
	}
	b.upto = upto
	b.tell("log", done)
	return nil
}
