package projection_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/eventstore"
	"github.com/weir-es/weir/internal/testkit"
	"github.com/weir-es/weir/projection"
)

func count(t *testing.T, s *eventstore.Store, sql string) (n int) {
	t.Helper()
	must(t, s.Pool().QueryRow(testkit.Context(t), s.Qualify(sql)).Scan(&n))
	return n
}

// TestARebuildIsNotMisledByRowsOfOthers, in the table that serves and in the one that is
// built, and what keeps it from writing a row is an error of its own. (marten#4969: a
// second rebuild met rows that nobody had wiped, and said nothing)
func TestARebuildIsNotMisledByRowsOfOthers(t *testing.T) {
	t.Parallel()
	s := store(t)
	w, _ := start(t, s, lists)
	ingest(t, s, shuffled(10, 10)...)
	settle(t, s, w)
	before := dump(t, s, "lists")
	for range 2 {
		for _, table := range []string{"view_lists", "next_lists"} {
			execute(t, s, "insert into weir."+table+" (key, state, version) values ('a-none', '{}', 1), ('b-none', '{}', 1)")
		}
		execute(t, s, `insert into weir.next_lists (key, state, version) values ('a-1', '{"Seen": [7]}', 1000)`)
		done, err := lists.Rebuild(testkit.Context(t), s, projection.Rebuild{})
		if err != nil || done.Removed != 2 || done.Added+done.Changed != 0 {
			t.Errorf("the rebuild came to %+v: %v", done, err)
		}
		same(t, before, dump(t, s, "lists"))
	}
	execute(t, s, "alter table weir.next_lists add constraint not_this_one check (key <> 'a-5')")
	if _, err := lists.Rebuild(testkit.Context(t), s, projection.Rebuild{}); err == nil {
		t.Error("a rebuild that could not write a row says nothing")
	}
	same(t, before, dump(t, s, "lists"))
	execute(t, s, "alter table weir.next_lists drop constraint not_this_one")
	_, err := lists.Rebuild(testkit.Context(t), s, projection.Rebuild{})
	must(t, err)
	same(t, before, dump(t, s, "lists"))
}

// meter counts statements and the rows of the largest.
type meter struct{ statements, largest atomic.Int64 }

func (m *meter) note(rows int64) {
	m.statements.Add(1)
	if rows > m.largest.Load() {
		m.largest.Store(rows) // near enough: it only grows
	}
}

func (m *meter) reset() {
	m.statements.Store(0)
	m.largest.Store(0)
}

func (m *meter) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}
func (m *meter) TraceQueryEnd(_ context.Context, _ *pgx.Conn, data pgx.TraceQueryEndData) {
	m.note(data.CommandTag.RowsAffected())
}
func (m *meter) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}
func (m *meter) TraceBatchQuery(_ context.Context, _ *pgx.Conn, data pgx.TraceBatchQueryData) {
	m.note(data.CommandTag.RowsAffected())
}
func (m *meter) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

// TestP9_RareEventsAreReachedPageByPage: a view that wants two events of a long log comes
// to them by statements of which none looks at more than a page, live and in a rebuild.
// (marten#3705: one that looked for the next match ran into its timeout)
func TestP9_RareEventsAreReachedPageByPage(t *testing.T) {
	t.Parallel()
	url, m := testkit.Database(t), &meter{}
	pc, err := pgxpool.ParseConfig(url)
	must(t, err)
	pc.ConnConfig.Tracer, pc.MaxConns = m, 16
	pool, err := pgxpool.NewWithConfig(testkit.Context(t), pc)
	must(t, err)
	t.Cleanup(pool.Close)
	registry, err := weir.NewRegistry(types)
	must(t, err)
	writer, s := testkit.Store(t, eventstore.Config{URL: url, Types: registry}), testkit.Store(t, eventstore.Config{Pool: pool, Types: registry, Poll: time.Minute})
	const foreign = 40_000
	ingest(t, writer, add("a-1", 1))
	for n := 0; n < foreign; n += 4000 {
		var facts []weir.Message
		for i := range 4000 {
			facts = append(facts, fact(weir.Stream("b", fmt.Sprint((n+i)/10)), "test.other", i))
		}
		ingest(t, writer, facts...)
	}
	ingest(t, writer, add("a-1", 2))
	limited := func(what string, statements int64) {
		t.Helper()
		if n := m.largest.Load(); n > 8100 || n == 0 {
			t.Errorf("%s: a statement had %d rows", what, n)
		}
		if n := m.statements.Load(); n > statements {
			t.Errorf("%s: %d statements", what, n)
		}
		m.reset()
	}
	rare := projection.View[list]{Name: "lists", Types: []string{"test.added"}}
	byKey := projection.View[sum]{Name: "sums", Types: []string{"test.added"}, Key: sums.Key}
	m.reset()
	for _, p := range []projection.Projection{rare, byKey} {
		w, _ := start(t, s, p)
		settle(t, s, w)
		limited(p.ProjectionName(), 100)
	}
	_, err = rare.Rebuild(testkit.Context(t), s, projection.Rebuild{})
	must(t, err)
	limited("rebuild by stream", 150)
	_, err = byKey.Rebuild(testkit.Context(t), s, projection.Rebuild{})
	must(t, err)
	limited("rebuild along the log", 150)
	want(t, s, "a-1", 1, 2)
}

// emitter answers every event of a category with one of its own, whose content is not
// the same when it is tried again. Its key is derived from what it answers.
func emitter(s *eventstore.Store, own bool) projection.Handler {
	var tries atomic.Int64
	return projection.Handler{Name: "emitter", Handle: func(ctx context.Context, tx pgx.Tx, e weir.Event, _ any) error {
		if e.Stream.Category() != "a" {
			return nil
		}
		m := add(weir.Stream("echo", "1"), int(tries.Add(1)))
		m.ID = weir.Derive(e.ID, 0, "echo")
		if own {
			_, err := s.AppendTx(ctx, tx, eventstore.Append{Stream: m.Stream, Expected: weir.AnyVersion, Messages: []weir.Message{m}})
			return err
		}
		_, err := s.Append(ctx, m.Stream, weir.AnyVersion, m)
		return err
	}}
}

// TestP4_EmittedOnce: a handler that appends dies at any statement, and another process
// goes on; what it emits is stored once, whether in its own transaction or beside it,
// and an emission that would look different now is no fault. (KurrentDB#899, #1400,
// #1768, #3400: a restarted emitter stumbled over its own events)
func TestP4_EmittedOnce(t *testing.T) {
	t.Parallel()
	for _, own := range []bool{true, false} {
		t.Run(fmt.Sprint("in the transaction ", own), func(t *testing.T) {
			t.Parallel()
			url := testkit.Database(t)
			registry, err := weir.NewRegistry(types)
			must(t, err)
			s := testkit.Store(t, eventstore.Config{URL: url, Types: registry})
			facts, deaths := 0, 0
			for n := int64(1); ; n++ {
				died := emitUntil(t, s, url, own, n, func() {
					ingest(t, s, add("a-1", facts), add("a-2", facts))
					facts += 2
				})
				w, stop := start(t, s, emitter(s, own))
				settle(t, s, w)
				must(t, stop())
				answers := 0
				for _, err := range s.ReadStream(testkit.Context(t), "echo-1", eventstore.Read{}) {
					must(t, err)
					answers++
				}
				if n := answers; n != facts {
					t.Fatalf("%d events were answered %d times", facts, n)
				}
				if parked, err := s.Parked(testkit.Context(t), "emitter"); err != nil || len(parked) > 0 {
					t.Fatalf("parked: %v, %v", parked, err)
				}
				if !died {
					break
				}
				deaths++
			}
			if deaths < 5 {
				t.Errorf("%d deaths only", deaths)
			}
		})
	}
}

// emitUntil runs an emitter that dies at statement n after act, or settles before.
func emitUntil(t *testing.T, s *eventstore.Store, url string, own bool, n int64, act func()) (died bool) {
	t.Helper()
	m, g := mortal(t, url)
	w, _ := claimed(t, m, emitter(m, own))
	return dieAt(t, s, w, g, n, act)
}

// TestARestartedRebuildBeginsAnew from whatever state a view was left in, and the rows
// are those of the log afterwards and stay so. (KurrentDB#4547, #5005: a reset failed, or
// did something else, depending on when it came. dbos-transact-golang#174: what another
// build of the program had begun was left lying)
func TestARestartedRebuildBeginsAnew(t *testing.T) {
	t.Parallel()
	interrupted := func(v projection.View[list], phase string) func(*testing.T, *eventstore.Store) {
		return func(t *testing.T, s *eventstore.Store) {
			ctx, interrupt := context.WithCancel(testkit.Context(t))
			_, err := v.Rebuild(ctx, s, projection.Rebuild{Progress: func(p projection.Progressed) {
				if p.Phase == phase {
					interrupt()
				}
			}})
			if !errors.Is(err, context.Canceled) {
				t.Errorf("interrupted in phase %s it ended with %v", phase, err)
			}
		}
	}
	older := lists
	older.Schema = 7
	for name, leave := range map[string]func(t *testing.T, s *eventstore.Store){
		"at rest":    func(*testing.T, *eventstore.Store) {},
		"in streams": interrupted(lists, "streams"),
		"in check":   interrupted(lists, "check"),
		"of another": interrupted(older, "streams"),
		"abandoned": func(t *testing.T, s *eventstore.Store) {
			execute(t, s, "insert into weir.next_lists (key, version) values ('a-1', 5)")
		},
		"parked": func(t *testing.T, s *eventstore.Store) {
			execute(t, s, "insert into weir.parked (consumer, stream_id, version, shard, reason, error, attempts) select 'lists', id, 3, shard, 'poison', '', 5 from weir.streams where name = 'a-1'")
		},
		"forgotten": func(t *testing.T, s *eventstore.Store) { execute(t, s, "delete from weir.view_lists") },
	} {
		for _, running := range []bool{true, false} {
			for _, restart := range []bool{true, false} {
				t.Run(fmt.Sprint(name, ", running ", running, ", restart ", restart), func(t *testing.T) {
					t.Parallel()
					s := store(t)
					w, stop := start(t, s, lists)
					ingest(t, s, shuffled(20, 20)...)
					settle(t, s, w)
					before := dump(t, s, "lists")
					if !running {
						must(t, stop())
					}
					leave(t, s)
					_, err := lists.Rebuild(testkit.Context(t), s, projection.Rebuild{Restart: restart})
					must(t, err)
					same(t, before, dump(t, s, "lists"))
					if !running {
						w, _ = start(t, s, lists)
					}
					ingest(t, s, add("a-1", 100), add("new-1", 1))
					settle(t, s, w)
					if found := verified(t, s, lists); found.Wrong != 0 || found.Rows != 21 {
						t.Errorf("verify found %+v", found)
					}
				})
			}
		}
	}
}

// TestP4_InterruptedTwoHundredTimes at any moment, a worker forgets nothing: no checkpoint
// vanishes or goes back, and each event is handled once. (akka-projection#906: places
// were gone after some Ctrl+C)
func TestP4_InterruptedTwoHundredTimes(t *testing.T) {
	t.Parallel()
	s := store(t)
	dice := rand.New(rand.NewPCG(9, 6))
	places := map[weir.Shard]weir.Position{}
	facts := 0
	first, _ := claimed(t, s, journal("often", false))
	for range 200 {
		w := &projection.Worker{Store: s, Projection: journal("often", false), Fence: first.Fence}
		must(t, w.Projection.Prepare(testkit.Context(t), s))
		ctx, interrupt := context.WithCancel(testkit.Context(t))
		done := make(chan error, 1)
		go func() { done <- w.Run(ctx) }()
		for range 1 + dice.IntN(3) {
			ingest(t, s, add(weir.Stream("a", fmt.Sprint(facts%40)), facts))
			facts++
		}
		enough := w.Progress().At + weir.Position(dice.IntN(4))
		testkit.Within(time.Duration(dice.IntN(10))*time.Millisecond, func() bool { return w.Progress().At >= enough })
		interrupt()
		must(t, <-done)
		now, err := s.Checkpoints(testkit.Context(t), "often")
		must(t, err)
		for shard, was := range places {
			if now[shard] < was {
				t.Fatalf("the checkpoint of shard %d went from %d to %d", shard, was, now[shard])
			}
		}
		places = now
	}
	execute(t, s, "update weir.leases set owner = null")
	w, _ := start(t, s, journal("often", false))
	settle(t, s, w)
	if rows, events := noted(t, s, "often"); rows != facts || events != facts {
		t.Errorf("%d events were handled %d times, %d different ones", facts, rows, events)
	}
}

// TestUpcastsKeepTheirPlace: what one stored event says in several words has one place in
// its stream, one id and one position, live, in a rewind and in a rebuild.
// (Jarvis.Framework#62: a rebuild with an upcaster lost its position)
func TestUpcastsKeepTheirPlace(t *testing.T) {
	t.Parallel()
	type pair struct{ First, Second int }
	registry, err := weir.NewRegistry(weir.Types{
		"test.added": weir.EventOf[added](),
		"test.pair":  weir.UpcastMany(func(p pair) []any { return []any{added{N: p.First}, added{N: p.Second}} }),
		"test.noise": weir.Dropped(),
	})
	must(t, err)
	s := testkit.Store(t, eventstore.Config{Types: registry})
	handler := journal("pairs", false)
	handler.Types = nil
	facts := []weir.Message{add("a-1", 1), fact("a-1", "test.pair", pair{2, 3}), fact("a-1", "test.noise", 0), fact("a-1", "test.pair", pair{4, 5}), add("a-1", 6)}
	view := projection.View[list]{Name: "lists"}
	w, _ := start(t, s, view)
	h, _ := start(t, s, handler)
	for _, n := range []int{0, 2, 4, 3, 1} { // two of them late
		ingest(t, s, facts[n])
		settle(t, s, w)
		settle(t, s, h)
	}
	check := func() {
		t.Helper()
		want(t, s, "a-1", 1, 2, 3, 4, 5, 6)
		if r := row(t, s, view, "a-1"); r.Version != 5 || r.Position != 5 || r.EventID != facts[4].ID {
			t.Errorf("the row is at version %d, position %d, id %s", r.Version, r.Position, r.EventID)
		}
	}
	check()
	before := dump(t, s, "lists")
	done, err := view.Rebuild(testkit.Context(t), s, projection.Rebuild{})
	if err != nil || done.Events != 5 || done.Changed+done.Added+done.Removed != 0 {
		t.Errorf("the rebuild came to %+v: %v", done, err)
	}
	same(t, before, dump(t, s, "lists"))
	must(t, view.RebuildKey(testkit.Context(t), s, "a-1"))
	check()
	if rows, events := noted(t, s, "pairs"); rows != 6 || events != 4 {
		t.Errorf("the handler was given %d values of %d events, want 6 of 4", rows, events)
	}
}

// TestP8_AStopIsNobodysFault: a handler whose context ends with its worker is neither
// counted nor parked, however often, and is given the event again. (openmeter PR#3141:
// handlers that were cancelled by a shutdown went to the queue of poison. go-mink: a
// cancelled handler was compensated for)
func TestP8_AStopIsNobodysFault(t *testing.T) {
	t.Parallel()
	s := store(t)
	inside := make(chan bool, 1)
	h := journal("stopped", false)
	write := h.Handle
	var goOn atomic.Bool
	h.Handle = func(ctx context.Context, tx pgx.Tx, e weir.Event, value any) error {
		if !goOn.Load() {
			inside <- true
			<-ctx.Done()
			return fmt.Errorf("call something: %w", ctx.Err())
		}
		return write(ctx, tx, e, value)
	}
	must(t, h.Prepare(testkit.Context(t), s))
	ingest(t, s, add("a-1", 1))
	for range 8 { // more often than an event may fail
		w, stop := start(t, s, h)
		<-inside
		must(t, stop())
		if p := w.Progress(); p.Parked != 0 || p.Applied != 0 {
			t.Errorf("a stop was counted: %+v", p)
		}
	}
	if parked, err := s.Parked(testkit.Context(t), "stopped"); err != nil || len(parked) != 0 {
		t.Errorf("parked: %+v, %v", parked, err)
	}
	goOn.Store(true)
	w, _ := start(t, s, h)
	settle(t, s, w)
	if rows, events := noted(t, s, "stopped"); rows != 1 || events != 1 {
		t.Errorf("one event was handled %d times", rows)
	}
}

// TestP4_UnreadableCheckpointsAreNotZero: a worker that cannot read where it was waits
// until it can, and begins there. (go-mink: one error in reading a checkpoint began all
// over again)
func TestP4_UnreadableCheckpointsAreNotZero(t *testing.T) {
	t.Parallel()
	s := store(t)
	w, stop := start(t, s, journal("place", false))
	ingest(t, s, add("a-1", 1), add("b-1", 2))
	settle(t, s, w)
	must(t, stop())
	execute(t, s, "alter table weir.checkpoints rename to checkpoints_away")
	w, _ = start(t, s, journal("place", false))
	testkit.Await(t, 5*time.Second, "it says what is wrong", func() bool { return w.Progress().Err != nil })
	if p := w.Progress(); p.At != 0 || p.Batches != 0 {
		t.Errorf("it went on: %+v", p)
	}
	execute(t, s, "alter table weir.checkpoints_away rename to checkpoints")
	ingest(t, s, add("a-1", 3))
	settle(t, s, w)
	if rows, events := noted(t, s, "place"); rows != 3 || events != 3 {
		t.Errorf("3 events were handled %d times, %d different ones", rows, events)
	}
}

// TestP8_DeadlocksAreTriedAgain, more often than an event may fail: whoever the database
// picks to end one is not at fault. (zitadel PR#3671: projections in each other's way)
func TestP8_DeadlocksAreTriedAgain(t *testing.T) {
	t.Parallel()
	s := store(t)
	ctx := testkit.Context(t)
	execute(t, s, "create table weir.two (id int primary key)")
	execute(t, s, "insert into weir.two values (1), (2)")
	inside, goOn := make(chan bool), make(chan bool)
	lock := s.Qualify("select from weir.two where id = $1 for update")
	h := journal("deadlocked", false)
	write := h.Handle
	h.Handle = func(ctx context.Context, tx pgx.Tx, e weir.Event, value any) error {
		if _, err := tx.Exec(ctx, "set local deadlock_timeout = '20ms'"); err != nil { // so that it is the one
			return err
		}
		if _, err := tx.Exec(ctx, lock, 1); err != nil {
			return err
		}
		select {
		case inside <- true:
			<-goOn
		case <-goOn: // closed: no more
		}
		if _, err := tx.Exec(ctx, lock, 2); err != nil {
			return err
		}
		return write(ctx, tx, e, value)
	}
	w, _ := start(t, s, h)
	ingest(t, s, add("a-1", 1))
	const deadlocks = 7
	for n := range deadlocks {
		<-inside
		tx, err := s.Pool().Begin(ctx)
		must(t, err)
		_, err = tx.Exec(ctx, lock, 2)
		must(t, err)
		crossed := make(chan error, 1)
		go func() {
			_, err := tx.Exec(ctx, lock, 1)
			crossed <- err
		}()
		testkit.Await(t, 5*time.Second, "the other waits", func() bool {
			return count(t, s, "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'") > 0
		})
		if n == deadlocks-1 {
			close(goOn)
		} else {
			goOn <- true
		}
		must(t, <-crossed)
		must(t, tx.Rollback(ctx))
	}
	settle(t, s, w)
	if rows, _ := noted(t, s, "deadlocked"); rows != 1 {
		t.Errorf("one event was handled %d times", rows)
	}
	if parked, err := s.Parked(ctx, "deadlocked"); err != nil || len(parked) != 0 {
		t.Errorf("parked: %+v, %v", parked, err)
	}
}

// TestP9_ABusyHandlerTakesOneConnection and its reads none beside it, so that appends go
// on while there are more connections than handlers. (zitadel PR#7094: projections took
// all connections and requests starved)
func TestP9_ABusyHandlerTakesOneConnection(t *testing.T) {
	t.Parallel()
	s := store(t)
	most := int(s.Pool().Config().MaxConns)
	gate := make(chan bool)
	var inside atomic.Int64
	var workers []*projection.Worker
	for n := range most - 3 {
		w, _ := start(t, s, projection.Handler{Name: fmt.Sprint("busy", n), WholeLog: true, Handle: func(context.Context, pgx.Tx, weir.Event, any) error {
			inside.Add(1)
			<-gate
			return nil
		}})
		workers = append(workers, w)
	}
	open := sync.OnceFunc(func() { close(gate) })
	t.Cleanup(open) // before the workers are stopped
	ingest(t, s, add("a-1", 1))
	testkit.Await(t, 5*time.Second, "all handlers are busy", func() bool { return inside.Load() == int64(most-3) })
	began := time.Now()
	for n := range 10 {
		ingest(t, s, add("a-1", 2+n))
	}
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("ten appends took %s beside %d busy handlers", took, most-3)
	}
	open()
	for _, w := range workers {
		settle(t, s, w)
	}
}
