package eventstore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/eventstore"
	"github.com/weir-es/weir/internal/testkit"
)

// opened is an append in a transaction that is still open.
func opened(t testing.TB, s *eventstore.Store, m ...weir.Message) (pgx.Tx, []weir.Event) {
	t.Helper()
	ctx := testkit.Context(t)
	tx, err := s.Pool().Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tx.Rollback(context.Background()) })
	events, err := s.AppendTx(ctx, tx, eventstore.Append{Stream: m[0].Stream, Expected: weir.AnyVersion, Messages: m})
	if err != nil {
		t.Fatal(err)
	}
	return tx, events
}

func end(t testing.TB, act func(context.Context) error) {
	t.Helper()
	if err := act(testkit.Context(t)); err != nil {
		t.Fatal(err)
	}
}

func appendOne(t testing.TB, s *eventstore.Store, stream weir.StreamID) weir.Event {
	t.Helper()
	events, err := s.Append(testkit.Context(t), stream, weir.AnyVersion, message(stream, 0))
	if err != nil {
		t.Fatal(err)
	}
	return events[0]
}

func positions(events []weir.Event) (all []weir.Position) {
	for _, e := range events {
		all = append(all, e.Position)
	}
	return all
}

func horizonOf(t testing.TB, s *eventstore.Store) weir.Position {
	t.Helper()
	at, _, err := s.ReadHorizon(testkit.Context(t))
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// TestP6_EarlierPositionCommitsLater: A draws first and stays open, B draws and
// commits. Nothing of B is shown until A has ended; then both, in order.
// (marten#1629, watermill#311, marten#2370 and AxonFramework#2958: no clock in it)
func TestP6_EarlierPositionCommitsLater(t *testing.T) {
	t.Parallel()
	for _, rollBack := range []bool{false, true} {
		t.Run(fmt.Sprint("rolled back ", rollBack), func(t *testing.T) {
			t.Parallel()
			s := testkit.Store(t, eventstore.Config{Poll: 20 * time.Millisecond})
			first := appendOne(t, s, "z-1")
			a, early := opened(t, s, messages("a-1", 2)...)
			b := appendOne(t, s, "b-1")
			if early[1].Position >= b.Position {
				t.Fatalf("A drew %d, B %d: the test tests nothing", early[1].Position, b.Position)
			}
			for range 20 {
				if got := positions(logged(t, s)); !slices.Equal(got, []weir.Position{first.Position}) {
					t.Fatalf("while A is open the log shows %v", got)
				}
				if at := horizonOf(t, s); at >= early[0].Position || s.Horizon() >= early[0].Position {
					t.Fatalf("while A at %d is open the horizon is %d and %d", early[0].Position, at, s.Horizon())
				}
			}
			want := []weir.Position{first.Position, early[0].Position, early[1].Position, b.Position}
			if rollBack {
				end(t, a.Rollback)
				want = []weir.Position{first.Position, b.Position}
			} else {
				end(t, a.Commit)
			}
			if got := positions(logged(t, s)); !slices.Equal(got, want) {
				t.Errorf("the log shows %v, want %v", got, want)
			}
			if _, err := s.WaitHorizon(testkit.Context(t), b.Position-1); err != nil {
				t.Errorf("the horizon that Run keeps stands at %d: %v", s.Horizon(), err)
			}
		})
	}
}

// TestP6_SavepointEndsItsAppendOnly: what was rolled back to a savepoint holds
// nobody, what was appended before it does.
func TestP6_SavepointEndsItsAppendOnly(t *testing.T) {
	t.Parallel()
	s := testkit.Store(t, eventstore.Config{})
	ctx := testkit.Context(t)
	outer, before := opened(t, s, message("a-1", 1))
	inner, err := outer.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.AppendTx(ctx, inner, eventstore.Append{Stream: "a-2", Expected: weir.AnyVersion, Messages: messages("a-2", 3)}); err != nil {
		t.Fatal(err)
	}
	end(t, inner.Rollback)
	after := appendOne(t, s, "b-1")
	if got := logged(t, s); len(got) != 0 {
		t.Errorf("the log shows %v while %d is open", positions(got), before[0].Position)
	}
	end(t, outer.Commit)
	if got, want := positions(logged(t, s)), []weir.Position{before[0].Position, after.Position}; !slices.Equal(got, want) {
		t.Errorf("the log shows %v, want %v", got, want)
	}
}

// TestP6_RolledBackNumbersNeverStall, neither in the middle nor at the start of a
// reader. (marten#2313, #4964; SQLStreamStore#121; prooph/pdo-event-store#189)
// (marten#4972, prooph/pdo-event-store PR#221)
func TestP6_RolledBackNumbersNeverStall(t *testing.T) {
	t.Parallel()
	s := testkit.Store(t, eventstore.Config{})
	var want []weir.Position
	for n := range 10 {
		tx, _ := opened(t, s, messages("a-1", 1+n)...)
		end(t, tx.Rollback)
		e := appendOne(t, s, "b-1")
		want = append(want, e.Position)
		if at := horizonOf(t, s); at != e.Position {
			t.Errorf("the horizon is %d after %d was committed", at, e.Position)
		}
	}
	if got := positions(logged(t, s)); !slices.Equal(got, want) {
		t.Errorf("the log shows %v, want %v", got, want)
	}
	// A hole right at the checkpoint of a reader, with an open append behind it.
	gone, _ := opened(t, s, message("a-1", 1))
	end(t, gone.Rollback)
	open, late := opened(t, s, message("a-2", 1))
	last := appendOne(t, s, "b-1")
	at := want[len(want)-1]
	if page, err := s.Page(testkit.Context(t), at, horizonOf(t, s), nil, 10); err != nil || len(page) != 0 {
		t.Errorf("a reader at %d was given %v, %v", at, positions(page), err)
	}
	end(t, open.Commit)
	page, err := s.Page(testkit.Context(t), at, horizonOf(t, s), nil, 10)
	if got := positions(page); err != nil || !slices.Equal(got, []weir.Position{late[0].Position, last.Position}) {
		t.Errorf("a reader at %d was given %v, %v", at, got, err)
	}
}

// TestP6_ForeignTransactionsNeverStall: other tables, other schemas with an append
// in flight, other databases, and other users of advisory locks.
func TestP6_ForeignTransactionsNeverStall(t *testing.T) {
	t.Parallel()
	ctx := testkit.Context(t)
	url := testkit.Database(t)
	s := testkit.Store(t, eventstore.Config{URL: url})
	neighbour := testkit.Store(t, eventstore.Config{URL: url, Schema: "neighbour"})
	elsewhere := testkit.Store(t, eventstore.Config{})
	appendOne(t, s, "a-1")

	opened(t, neighbour, message("a-1", 1))
	opened(t, elsewhere, message("a-1", 1))
	for _, sql := range []string{
		"create table foreign_table (n int)",
		"select pg_advisory_xact_lock_shared(0, 1), pg_advisory_xact_lock(1), pg_advisory_xact_lock(1::int, 1::int)",
		"select pg_current_xact_id()",
	} {
		tx, err := s.Pool().Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { tx.Rollback(context.Background()) })
		if _, err := tx.Exec(ctx, sql); err != nil {
			t.Fatal(err)
		}
	}
	e := appendOne(t, s, "a-1")
	if at := horizonOf(t, s); at != e.Position || len(logged(t, s)) != 2 {
		t.Errorf("foreign transactions hold the horizon at %d, %d was committed", at, e.Position)
	}
	if got := logged(t, neighbour); len(got) != 0 {
		t.Errorf("the neighbour shows %d events", len(got))
	}
}

// TestP6_PreparedTransactionHoldsReaders until it is committed, also when the
// session that prepared it is gone.
func TestP6_PreparedTransactionHoldsReaders(t *testing.T) {
	t.Parallel()
	ctx := testkit.Context(t)
	s := testkit.Store(t, eventstore.Config{})
	appendOne(t, s, "a-1")
	name := weir.NewID().String()
	tx, early := opened(t, s, message("a-2", 1))
	if _, err := tx.Exec(ctx, "prepare transaction '"+name+"'"); err != nil {
		t.Fatal(err)
	}
	end(t, tx.Conn().Close)
	late := appendOne(t, s, "a-3")
	if got := logged(t, s); len(got) != 1 {
		t.Errorf("while %d is prepared the log shows %v", early[0].Position, positions(got))
	}
	exec(t, s, "commit prepared '"+name+"'")
	if got := positions(logged(t, s)); !slices.Equal(got[1:], []weir.Position{early[0].Position, late.Position}) {
		t.Errorf("after the commit the log shows %v", got)
	}
}

// TestP6_FreshStore has a sequence that was never called.
func TestP6_FreshStore(t *testing.T) {
	t.Parallel()
	s := testkit.Store(t, eventstore.Config{})
	if at, head, err := s.ReadHorizon(testkit.Context(t)); at != 0 || head != 0 || err != nil {
		t.Errorf("a fresh store is at %d of %d, %v", at, head, err)
	}
	open, first := opened(t, s, message("a-1", 1))
	if first[0].Position != 1 {
		t.Errorf("the first position is %d", first[0].Position)
	}
	second := appendOne(t, s, "a-2")
	if at := horizonOf(t, s); at != 0 || len(logged(t, s)) != 0 {
		t.Errorf("while the first append of all is open, the horizon is %d", at)
	}
	end(t, open.Commit)
	if at := horizonOf(t, s); at != second.Position || len(logged(t, s)) != 2 {
		t.Errorf("then it is %d, want %d", at, second.Position)
	}
}

// TestP6_KeysWrap: locks hold 32 bits of a position, so two places in the log
// where these overflow must be as any other.
func TestP6_KeysWrap(t *testing.T) {
	t.Parallel()
	for _, edge := range []int64{1 << 31, 1 << 32, 3 << 31, 1 << 33} {
		for below := range int64(4) {
			t.Run(fmt.Sprintf("%d-%d", edge, below), func(t *testing.T) {
				t.Parallel()
				s := testkit.Store(t, eventstore.Config{})
				exec(t, s, "select setval('weir.position', $1)", edge-1-below)
				before := appendOne(t, s, "z-1")
				a, early := opened(t, s, messages("a-1", 2)...)
				b := appendOne(t, s, "b-1")
				c, middle := opened(t, s, message("c-1", 1))
				d := appendOne(t, s, "d-1")
				if got := positions(shown(t, s)); !slices.Equal(got, []weir.Position{before.Position}) {
					t.Errorf("while %d is open the log shows %v", early[0].Position, got)
				}
				end(t, a.Commit)
				want := []weir.Position{before.Position, early[0].Position, early[1].Position, b.Position}
				if got := positions(shown(t, s)); !slices.Equal(got, want) {
					t.Errorf("while %d is open the log shows %v, want %v", middle[0].Position, got, want)
				}
				end(t, c.Commit)
				want = append(want, middle[0].Position, d.Position)
				if got := positions(shown(t, s)); !slices.Equal(got, want) {
					t.Errorf("the log shows %v, want %v", got, want)
				}
			})
		}
	}
}

// shown is the log from its start, in one page.
func shown(t *testing.T, s *eventstore.Store) []weir.Event {
	t.Helper()
	page, err := s.Page(testkit.Context(t), 0, horizonOf(t, s), nil, 10_000)
	if err != nil {
		t.Fatal(err)
	}
	return page
}

// TestP6_WriterBehindTheLookHoldsNobody: a reader looks at the head of the log
// first and then for writers. One that registered in between has a key above the
// head that was read, and must make the horizon neither fall nor stand. The gate
// here is the table of events, where a writer waits after it has registered.
func TestP6_WriterBehindTheLookHoldsNobody(t *testing.T) {
	t.Parallel()
	s := testkit.Store(t, eventstore.Config{})
	ctx := testkit.Context(t)
	horizon, err := os.ReadFile("sql/horizon.sql")
	if err != nil {
		t.Fatal(err)
	}
	lock := scalar[int32](t, s, "select 'weir'::regnamespace::oid::int4")
	for range 3 {
		appendOne(t, s, "a-1")
	}
	opened(t, s, message("b-1", 1)) // key 3, drew 4
	opened(t, s, message("b-2", 1)) // key 4, drew 5
	for head, want := range map[int64]int64{5: 3, 4: 3, 3: 3, 2: 2, 1: 1} {
		var at int64
		if err := s.Pool().QueryRow(ctx, string(horizon), lock, head).Scan(&at, nil); err != nil {
			t.Fatal(err)
		}
		if at != want {
			t.Errorf("with a head of %d, the horizon is said to be %d, want %d", head, at, want)
		}
	}
}

// TestP6_HorizonMovesUnderContinuousLoad: with eight writers there is an append in
// flight at every look, and still the horizon follows within moments.
func TestP6_HorizonMovesUnderContinuousLoad(t *testing.T) {
	t.Parallel()
	url := testkit.Database(t)
	reader := testkit.Store(t, eventstore.Config{URL: url, Poll: 5 * time.Millisecond})
	ctx, stop := context.WithTimeout(testkit.Context(t), 1500*time.Millisecond)
	defer stop()
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			s := reader // each writer has transactions of its own
			stream := weir.Stream("a", fmt.Sprint(w))
			for i := 0; ctx.Err() == nil; i++ {
				tx, _ := s.Pool().Begin(ctx)
				if tx == nil {
					return
				}
				_, err := s.AppendTx(ctx, tx, eventstore.Append{Stream: stream, Expected: weir.AnyVersion, Messages: messages(stream, 2)})
				if err == nil {
					tx.Commit(ctx)
				}
				tx.Rollback(context.Background())
			}
		})
	}
	var longest time.Duration
	at, moved, moves := weir.Position(0), time.Now(), 0
	for ctx.Err() == nil {
		next, err := reader.WaitHorizon(ctx, at)
		if err != nil {
			break
		}
		at, moves = next, moves+1
		longest, moved = max(longest, time.Since(moved)), time.Now()
	}
	wg.Wait()
	if moves < 10 || longest > 700*time.Millisecond {
		t.Errorf("the horizon moved %d times to %d; once it stood for %s", moves, at, longest)
	}
}

// TestP6_NothingLostUnderChaos: 16 writers with pauses between drawing and
// committing, rollbacks and a pool whose connections break; a reader that follows
// the tail. (emmett#336, watermill#311, SQLStreamStore#121)
func TestP6_NothingLostUnderChaos(t *testing.T) {
	t.Parallel()
	ctx := testkit.Context(t)
	url := testkit.Database(t)
	s := testkit.Store(t, eventstore.Config{URL: url, Poll: time.Millisecond})
	other := testkit.Store(t, eventstore.Config{URL: url})
	var mu sync.Mutex
	committed := map[weir.ID]bool{}
	var writing atomic.Int32
	var wg sync.WaitGroup
	until := time.Now().Add(1500 * time.Millisecond)
	for w := range 16 {
		writing.Add(1)
		wg.Go(func() {
			defer writing.Add(-1)
			dice := rand.New(rand.NewPCG(uint64(w), 7))
			for time.Now().Before(until) {
				all := chaosAppend(t, ctx, []*eventstore.Store{s, other}[w%2], dice)
				mu.Lock()
				for _, m := range all {
					committed[m.ID] = true
				}
				mu.Unlock()
			}
		})
	}
	var seen []weir.Event
	tail := func() {
		at := weir.Position(0)
		for {
			last := writing.Load() == 0
			to := horizonOf(t, s)
			page, err := s.Page(ctx, at, to, nil, 100_000)
			if err != nil {
				t.Error(err)
			}
			seen = append(seen, page...)
			at = to
			if last {
				return
			}
		}
	}
	tail()
	wg.Wait()
	checkTail(t, seen, committed)
}

// chaosAppend appends to some streams, waits, and commits or does not. It returns
// what was committed.
func chaosAppend(t *testing.T, ctx context.Context, s *eventstore.Store, dice *rand.Rand) []weir.Message {
	stream := weir.Stream("a", fmt.Sprint(dice.IntN(12)))
	all := messages(stream, 1+dice.IntN(3))
	if dice.IntN(2) == 0 {
		if _, err := s.Append(ctx, stream, weir.AnyVersion, all...); err != nil {
			t.Error(err)
		}
		return all
	}
	tx, err := s.Pool().Begin(ctx)
	if err != nil {
		t.Error(err)
		return nil
	}
	defer tx.Rollback(ctx)
	if _, err := s.AppendTx(ctx, tx, eventstore.Append{Stream: stream, Expected: weir.AnyVersion, Messages: all}); err != nil {
		t.Error(err)
		return nil
	}
	if _, err := tx.Exec(ctx, "select pg_sleep($1)", dice.Float64()*0.006); err != nil {
		t.Error(err)
	}
	if dice.IntN(5) == 0 || tx.Commit(ctx) != nil {
		return nil
	}
	return all
}

// checkTail compares what a reader saw with what was committed.
func checkTail(t *testing.T, seen []weir.Event, committed map[weir.ID]bool) {
	t.Helper()
	once := map[weir.ID]bool{}
	versions := map[weir.StreamID]weir.Version{}
	duplicated, disordered := 0, 0
	for i, e := range seen {
		if once[e.ID] {
			duplicated++
		}
		once[e.ID] = true
		if e.Version != versions[e.Stream]+1 || i > 0 && e.Position <= seen[i-1].Position {
			disordered++
		}
		versions[e.Stream] = e.Version
	}
	lost := 0
	for id := range committed {
		if !once[id] {
			lost++
		}
	}
	if lost+duplicated+disordered > 0 || len(once) != len(committed) {
		t.Errorf("%d committed, %d seen: %d lost, %d twice, %d out of order", len(committed), len(seen), lost, duplicated, disordered)
	}
	if len(committed) < 100 {
		t.Errorf("%d events only", len(committed))
	}
}

// TestP6_AnyInterleaving of three writers and one reader on connections of their
// own: the reader sees each committed event once, in the order of positions.
func TestP6_AnyInterleaving(t *testing.T) {
	t.Parallel()
	ctx := testkit.Context(t)
	s := testkit.Store(t, eventstore.Config{})
	rapid.Check(t, func(r *rapid.T) {
		i := interleaving{t: r, ctx: ctx, s: s, at: horizonOf(t, s), committed: map[weir.ID]bool{}}
		r.Repeat(map[string]func(*rapid.T){
			"begin":    i.begin,
			"append":   i.append,
			"commit":   i.commit,
			"rollback": i.rollback,
			"read":     i.read,
		})
		for w := range i.writers {
			i.finish(w, w%2 == 0)
		}
		i.read(r)
		if len(i.seen) != len(i.committed) {
			r.Errorf("%d committed, %d seen", len(i.committed), len(i.seen))
		}
	})
}

type interleaving struct {
	t         *rapid.T
	ctx       context.Context
	s         *eventstore.Store
	writers   [3]pgx.Tx
	drawn     [3][]weir.ID
	at        weir.Position // of the reader
	seen      []weir.Event
	committed map[weir.ID]bool
}

func (i *interleaving) check(err error) {
	if err != nil {
		i.t.Fatal(err)
	}
}

func (i *interleaving) writer(r *rapid.T) int { return rapid.IntRange(0, 2).Draw(r, "writer") }

func (i *interleaving) begin(r *rapid.T) {
	w := i.writer(r)
	if i.writers[w] != nil {
		r.Skip("begun")
	}
	tx, err := i.s.Pool().Begin(i.ctx)
	i.check(err)
	i.writers[w] = tx
}

// append uses streams of the writer's own, or two writers would wait for each
// other's end.
func (i *interleaving) append(r *rapid.T) {
	w := i.writer(r)
	stream := weir.Stream("w", fmt.Sprint(w, rapid.IntRange(0, 1).Draw(r, "stream")))
	all := messages(stream, rapid.IntRange(1, 3).Draw(r, "messages"))
	if i.writers[w] == nil {
		_, err := i.s.Append(i.ctx, stream, weir.AnyVersion, all...)
		i.check(err)
		i.commitAll(all)
		return
	}
	_, err := i.s.AppendTx(i.ctx, i.writers[w], eventstore.Append{Stream: stream, Expected: weir.AnyVersion, Messages: all})
	i.check(err)
	for _, m := range all {
		i.drawn[w] = append(i.drawn[w], m.ID)
	}
}

func (i *interleaving) commitAll(all []weir.Message) {
	for _, m := range all {
		i.committed[m.ID] = true
	}
}

func (i *interleaving) commit(r *rapid.T)   { i.finish(i.writer(r), true) }
func (i *interleaving) rollback(r *rapid.T) { i.finish(i.writer(r), false) }

func (i *interleaving) finish(w int, commit bool) {
	tx := i.writers[w]
	if tx == nil {
		return
	}
	if commit {
		i.check(tx.Commit(i.ctx))
		for _, id := range i.drawn[w] {
			i.committed[id] = true
		}
	} else {
		i.check(tx.Rollback(i.ctx))
	}
	i.writers[w], i.drawn[w] = nil, nil
}

func (i *interleaving) read(r *rapid.T) {
	to, _, err := i.s.ReadHorizon(i.ctx)
	i.check(err)
	page, err := i.s.Page(i.ctx, i.at, to, nil, 10_000)
	i.check(err)
	if to < i.at {
		r.Fatalf("the horizon fell from %d to %d", i.at, to)
	}
	i.at = to
	for _, e := range page {
		if !i.committed[e.ID] || len(i.seen) > 0 && i.seen[len(i.seen)-1].Position >= e.Position {
			r.Fatalf("event %s at %d is not committed, or comes after %v", e.ID, e.Position, positions(i.seen))
		}
		i.seen = append(i.seen, e)
	}
}
