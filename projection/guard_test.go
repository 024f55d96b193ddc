package projection_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/eventstore"
	"github.com/weir-es/weir/internal/testkit"
	"github.com/weir-es/weir/projection"
)

// guarded is a view that takes writes past the engine, prepared.
func guarded(t *testing.T, s *eventstore.Store, name string) projection.View[list] {
	t.Helper()
	v := projection.View[list]{Name: name, Types: lists.Types}
	if err := v.Prepare(testkit.Context(t), s); err != nil {
		t.Fatal(err)
	}
	return v
}

// write writes rows past the engine.
func write(t *testing.T, q eventstore.Querier, s *eventstore.Store, v projection.View[list], guard projection.Guard, rows ...projection.Row[list]) projection.Outcome {
	t.Helper()
	v.Guard = guard
	o, err := projection.Write(testkit.Context(t), q, s, v, rows...)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// bare is a row of the table as it is, all columns.
func bare(t *testing.T, s *eventstore.Store, v projection.View[list], key string) (row map[string]any) {
	t.Helper()
	var text []byte
	query := s.Qualify("select row_to_json(v) from weir.view_" + v.Name + " v where key = $1")
	if err := s.Pool().QueryRow(testkit.Context(t), query, key).Scan(&text); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &row); err != nil {
		t.Fatal(err)
	}
	return row
}

// ranked are ids and positions that sort like their numbers; 0 is none.
func ranked(n int) (id weir.ID) {
	if n > 0 {
		id[0], id[15] = 1, byte(n)
	}
	return id
}

// TestP3_GuardDecides: both rules, every row of their table, nulls on both sides;
// whoever made the row, the engine or a write before.
func TestP3_GuardDecides(t *testing.T) {
	t.Parallel()
	const none, older, same, newer = 0, 4, 5, 6
	cases := []struct {
		name             string
		row, write       int
		sequence, strict bool
	}{
		{"newer event later", same, newer, true, true},
		{"older event later", same, older, false, false},
		{"same event again", same, same, true, false},
		{"the row has none", none, older, true, true},
		{"the write has none", same, none, true, false},
		{"both have none", none, none, true, true},
	}
	s := store(t)
	for guard, name := range []string{"sequence", "strict"} {
		guard := projection.Guard(guard)
		for _, maker := range []string{"engine", "write"} {
			v := guarded(t, s, name+"_"+maker)
			for _, c := range cases {
				t.Run(name+" over "+maker+": "+c.name, func(t *testing.T) {
					wins := map[projection.Guard]bool{projection.Sequence: c.sequence, projection.Strict: c.strict}[guard]
					// The other rule's number says the contrary, and must not matter.
					row := func(n, other int) projection.Row[list] {
						r := projection.Row[list]{Key: c.name, State: list{Seen: []int{n}}, EventID: ranked(n), Position: weir.Position(other)}
						if guard == projection.Sequence {
							r.EventID, r.Position = ranked(other), weir.Position(n)
						}
						return r
					}
					made := row(c.row, 5)
					if maker == "engine" {
						fold(t, s, v, made)
					} else if o := write(t, s.Pool(), s, v, guard, made); len(o.Written) != 1 {
						t.Fatalf("the first write of a row: %+v", o)
					}
					before := bare(t, s, v, c.name)
					contrary := 9
					if wins {
						contrary = 1
					}
					o := write(t, s.Pool(), s, v, guard, row(c.write, contrary))
					if len(o.Written) == 1 != wins || len(o.Skipped) == 1 == wins {
						t.Fatalf("%+v", o)
					}
					after := bare(t, s, v, c.name)
					if !wins {
						if fmt.Sprint(before) != fmt.Sprint(after) {
							t.Errorf("a skipped write changed %v\ninto %v", before, after)
						}
						return
					}
					if got := fmt.Sprint(after["state"]); got != fmt.Sprintf("map[Seen:[%d]]", c.write) {
						t.Errorf("the state is %s", got)
					}
					if writes, _ := before["writes"].(float64); after["writes"] != writes+1 {
						t.Errorf("%v writes after %v", after["writes"], before["writes"])
					}
					for _, column := range []string{"version", "event_id", "position", "fingerprint"} {
						if before[column] != after[column] {
							t.Errorf("the engine's %s was %v and is %v", column, before[column], after[column])
						}
					}
				})
			}
		}
	}
}

// fold puts a row where it is as the engine would.
func fold(t *testing.T, s *eventstore.Store, v projection.View[list], r projection.Row[list]) {
	t.Helper()
	state, _ := json.Marshal(r.State)
	query := "insert into weir.view_" + v.Name + " (key, state, version, event_id, position) values ($1, $2, 3, nullif($3, '00000000-0000-0000-0000-000000000000'::uuid), nullif($4, 0::bigint))"
	if _, err := s.Pool().Exec(testkit.Context(t), s.Qualify(query), r.Key, state, [16]byte(r.EventID), int64(r.Position)); err != nil {
		t.Fatal(err)
	}
}

// TestP3_GuardKnowsTheHighest: what a row has seen is the highest of what was folded
// and what was written, whichever came last.
func TestP3_GuardKnowsTheHighest(t *testing.T) {
	t.Parallel()
	s := store(t)
	v := guarded(t, s, "mixed")
	at := func(n int) projection.Row[list] {
		return projection.Row[list]{Key: "a-1", State: list{Seen: []int{n}}, EventID: ranked(n), Position: weir.Position(n)}
	}
	fold(t, s, v, at(5))
	for _, guard := range []projection.Guard{projection.Sequence, projection.Strict} {
		n := 10 * (int(guard) + 1)
		// One call, one key: in the order given.
		o := write(t, s.Pool(), s, v, guard, at(n), at(n-1), at(4), at(n+1))
		if len(o.Written) != 2 || len(o.Skipped) != 2 {
			t.Errorf("%+v", o)
		}
		if got := row(t, s, v, "a-1").State.Seen; !slices.Equal(got, []int{n + 1}) {
			t.Errorf("%v won", got)
		}
	}
	gone := at(90)
	gone.Deleted = true
	write(t, s.Pool(), s, v, projection.Sequence, gone)
	if got := bare(t, s, v, "a-1"); got["state"] != nil || got["version"] != 3.0 {
		t.Errorf("a deletion leaves %v", got)
	}
}

// TestP3_ConcurrentWritersEndAtTheHighest: sixteen that write one row at random come to
// the same row as one that knew the order, and every write is counted.
func TestP3_ConcurrentWritersEndAtTheHighest(t *testing.T) {
	t.Parallel()
	const writers, each = 16, 25
	for name, guard := range map[string]projection.Guard{"sequence": projection.Sequence, "strict": projection.Strict} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := store(t)
			v := guarded(t, s, "contested")
			v.Guard = guard
			order := rand.New(rand.NewPCG(7, 7)).Perm(writers * each)
			var mu sync.Mutex
			var all projection.Outcome
			var wait sync.WaitGroup
			for part := range slices.Chunk(order, each) {
				wait.Go(func() {
					for _, n := range part {
						id := ranked(1)
						id[14], id[15] = byte(n>>8), byte(n)
						o, err := projection.Write(context.Background(), s.Pool(), s, v,
							projection.Row[list]{Key: "a-1", State: list{Seen: []int{n}}, EventID: id, Position: weir.Position(n + 1)})
						if err != nil {
							t.Error(err)
						}
						mu.Lock()
						all.Written, all.Skipped = append(all.Written, o.Written...), append(all.Skipped, o.Skipped...)
						mu.Unlock()
					}
				})
			}
			wait.Wait()
			if got := row(t, s, v, "a-1").State.Seen; !slices.Equal(got, []int{writers*each - 1}) {
				t.Errorf("the row ends at %v", got)
			}
			if len(all.Written)+len(all.Skipped) != writers*each || bare(t, s, v, "a-1")["writes"] != float64(len(all.Written)) {
				t.Errorf("%d written and %d skipped of %d; the row says %v", len(all.Written), len(all.Skipped), writers*each, bare(t, s, v, "a-1")["writes"])
			}
		})
	}
}

// TestP3_WritesRaceTheEngine: no write is lost under a fold that had read the row before,
// and the engine applies every event once, in order, upon what was written.
func TestP3_WritesRaceTheEngine(t *testing.T) {
	t.Parallel()
	const writes = 60
	for name, key := range map[string]projection.Key{
		"by stream": projection.ByStream,
		"by key":    projection.By(func(e weir.Event, _ any) string { return string(e.Stream) }),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := store(t)
			ctx := testkit.Context(t)
			v := guarded(t, s, "raced")
			v.Key = key
			twin := projection.View[list]{Name: "twin", Types: v.Types, Key: key}
			w, _ := start(t, s, v)
			untouched, _ := start(t, s, twin)

			done, events := make(chan struct{}), make(chan int)
			go func() { // one that appends without a pause
				n := 0
				for ; ; n++ {
					select {
					case <-done:
						events <- n
						return
					default:
					}
					if _, err := s.Ingest(ctx, false, add("a-1", n)); err != nil {
						t.Error(err)
					}
				}
			}()
			for n := 1; n <= writes; n++ {
				o := write(t, s.Pool(), s, v, projection.Strict, projection.Row[list]{Key: "a-1", State: list{Seen: []int{-n}}, EventID: future(n)})
				if len(o.Written) != 1 {
					t.Fatalf("write %d: %+v", n, o)
				}
				for range 3 {
					if got := row(t, s, v, "a-1").State.Seen; len(got) == 0 || got[0] != -n {
						t.Fatalf("write %d was lost: the row is %v", n, got)
					}
				}
			}
			close(done)
			last := <-events
			settle(t, s, w)
			settle(t, s, untouched)
			got := row(t, s, v, "a-1").State.Seen
			for i, n := range got[1:] {
				if n != last-len(got)+1+i {
					t.Fatalf("of %d events the row has %v", last, got)
				}
			}
			ours, theirs := bare(t, s, v, "a-1"), bare(t, s, twin, "a-1")
			for _, column := range []string{"version", "event_id", "position", "fingerprint"} {
				if ours[column] != theirs[column] || ours[column] == nil {
					t.Errorf("%s is %v; without writes %v", column, ours[column], theirs[column])
				}
			}
			t.Logf("%d writes among %d events", writes, last)
		})
	}
}

// future is an id above all that are made in this test.
func future(n int) (id weir.ID) {
	for i := range id {
		id[i] = 0xff
	}
	id[0], id[15] = 0x7f, byte(n)
	return id
}

// TestP3_WritesBeforeTheFirstEvent: a row that only Write made is not taken for one that
// has seen events.
func TestP3_WritesBeforeTheFirstEvent(t *testing.T) {
	t.Parallel()
	s := store(t)
	v := guarded(t, s, "early")
	byKey := guarded(t, s, "early_key")
	byKey.Key = projection.By(func(e weir.Event, _ any) string { return string(e.Stream) })
	for _, view := range []projection.View[list]{v, byKey} {
		key := view.Name + "-1"
		write(t, s.Pool(), s, view, projection.Sequence, projection.Row[list]{Key: key, State: list{Seen: []int{-1}}, EventID: future(1), Position: 1 << 40})
		w, _ := start(t, s, view)
		ingest(t, s, add(weir.StreamID(key), 1), add(weir.StreamID(key), 2))
		settle(t, s, w)
		r := row(t, s, view, key)
		if !slices.Equal(r.State.Seen, []int{-1, 1, 2}) || r.Version != 2 || r.Position >= 1<<40 || w.Progress().Rewinds != 0 {
			t.Errorf("%+v, %+v", r, w.Progress())
		}
	}
}

// TestP3_WritesJoinTransactions of the caller, and what is not prepared is refused.
func TestP3_WritesJoinTransactions(t *testing.T) {
	t.Parallel()
	s := store(t)
	ctx := testkit.Context(t)
	v := guarded(t, s, "joined")
	r := projection.Row[list]{Key: "a-1", State: list{Seen: []int{1}}, Position: 1}
	tx, err := s.Pool().Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	write(t, tx, s, v, projection.Sequence, r)
	if err := tx.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := v.Get(ctx, s, "a-1"); err == nil {
		t.Error("a write outlived its transaction")
	}
	err = pgx.BeginFunc(ctx, s.Pool(), func(tx pgx.Tx) error {
		write(t, tx, s, v, projection.Sequence, r, projection.Row[list]{Key: "b-1"})
		return nil
	})
	if err != nil || len(row(t, s, v, "a-1").State.Seen) != 1 {
		t.Error(err)
	}
	if _, err := s.Pool().Exec(ctx, s.Qualify("delete from weir.editions where view = 'joined'")); err != nil {
		t.Fatal(err)
	}
	if _, err := projection.Write(ctx, s.Pool(), s, v, r); err == nil || !strings.Contains(err.Error(), "not prepared") {
		t.Errorf("a view that is not prepared: %v", err)
	}
}

// TestP3_TheLogKnowsNothingOfWrites: verify reports what was written past the engine,
// and a rebuild makes the view what the log says.
func TestP3_TheLogKnowsNothingOfWrites(t *testing.T) {
	t.Parallel()
	s := store(t)
	ctx := testkit.Context(t)
	v := guarded(t, s, "foreign")
	w, stop := start(t, s, v)
	ingest(t, s, add("a-1", 1), add("b-1", 1))
	settle(t, s, w)
	write(t, s.Pool(), s, v, projection.Sequence, projection.Row[list]{Key: "a-1", State: list{Seen: []int{-1}}}, projection.Row[list]{Key: "x-1"})
	ingest(t, s, add("a-1", 2))
	settle(t, s, w)
	if got := row(t, s, v, "a-1").State.Seen; !slices.Equal(got, []int{-1, 2}) {
		t.Errorf("the next event is folded into %v", got)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	found, err := v.Verify(ctx, s)
	want := []projection.Difference{{Key: "a-1", What: "state", Row: 2, Log: 2}, {Key: "x-1", What: "extra"}}
	if err != nil || !slices.Equal(found.Differences, want) {
		t.Errorf("%+v, %v", found, err)
	}
	if _, err := v.Rebuild(ctx, s, projection.Rebuild{}); err != nil {
		t.Fatal(err)
	}
	if got := row(t, s, v, "a-1").State.Seen; !slices.Equal(got, []int{1, 2}) {
		t.Errorf("a rebuild makes %v", got)
	}
	if found, err := v.Verify(ctx, s); err != nil || found.Wrong != 0 {
		t.Errorf("%+v, %v", found, err)
	}
}

// TestP3_AWriteWaitsItsTurn: where folds of a view always overlap, as those of inline
// appends do, a write that waits for them is not overtaken for ever; nor is a rebuild.
func TestP3_AWriteWaitsItsTurn(t *testing.T) {
	t.Parallel()
	s := inlineStore(t)
	ctx, stop := context.WithCancel(testkit.Context(t))
	var wait sync.WaitGroup
	defer wait.Wait()
	defer stop()
	for n := range 8 {
		wait.Go(func() {
			stream := weir.StreamID(fmt.Sprintf("a-%d", n))
			for ctx.Err() == nil {
				err := pgx.BeginFunc(ctx, s.Pool(), func(tx pgx.Tx) error {
					one := eventstore.Append{Stream: stream, Expected: weir.AnyVersion, Messages: []weir.Message{add(stream, 1)}}
					if _, err := s.AppendTx(ctx, tx, one); err != nil {
						return err
					}
					_, err := tx.Exec(ctx, "select pg_sleep(0.02)") // the caller has more to do
					return err
				})
				if err != nil && ctx.Err() == nil {
					t.Error(err)
				}
			}
		})
	}
	testkit.Await(t, 10*time.Second, "all append", func() bool {
		c, err := s.Counts(ctx)
		return err == nil && c.Streams == 8
	})
	soon, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	for n := range 5 {
		if _, err := projection.Write(soon, s.Pool(), s, inlined, projection.Row[list]{Key: "x-1"}); err != nil {
			t.Fatalf("write %d: %v", n, err)
		}
	}
	if err := inlined.RebuildKey(soon, s, "a-1"); err != nil {
		t.Error(err)
	}
}
