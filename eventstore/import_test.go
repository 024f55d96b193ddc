package eventstore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/eventstore"
	"github.com/weir-es/weir/internal/testkit"
)

// history is n events of the past on so many streams, ten of them in each
// millisecond, in the order of their ids.
func history(t testing.TB, n, streams int) []weir.Message {
	t.Helper()
	importer, begin := weir.Import(t.Name()), time.UnixMilli(1_600_000_000_000)
	all := make([]weir.Message, n)
	for i := range all {
		id, err := importer.At(begin.Add(time.Duration(i/10) * time.Millisecond))
		if err != nil {
			t.Fatal(err)
		}
		all[i] = message(weir.Stream("past", fmt.Sprint(i*7%streams)), i)
		all[i].ID = id
	}
	return all
}

// source yields the messages, and then err if there is one.
func source(all []weir.Message, err error) iter.Seq2[weir.Message, error] {
	return func(yield func(weir.Message, error) bool) {
		for _, m := range all {
			if !yield(m, nil) {
				return
			}
		}
		if err != nil {
			yield(weir.Message{}, err)
		}
	}
}

func importAll(t testing.TB, s *eventstore.Store, all []weir.Message, options eventstore.ImportOptions) eventstore.ImportResult {
	t.Helper()
	r, err := s.Import(testkit.Context(t), source(all, nil), options)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// checkImported compares the log with what was to be stored, each once, with
// contiguous versions whose order is that of positions.
func checkImported(t testing.TB, log []weir.Event, want []weir.Message) {
	t.Helper()
	versions, stored := map[weir.StreamID]weir.Version{}, map[weir.ID]weir.Event{}
	for _, e := range log {
		if versions[e.Stream]++; e.Version != versions[e.Stream] {
			t.Fatalf("position %d has version %d of %s, after %d", e.Position, e.Version, e.Stream, versions[e.Stream]-1)
		}
		stored[e.ID] = e
	}
	if len(log) != len(want) || len(stored) != len(want) {
		t.Fatalf("%d events with %d ids are stored, want %d", len(log), len(stored), len(want))
	}
	for _, m := range want {
		if e := stored[m.ID]; fmt.Sprint(e.Message) != fmt.Sprint(m) {
			t.Fatalf("stored %v, want %v", e.Message, m)
		}
	}
}

// TestP3_ImportStoresHistoryOnce in order of ids, however it comes, and knows it
// when it comes again.
func TestP3_ImportStoresHistoryOnce(t *testing.T) {
	t.Parallel()
	s := testkit.Store(t, eventstore.Config{})
	all := history(t, 2500, 70)
	mixed := slices.Concat(all, all[:300]) // some of them twice
	rand.Shuffle(len(mixed), func(i, j int) { mixed[i], mixed[j] = mixed[j], mixed[i] })
	var told []eventstore.ImportResult
	options := eventstore.ImportOptions{Batch: 1000, Progress: func(r eventstore.ImportResult) { told = append(told, r) }}

	r := importAll(t, s, mixed, options)
	log := logged(t, s)
	if want := (eventstore.ImportResult{Read: 2800, Stored: 2500, Duplicates: 300, Last: log[len(log)-1].Position}); r != want {
		t.Errorf("result %+v, want %+v", r, want)
	}
	if len(told) != 3 || told[2] != r || told[0].Stored+told[0].Duplicates != 1000 {
		t.Errorf("progress: %+v", told)
	}
	checkImported(t, log, all)
	for _, stream := range log {
		if stream.OrderID != (weir.ID{}) {
			t.Fatal("a fact of the past was given an order id")
		}
	}

	again := importAll(t, s, mixed, options)
	if want := (eventstore.ImportResult{Read: 2800, Duplicates: 2800}); again != want {
		t.Errorf("again: %+v, want %+v", again, want)
	}
	if got := logged(t, s); !slices.Equal(positions(got), positions(log)) {
		t.Error("a repeated import changed the log")
	}
}

// TestP5_ImportFollowsIDsInEachBatch: versions and positions do, and a decision
// that is made later sorts after all of it.
func TestP5_ImportFollowsIDsInEachBatch(t *testing.T) {
	t.Parallel()
	s := testkit.Store(t, eventstore.Config{})
	all := history(t, 100, 3)
	backward := slices.Clone(all)
	slices.Reverse(backward)
	importAll(t, s, backward, eventstore.ImportOptions{Batch: 50})
	log := logged(t, s)
	for i, part := range [][]weir.Event{log[:50], log[50:]} {
		if !slices.IsSortedFunc(part, weir.CompareEvents) {
			t.Errorf("batch %d is not in the order of ids", i+1)
		}
	}
	early := message("past-1", 0)
	early.ID = all[0].ID
	early.ID[15]++ // sorts before most of its stream
	events, err := s.Append(testkit.Context(t), "past-1", weir.AnyVersion, early)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range read(t, s, "past-1") {
		if e.ID != early.ID && weir.CompareEvents(e, events[0]) >= 0 {
			t.Fatalf("the decision sorts before version %d, which it knew", e.Version)
		}
	}
}

// TestImportKeepsTheOrderOfALog that a store numbered, with late facts and order
// ids in it.
func TestImportKeepsTheOrderOfALog(t *testing.T) {
	t.Parallel()
	ctx := testkit.Context(t)
	from, to := testkit.Store(t, eventstore.Config{}), testkit.Store(t, eventstore.Config{})
	past := history(t, 30, 4)
	for _, m := range []weir.Message{past[9], past[2], past[20]} {
		if _, err := from.Ingest(ctx, false, m); err != nil {
			t.Fatal(err)
		}
	}
	late := past[3]
	late.Stream = past[20].Stream
	if _, err := from.Append(ctx, late.Stream, weir.AnyVersion, late); err != nil {
		t.Fatal(err)
	}
	importAll(t, from, past, eventstore.ImportOptions{Batch: 7})
	want := logged(t, from)

	r, err := to.ImportEvents(ctx, from.Log(ctx, 0), eventstore.ImportOptions{Batch: 11})
	if err != nil || r.Stored != int64(len(want)) {
		t.Fatalf("%+v %v", r, err)
	}
	orders := 0
	for i, e := range logged(t, to) {
		w := want[i]
		if e.ID != w.ID || e.Version != w.Version || e.OrderID != w.OrderID || e.Stream != w.Stream {
			t.Errorf("event %d: %s %d of %s, want %s %d of %s", i, e.ID, e.Version, e.Stream, w.ID, w.Version, w.Stream)
		}
		if e.OrderID != (weir.ID{}) {
			orders++
		}
	}
	if orders != 1 {
		t.Errorf("%d events with order ids, want the one of the decision", orders)
	}
}

// TestImportKeepsBytes of payloads and metadata, as Append does.
func TestImportKeepsBytes(t *testing.T) {
	t.Parallel()
	s := testkit.Store(t, eventstore.Config{})
	all := history(t, 6, 1)
	all[0].Data = []byte("{ \"z\":1e2 ,\n\"a\":9007199254740993, \"nul\":\"\\u0000\", \"a\":-0 }")
	all[1].Data, all[1].Metadata.ContentType = nil, "application/octet-stream"
	all[2].Data, all[2].Metadata.ContentType = []byte("\x00\xff\\x\n"), "application/x-protobuf"
	all[3].Data, all[3].Stream = []byte(" null "), weir.Singleton
	all[4].Metadata = weir.Metadata{Correlation: "c", Causation: "d", Producer: "p", TraceParent: "00-1-2-01", TraceState: "x=y", Extra: map[string]string{"a b": "ü\n\\u0000\t\\N"}}
	all[5].Type, all[5].Stream = "type\twith\n\\N \"quotes\"", "seat-\t\n\\N'\";"
	importAll(t, s, all, eventstore.ImportOptions{})
	all[3].Stream = all[3].Stream.Resolve(all[3].ID)
	log := logged(t, s)
	checkImported(t, log, all)
	for i, e := range log {
		if !bytes.Equal(e.Data, all[i].Data) {
			t.Errorf("event %d: %q, want %q", i, e.Data, all[i].Data)
		}
	}
}

// TestImportGoesOnWhereItWasInterrupted, and nothing of it runs any more when it
// has returned. Not in parallel: it looks at all goroutines.
func TestImportGoesOnWhereItWasInterrupted(t *testing.T) {
	s := testkit.Store(t, eventstore.Config{})
	all := history(t, 3000, 40)
	stop := errors.New("the operator pressed ctrl-c")
	for stored := int64(0); stored < 3000; {
		ctx, cancel := context.WithCancelCause(testkit.Context(t))
		batches := 0
		r, err := s.Import(ctx, source(all, nil), eventstore.ImportOptions{Batch: 250, Progress: func(r eventstore.ImportResult) {
			if batches++; r.Stored >= 700 {
				cancel(stop)
			}
		}})
		cancel(nil)
		if stacks := stacks(); bytes.Contains(stacks, []byte("eventstore.(*importing).store(")) {
			t.Fatalf("an import goes on after it returned:\n%s", stacks)
		}
		if err != nil && !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		events := scalar[int64](t, s, "select count(*) from weir.events")
		if r.Duplicates != stored || r.Stored != events-stored {
			// The batch on its way may have been stored without an answer.
			if err == nil || events-stored-r.Stored != 250 {
				t.Fatalf("%d events before, %d after, result %+v", stored, events, r)
			}
		}
		stored = events
	}
	checkImported(t, logged(t, s), all)
}

// stacks is what all goroutines do.
func stacks() []byte {
	buffer := make([]byte, 4<<20)
	return buffer[:runtime.Stack(buffer, true)]
}

// TestImportOutlivesItsConnections that are killed in the middle of a batch, again
// after each batch.
func TestImportOutlivesItsConnections(t *testing.T) {
	t.Parallel()
	url := testkit.Database(t)
	s, other := testkit.Store(t, eventstore.Config{URL: url}), testkit.Store(t, eventstore.Config{URL: url})
	all := history(t, 8000, 200)
	ctx, stop := context.WithCancel(testkit.Context(t))
	moved := make(chan struct{}, 100)
	kills := 0
	var wg sync.WaitGroup
	wg.Go(func() {
		for range moved {
			kills += killCopy(ctx, other)
		}
	})
	r, err := s.Import(ctx, source(all, nil), eventstore.ImportOptions{Batch: 1000, Progress: func(eventstore.ImportResult) { moved <- struct{}{} }})
	stop()
	close(moved)
	wg.Wait()
	if err != nil || r.Stored+r.Duplicates != 8000 {
		t.Fatalf("%+v %v", r, err)
	}
	if kills == 0 {
		t.Error("nothing was killed, so nothing was shown")
	}
	checkImported(t, logged(t, s), all)
}

// killCopy waits for a batch that is being written and kills its connection.
func killCopy(ctx context.Context, s *eventstore.Store) (kills int) {
	const kill = `select count(pg_terminate_backend(pid)) from pg_stat_activity
		where datname = current_database() and pid <> pg_backend_pid() and query ilike 'copy %' and state = 'active'`
	for kills == 0 && ctx.Err() == nil {
		s.Pool().QueryRow(ctx, kill).Scan(&kills)
	}
	return kills
}

// TestP6_ImportBesideWriters of the same streams: versions stay contiguous, each
// event is stored once, also where another writer has the same, and a reader that
// follows the horizon misses nothing.
func TestP6_ImportBesideWriters(t *testing.T) {
	t.Parallel()
	url := testkit.Database(t)
	s, other := testkit.Store(t, eventstore.Config{URL: url}), testkit.Store(t, eventstore.Config{URL: url})
	ctx := testkit.Context(t)
	all := history(t, 6000, 30)
	want := slices.Clone(all)

	var wg sync.WaitGroup
	var mu sync.Mutex
	for w := range 4 {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(w)))
			for range 100 {
				stream := weir.Stream("past", fmt.Sprint(random.IntN(35)))
				m := message(stream, w)
				_, err := other.Append(ctx, stream, weir.AnyVersion, m)
				if err != nil {
					t.Error(err)
				}
				at := random.IntN(len(all) - 20)
				if _, err := other.Ingest(ctx, random.IntN(2) == 0, all[at:at+20]...); err != nil {
					t.Error(err)
				}
				mu.Lock()
				want = append(want, m)
				mu.Unlock()
			}
		})
	}
	for range 2 { // the same history from two sides
		wg.Go(func() {
			r, err := s.Import(ctx, source(all, nil), eventstore.ImportOptions{Batch: 500})
			if err != nil || r.Stored+r.Duplicates != 6000 {
				t.Errorf("%+v %v", r, err)
			}
		})
	}
	seen := follow(t, other, func() { wg.Wait() })
	for i, e := range seen {
		if e.Message.Type == "test.happened" {
			seen[i].Message = e.Message
		}
	}
	checkImported(t, seen, want)
}

// follow reads the log behind the horizon until end returns and all is seen.
func follow(t *testing.T, s *eventstore.Store, end func()) (seen []weir.Event) {
	t.Helper()
	ctx := testkit.Context(t)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		end()
	}()
	var at weir.Position
	for last := false; ; {
		select {
		case <-ended:
			last = true
		default:
		}
		horizon, head, err := s.ReadHorizon(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for at < horizon {
			page, err := s.Page(ctx, at, horizon, nil, 1000)
			if err != nil {
				t.Fatal(err)
			}
			if seen = append(seen, page...); len(page) < 1000 {
				at = horizon
			} else {
				at = page[len(page)-1].Position
			}
		}
		if last && at >= head {
			return seen
		}
	}
}

// TestImportNamesWhatIsWrong before anything of its batch is stored; what came in
// earlier batches stays.
func TestImportNamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	broken := errors.New("the file ends in the middle of a line")
	for name, c := range map[string]struct {
		spoil func(*weir.Message)
		want  func(error) bool
	}{
		"no id":         {func(m *weir.Message) { m.ID = weir.ID{} }, is[*weir.InvalidMessageError]},
		"no type":       {func(m *weir.Message) { m.Type = "" }, is[*weir.InvalidMessageError]},
		"not JSON":      {func(m *weir.Message) { m.Data = []byte(`{"a":`) }, is[*weir.InvalidMessageError]},
		"NUL in type":   {func(m *weir.Message) { m.Type = "a\x00b" }, is[*weir.InvalidMessageError]},
		"no stream":     {func(m *weir.Message) { m.Stream = "" }, is[*weir.EmptyStreamError]},
		"no dash":       {func(m *weir.Message) { m.Stream = "seat-" }, is[*weir.EmptyStreamError]},
		"bad stream":    {func(m *weir.Message) { m.Stream = "seat-\xff" }, is[*weir.InvalidStreamError]},
		"too large":     {func(m *weir.Message) { m.Data = fmt.Appendf(nil, "%q", strings.Repeat("x", weir.MaxDataBytes)) }, is[*weir.TooLargeError]},
		"big metadata":  {func(m *weir.Message) { m.Metadata.Producer = strings.Repeat("x", weir.MaxMetadataBytes+1) }, is[*weir.TooLargeError]},
		"refused":       {func(m *weir.Message) { m.Type = "poison" }, eventstore.IsRefused},
		"broken source": {nil, func(err error) bool { return errors.Is(err, broken) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := testkit.Store(t, eventstore.Config{})
			exec(t, s, "alter table weir.events add constraint no_poison check (type <> 'poison')")
			all, end := history(t, 27, 5), broken
			if c.spoil != nil {
				c.spoil(&all[26])
				all, end = append(all, message("past-1", 1), message("past-1", 2)), nil
			} else {
				all = all[:26]
			}
			r, err := s.Import(testkit.Context(t), source(all, end), eventstore.ImportOptions{Batch: 10})
			var e *eventstore.ImportError
			if !errors.As(err, &e) || e.Ordinal != 27 || !c.want(err) {
				t.Fatalf("got %v", err)
			}
			if c.spoil != nil && e.ID != all[26].ID {
				t.Errorf("the error names %s, not %s", e.ID, all[26].ID)
			}
			if got := len(logged(t, s)); got != 20 || r.Stored != 20 {
				t.Errorf("%d events are stored, result %+v, want the two batches before", got, r)
			}
		})
	}
}

func is[E error](err error) bool {
	var e E
	return errors.As(err, &e)
}

// TestP9_ImportHoldsLittle: large events close a batch before it is full.
func TestP9_ImportHoldsLittle(t *testing.T) {
	t.Parallel()
	s := testkit.Store(t, eventstore.Config{})
	all := history(t, 20, 3)
	for i := range all {
		all[i].Data = fmt.Appendf(nil, "%q", strings.Repeat("x", 1<<20-2))
	}
	var batches []int64
	importAll(t, s, all, eventstore.ImportOptions{Progress: func(r eventstore.ImportResult) { batches = append(batches, r.Stored) }})
	if len(batches) != 2 || batches[0] != 16 {
		t.Errorf("batches end at %v, want each to end at 16 MiB", batches)
	}
}

// TestImportInAnySchema, also where a name in a statement is none.
func TestImportInAnySchema(t *testing.T) {
	t.Parallel()
	s := testkit.Store(t, eventstore.Config{URL: testkit.Empty(t), Schema: `we"ird 'Schéma.events`})
	all := history(t, 50, 5)
	for range 2 {
		importAll(t, s, all, eventstore.ImportOptions{Batch: 20})
	}
	checkImported(t, logged(t, s), all)
}

// TestImportIsIngestInBatches: whatever the history and its interruptions, the
// streams come out as if each batch had been ingested.
func TestImportIsIngestInBatches(t *testing.T) {
	t.Parallel()
	one, two := testkit.Store(t, eventstore.Config{}), testkit.Store(t, eventstore.Config{})
	ctx := testkit.Context(t)
	run := 0
	rapid.Check(t, func(r *rapid.T) {
		run++
		var all []weir.Message
		for i, at := range rapid.SliceOfN(rapid.IntRange(1, 40), 0, 40).Draw(r, "ids") {
			m := message(weir.Stream(fmt.Sprintf("run%d", run), fmt.Sprint(rapid.IntRange(1, 4).Draw(r, "stream"))), i)
			m.ID = weir.ID{5: 1, 14: byte(run), 15: byte(at)} // a few of them again, elsewhere
			all = append(all, m)
		}
		batch := rapid.IntRange(1, 15).Draw(r, "batch")
		for part := range slices.Chunk(all, batch) {
			if _, err := one.Ingest(ctx, true, slices.CompactFunc(firsts(part), func(a, b weir.Message) bool { return a.ID == b.ID })...); err != nil {
				r.Fatal(err)
			}
		}
		stop := rapid.IntRange(0, len(all)).Draw(r, "interrupted after")
		two.Import(ctx, source(all[:stop-stop%batch], nil), eventstore.ImportOptions{Batch: batch})
		if _, err := two.Import(ctx, source(all, nil), eventstore.ImportOptions{Batch: batch}); err != nil {
			r.Fatal(err)
		}
		for key := range 4 {
			stream := weir.Stream(fmt.Sprintf("run%d", run), fmt.Sprint(key+1))
			if a, b := ids(read(t, one, stream)), ids(read(t, two, stream)); !slices.Equal(a, b) {
				r.Fatalf("%s: ingested %v, imported %v", stream, a, b)
			}
		}
	})
}

// firsts are the messages without those whose id came before.
func firsts(all []weir.Message) (first []weir.Message) {
	seen := map[weir.ID]bool{}
	for _, m := range all {
		if !seen[m.ID] {
			first = append(first, m)
		}
		seen[m.ID] = true
	}
	return first
}
