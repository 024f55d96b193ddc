package eventstore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"pgregory.net/rapid"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/eventstore"
	"github.com/weir-es/weir/internal/testkit"
)

// trips counts what a pool sends together, and what the server refuses.
type trips struct {
	mu     sync.Mutex
	sent   int
	errors []error
}

func (c *trips) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent++
	return ctx
}

func (c *trips) TraceBatchQuery(_ context.Context, _ *pgx.Conn, data pgx.TraceBatchQueryData) {
	c.note(data.Err)
}

func (c *trips) TraceBatchEnd(_ context.Context, _ *pgx.Conn, data pgx.TraceBatchEndData) {
	c.note(data.Err)
}

func (c *trips) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

func (c *trips) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (c *trips) note(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.errors = append(c.errors, err)
	}
}

// take is how many there were since the last time.
func (c *trips) take() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer func() { c.sent = 0 }()
	return c.sent
}

// counting opens a store whose round trips are counted.
func counting(t *testing.T, url string) (*eventstore.Store, *trips) {
	t.Helper()
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	c := &trips{}
	config.ConnConfig.Tracer = c
	pool, err := pgxpool.NewWithConfig(testkit.Context(t), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	s := testkit.Store(t, eventstore.Config{Pool: pool})
	c.take()
	return s, c
}

// TestAppendTakesOneRoundTrip to streams that this process wrote to, as long as nobody
// else does; who does is noticed without an error.
func TestAppendTakesOneRoundTrip(t *testing.T) {
	t.Parallel()
	url := testkit.Database(t)
	s, trips := counting(t, url)
	other := testkit.Store(t, eventstore.Config{URL: url})
	ctx := testkit.Context(t)
	at := weir.Version(0)
	appends := func(to *eventstore.Store, expected weir.ExpectedVersion, want int) {
		t.Helper()
		e, err := to.Append(ctx, "a-1", expected, message("a-1", 1))
		if err != nil {
			t.Fatal(err)
		}
		if at++; e[0].Version != at {
			t.Fatalf("version %d, want %d", e[0].Version, at)
		}
		if got := trips.take(); got != want {
			t.Errorf("append of version %d took %d round trips, want %d", at, got, want)
		}
	}
	appends(s, weir.AnyVersion, 2) // unknown
	appends(s, weir.AnyVersion, 1)
	appends(s, weir.Exactly(at), 1)
	appends(other, weir.AnyVersion, 0)
	appends(s, weir.AnyVersion, 3) // remembered wrongly
	appends(s, weir.AnyVersion, 1)
	appends(other, weir.AnyVersion, 0)
	appends(s, weir.Exactly(at), 2) // which the caller knows better
	appends(s, weir.Exactly(at), 1)
	if _, err := s.Append(ctx, "a-1", weir.NewStream, message("a-1", 1)); !errors.Is(err, weir.ErrConflict) {
		t.Errorf("append to a stream at version %d as to a new one: %v", at, err)
	}
	trips.take()
	appends(s, weir.Exactly(at), 1)
	err := pgx.BeginFunc(ctx, s.Pool(), func(tx pgx.Tx) error {
		_, err := s.AppendTx(ctx, tx, eventstore.Append{Stream: "a-1", Expected: weir.AnyVersion, Messages: messages("a-1", 1)})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	at++
	if got := trips.take(); got != 2 {
		t.Errorf("an append in the caller's transaction took %d round trips, want 2", got)
	}
	appends(s, weir.Exactly(at), 2)
	if _, err := s.Ingest(ctx, true, messages("a-1", 1)...); err != nil {
		t.Fatal(err)
	}
	if got := trips.take(); got != 2 {
		t.Errorf("facts of which some may be stored took %d round trips, want 2", got)
	}
	if len(trips.errors) > 0 {
		t.Errorf("the server refused something: %v", trips.errors)
	}
}

// TestP5_MemoryIsCompared with the stream as it is, alone and beside one that is where
// it should be: also where only one of version and last order is another, and where the
// log went back. Each stream ends in an event of the far future, above which a decision
// of today is put.
func TestP5_MemoryIsCompared(t *testing.T) {
	t.Parallel()
	url := testkit.Database(t)
	s, other := testkit.Store(t, eventstore.Config{URL: url}), testkit.Store(t, eventstore.Config{URL: url})
	early := message("", 0)
	for _, c := range []struct {
		name    string
		act     func(stream weir.StreamID)
		version weir.Version
		above   bool
	}{
		{"same", func(weir.StreamID) {}, 3, true},
		{"early_fact", func(stream weir.StreamID) {
			early.Stream, early.ID = stream, weir.Derive(early.ID, 0, string(stream))
			if _, err := other.Ingest(testkit.Context(t), false, early); err != nil {
				t.Fatal(err)
			}
		}, 4, true},
		{"other_history", func(stream weir.StreamID) { cut(t, s, stream); appendOne(t, other, stream) }, 3, false},
		{"shorter", func(stream weir.StreamID) { cut(t, s, stream) }, 2, false},
		{"gone", func(stream weir.StreamID) { drop(t, s, stream) }, 1, false},
	} {
		for _, beside := range [][]weir.StreamID{nil, {"a-1"}, {"z-1"}} {
			stream := weir.Stream(c.name, fmt.Sprint(beside))
			appendOne(t, s, stream)
			late := message(stream, 1)
			late.ID[0]++ // some centuries
			if _, err := s.Append(testkit.Context(t), stream, weir.AnyVersion, late); err != nil {
				t.Fatal(err)
			}
			appends := []eventstore.Append{{Stream: stream, Expected: weir.AnyVersion, Messages: messages(stream, 1)}}
			for _, name := range beside {
				at := appendOne(t, s, name).Version
				appends = append(appends, eventstore.Append{Stream: name, Expected: weir.Exactly(at), Messages: messages(name, 1)})
			}
			c.act(stream)
			events, err := s.AppendAll(testkit.Context(t), appends...)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range events {
				if e.Stream == stream && (e.Version != c.version || (e.OrderID.Compare(late.ID) > 0) != c.above) {
					t.Errorf("%s: version %d with order %s, the last was %s", stream, e.Version, e.OrderID, late.ID)
				}
				if all := read(t, s, e.Stream); len(all) != int(e.Version) || all[len(all)-1].ID != e.ID {
					t.Errorf("%s: told version %d of %s, stored are %d", stream, e.Version, e.Stream, len(all))
				}
			}
		}
	}
}

// cut takes the last event of a stream away, as if it had never been.
func cut(t *testing.T, s *eventstore.Store, stream weir.StreamID) {
	exec(t, s, "delete from weir.events e using weir.streams s where s.name = $1 and e.stream_id = s.id and e.version = s.version", string(stream))
	exec(t, s, `update weir.streams s
	               set version = version - 1,
	                   last_order = (select max(coalesce(order_id, event_id)::text)::uuid from weir.events where stream_id = s.id)
	             where name = $1`, string(stream))
}

// drop takes a stream away.
func drop(t *testing.T, s *eventstore.Store, stream weir.StreamID) {
	exec(t, s, "delete from weir.events where stream_id = (select id from weir.streams where name = $1)", string(stream))
	exec(t, s, "delete from weir.streams where name = $1", string(stream))
}

// pair is two processes that write to the same streams, one after the other, while
// somebody changes them by hand.
type pair struct {
	machine
	stores []*eventstore.Store
}

// either lets one of the two do it.
func (p *pair) either(act func(*rapid.T)) func(*rapid.T) {
	return func(r *rapid.T) {
		p.s = p.stores[rapid.IntRange(0, len(p.stores)-1).Draw(r, "store")]
		act(r)
	}
}

func (p *pair) drop(r *rapid.T) {
	stream := p.stream(r)
	drop(p.T, p.s, stream)
	p.forget(stream, 0)
}

func (p *pair) cut(r *rapid.T) {
	stream := p.stream(r)
	if n := len(p.model.streams[stream]); n > 0 {
		cut(p.T, p.s, stream)
		p.forget(stream, n-1)
	}
}

// forget makes the model end a stream after n events.
func (p *pair) forget(stream weir.StreamID, n int) {
	for _, id := range p.model.streams[stream][n:] {
		delete(p.model.where, id)
	}
	p.model.streams[stream] = slices.Clip(p.model.streams[stream][:n])
}

// TestP3_TwoStoresEqualTheirModel, whatever each remembers of what the other, a
// restore or a hand changed.
func TestP3_TwoStoresEqualTheirModel(t *testing.T) {
	t.Parallel()
	url := testkit.Database(t)
	stores := []*eventstore.Store{testkit.Store(t, eventstore.Config{URL: url}), testkit.Store(t, eventstore.Config{URL: url})}
	scene := 0
	rapid.Check(t, func(r *rapid.T) {
		scene++
		p := &pair{machine{T: t, s: stores[0], name: fmt.Sprint("p", scene), model: model{map[weir.StreamID][]weir.ID{}, map[weir.ID]place{}}}, stores}
		r.Repeat(map[string]func(*rapid.T){
			"append":     p.either(p.append),
			"append all": p.either(p.appendAll),
			"append tx":  p.either(p.appendTx),
			"ingest":     p.either(p.ingest),
			"drop":       p.either(p.drop),
			"cut":        p.either(p.cut),
		})
		p.compare(r)
	})
}

// rival appends to streams that others append to at the same time.
type rival struct {
	*testing.T
	s     *eventstore.Store
	dice  *rand.Rand
	names []weir.StreamID

	last   map[weir.StreamID]weir.Version // as it saw them
	used   map[weir.StreamID][]weir.Message
	stored []weir.Event
	fresh  []weir.ID // of appends that failed or were rolled back
}

// once appends what nobody has stored, sometimes with what it stored itself.
func (w *rival) once(ctx context.Context) error {
	var appends []eventstore.Append
	for _, n := range w.dice.Perm(len(w.names))[:1+w.dice.IntN(2)] {
		stream := w.names[n]
		a := eventstore.Append{Stream: stream, Expected: weir.AnyVersion, Messages: messages(stream, w.dice.IntN(3))}
		if used := w.used[stream]; len(used) > 0 && w.dice.IntN(4) == 0 {
			a.Messages = append(a.Messages, used[w.dice.IntN(len(used))])
		} else if w.dice.IntN(2) == 0 {
			a.Expected = weir.Exactly(w.last[stream])
		}
		appends = append(appends, a)
	}
	events, kept, err := w.store(ctx, appends)
	if err == nil && kept {
		w.keep(events)
		return nil
	}
	for _, a := range appends {
		for _, m := range a.Messages {
			w.fresh = append(w.fresh, m.ID)
		}
		w.look(ctx, a.Stream)
	}
	if errors.Is(err, weir.ErrConflict) {
		return nil
	}
	return err
}

func (w *rival) store(ctx context.Context, appends []eventstore.Append) (events []weir.Event, kept bool, err error) {
	if w.dice.IntN(6) > 0 {
		events, err = w.s.AppendAll(ctx, appends...)
		return events, true, err
	}
	tx, err := w.s.Pool().Begin(ctx)
	if err != nil {
		return nil, false, err
	}
	defer tx.Rollback(ctx)
	events, err = w.s.AppendTx(ctx, tx, appends...)
	if err != nil || w.dice.IntN(2) == 0 {
		return nil, false, err
	}
	return events, true, tx.Commit(ctx)
}

func (w *rival) keep(events []weir.Event) {
	for _, e := range events {
		w.last[e.Stream] = max(w.last[e.Stream], e.Version)
		w.used[e.Stream] = append(w.used[e.Stream], e.Message)
		w.stored = append(w.stored, e)
	}
}

func (w *rival) look(ctx context.Context, stream weir.StreamID) {
	for e, err := range w.s.Stream(ctx, stream, w.last[stream]) {
		if err == nil {
			w.last[stream] = e.Version
		}
	}
}

// TestP3_RivalsStoreOnce: of two processes whose callers write to the same streams,
// every success is stored once and as it was told, and every failure is a conflict
// that left nothing.
func TestP3_RivalsStoreOnce(t *testing.T) {
	t.Parallel()
	url := testkit.Database(t)
	stores := []*eventstore.Store{testkit.Store(t, eventstore.Config{URL: url}), testkit.Store(t, eventstore.Config{URL: url})}
	names := []weir.StreamID{"a-1", "a-2", "a-3"}
	rivals := make([]*rival, 8)
	var wg sync.WaitGroup
	for i := range rivals {
		rivals[i] = &rival{T: t, s: stores[i%2], dice: rand.New(rand.NewPCG(uint64(i), 7)), names: names,
			last: map[weir.StreamID]weir.Version{}, used: map[weir.StreamID][]weir.Message{}}
		wg.Go(func() {
			for range 60 {
				if err := rivals[i].once(testkit.Context(t)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	there := map[weir.ID]weir.Event{}
	for _, name := range names {
		for i, e := range read(t, stores[0], name) {
			if e.Version != weir.Version(i+1) {
				t.Errorf("%s: version %d in the place of %d", name, e.Version, i+1)
			}
			there[e.ID] = e
		}
	}
	told := map[weir.ID]bool{}
	for _, w := range rivals {
		for _, e := range w.stored {
			told[e.ID] = true
			if is := there[e.ID]; is.Version != e.Version || is.Stream != e.Stream || is.Position != e.Position || is.OrderID != e.OrderID || !is.Recorded.Equal(e.Recorded) {
				t.Errorf("told %+v, stored %+v", e, is)
			}
		}
	}
	if len(told) != len(there) {
		t.Errorf("%d events are stored, %d were told so", len(there), len(told))
	}
	for _, w := range rivals {
		for _, id := range w.fresh {
			if _, ok := there[id]; ok && !told[id] {
				t.Errorf("%s was refused and is stored", id)
			}
		}
	}
}
