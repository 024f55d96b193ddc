package eventstore_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/eventstore"
	"github.com/weir-es/weir/internal/testkit"
)

// oddities are payloads of JSON that others have lost something of.
var oddities = []string{
	`"it's"`, `"'; drop table weir.events; --"`, `"back\\slash \\' $1 $$ %s"`, `"\u0000"`, `{"\u0000":"a\u0000b"}`, `"\ud800"`, `"\udc00\ud800"`,
	`9007199254740993`, `18446744073709551616`, `1e400`, `1E-400`, `-0`, `1e131072`, `0.10000000000000000000000000000000001`,
	` {"b" : 1,	"a":2, "b":3 }` + "\r\n", `[]`, `null`, `""`, `"é\u00e9e\u0301"`, `"😀\ud83d\ude00"`, "\"\u2028\u2029\u007f\ufeff\"",
	strings.Repeat("[", 128) + strings.Repeat("]", 128),
}

// TestBytesComeBackExactly: what was given in is given out, whatever it is.
// (ocoda#449: an apostrophe; coder#22637: NUL; aneshas: round trip of metadata)
func TestBytesComeBackExactly(t *testing.T) {
	t.Parallel()
	s := testkit.Store(t, eventstore.Config{})
	ctx := testkit.Context(t)
	var all []weir.Message
	for _, text := range oddities {
		all = append(all, weir.Message{ID: weir.NewID(), Type: "test.odd", Data: []byte(text)})
	}
	binary := make([]byte, 256)
	for i := range binary {
		binary[i] = byte(i)
	}
	for _, data := range [][]byte{binary, {0}, {0xff, 0xfe}, {}, []byte(`{"a":1}`)} {
		all = append(all, weir.Message{ID: weir.NewID(), Type: "test.bytes", Data: data, Metadata: weir.Metadata{ContentType: "application/x-odd"}})
	}
	megabyte := bytes.Repeat([]byte("é'\\"), 1<<20/4)
	all = append(all, weir.Message{ID: weir.NewID(), Type: "test.large", Data: megabyte, Metadata: weir.Metadata{ContentType: "text/plain; charset=utf-8"}})
	for _, text := range []string{"it's", `\`, "\r\n\t", "<&>\u2028", "é😀", strings.Repeat("x", 1000), "$1%s{}\"'`"} {
		all = append(all, weir.Message{ID: weir.NewID(), Type: "test." + string([]rune(text)[:1]), Data: []byte("1"), Metadata: weir.Metadata{
			Correlation: text, Causation: text, Producer: text, TraceParent: text, TraceState: text, Extra: map[string]string{text: text, "": ""}}})
	}
	got, err := s.Append(ctx, "odd-1", weir.NewStream, all...)
	if err != nil {
		t.Fatal(err)
	}
	again, err := s.Append(ctx, "odd-1", weir.NewStream, all...) // read back as a repeat
	if err != nil {
		t.Fatal(err)
	}
	stored := read(t, s, "odd-1")
	for name, events := range map[string][]weir.Event{"returned": got, "returned again": again, "read": stored, "in the log": logged(t, s)} {
		if len(events) != len(all) {
			t.Fatalf("%s: %d of %d events", name, len(events), len(all))
		}
		for i, e := range events {
			want := all[i]
			if !bytes.Equal(e.Data, want.Data) || e.Type != want.Type || fmt.Sprint(e.Metadata) != fmt.Sprint(want.Metadata) {
				t.Errorf("%s, event %d: %.80q %.80v, want %.80q %.80v", name, i, e.Data, e.Metadata, want.Data, want.Metadata)
			}
		}
	}
}

// TestStreamsOfAnyName keep their names and are kept apart.
func TestStreamsOfAnyName(t *testing.T) {
	t.Parallel()
	s := testkit.Store(t, eventstore.Config{})
	names := []weir.StreamID{"a-it's", `a-"quoted"`, "a-line\nbreak", "a-😀", `a-\`, "a- ", "a-  ", "a-*", "a->", "a-.", "a-%", "a-é", "a-e\u0301", "A-x", "a-X", "a-x",
		"a--", "a-b-c", " -x", "a-$1", "a-{1,2}", "a-NULL", weir.StreamID("a-" + strings.Repeat("é", 511)), "a-a\x7f\x01"}
	var wg sync.WaitGroup
	for _, name := range names {
		wg.Go(func() {
			if _, err := s.Append(testkit.Context(t), name, weir.NewStream, messages(name, 2)...); err != nil {
				t.Errorf("%q: %v", name, err)
			}
		})
	}
	wg.Wait()
	for _, name := range names {
		events := read(t, s, name)
		if len(events) != 2 || events[0].Stream != name || events[1].Version != 2 {
			t.Errorf("%q: %v", name, events)
		}
	}
	if got := len(logged(t, s)); got != 2*len(names) {
		t.Errorf("%d events", got)
	}
}

// TestP9_LargestAppend is ten thousand messages, and one more is refused.
func TestP9_LargestAppend(t *testing.T) {
	t.Parallel()
	s := testkit.Store(t, eventstore.Config{})
	all := messages("a-1", eventstore.MaxBatch)
	rand.New(rand.NewPCG(1, 1)).Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	events, err := s.Append(testkit.Context(t), "a-1", weir.NewStream, all...)
	if err != nil {
		t.Fatal(err)
	}
	for i, e := range events {
		if e.ID != all[i].ID {
			t.Fatalf("event %d answers another message", i)
		}
	}
	stored := read(t, s, "a-1")
	if len(stored) != len(all) || !slices.IsSortedFunc(stored, weir.CompareEvents) {
		t.Errorf("%d events stored, sorted %v", len(stored), slices.IsSortedFunc(stored, weir.CompareEvents))
	}
	if _, err := s.Append(testkit.Context(t), "a-1", weir.AnyVersion, messages("a-1", eventstore.MaxBatch+1)...); err == nil {
		t.Error("one more was taken")
	}
	var large *weir.TooLargeError
	huge := message("a-1", 1)
	huge.Data = bytes.Repeat([]byte("1"), weir.MaxDataBytes+1)
	if _, err := s.Append(testkit.Context(t), "a-1", weir.AnyVersion, huge); !errors.As(err, &large) {
		t.Errorf("a payload of a byte too many: %v", err)
	}
}

// TestP8_PoisonInAGroupIsItsOwn: what the database refuses takes none of those
// along that share its transaction. Go's validation leaves nothing that PostgreSQL
// refuses by itself (the payloads and names above are the attempts), so here an
// operator's rules refuse a payload, metadata, a type, and the name of a stream.
func TestP8_PoisonInAGroupIsItsOwn(t *testing.T) {
	t.Parallel()
	s := testkit.Store(t, eventstore.Config{})
	ctx := testkit.Context(t)
	for table, rule := range map[string]string{
		"events":  "concat(type, data, metadata) not like '%poison%'",
		"streams": "name not like 'poison%'",
	} {
		exec(t, s, "alter table weir."+table+" add constraint no_poison check ("+rule+")")
	}
	poison := func(kind, n int) (weir.StreamID, weir.Message) {
		stream := weir.Stream("bad", fmt.Sprint(n))
		m := message(stream, n)
		switch kind {
		case 0:
			m.Data = []byte(`"poison"`)
		case 1:
			m.Metadata.Extra = map[string]string{"a": "poison"}
		case 2:
			m.Type = "poison"
		case 3:
			stream = weir.Stream("poison", fmt.Sprint(n))
		}
		return stream, m
	}
	var wg sync.WaitGroup
	for n := range 60 {
		wg.Go(func() {
			stream := weir.Stream("good", fmt.Sprint(n%5))
			if _, err := s.Append(ctx, stream, weir.AnyVersion, message(stream, n)); err != nil {
				t.Errorf("a good append: %v", err)
			}
		})
		if n%6 == 0 {
			wg.Go(func() {
				stream, m := poison(n/6%4, n)
				if _, err := s.Append(ctx, stream, weir.AnyVersion, m); !eventstore.IsRefused(err) {
					t.Errorf("poison of kind %d: %v", n/6%4, err)
				}
			})
		}
	}
	wg.Wait()
	if got := len(logged(t, s)); got != 60 {
		t.Errorf("%d events, want 60", got)
	}
}

// TestConflictIsTheSameInARace as it is in the simple case.
// (nats-server#4320: a broker that was to decide)
func TestConflictIsTheSameInARace(t *testing.T) {
	t.Parallel()
	url := testkit.Database(t)
	stores := []*eventstore.Store{testkit.Store(t, eventstore.Config{URL: url}), testkit.Store(t, eventstore.Config{URL: url})}
	for round := range 20 {
		stream := weir.Stream("race", fmt.Sprint(round))
		results := make(chan error, 4)
		for n := range 4 {
			go func() {
				_, err := stores[n%2].Append(testkit.Context(t), stream, weir.NewStream, message(stream, n))
				results <- err
			}()
		}
		won := 0
		for range 4 {
			err := <-results
			var conflict *weir.ConflictError
			switch {
			case err == nil:
				won++
			case !errors.As(err, &conflict) || !errors.Is(err, weir.ErrConflict) || conflict.Stream != stream || conflict.Actual != 1:
				t.Errorf("lost a race: %v", err)
			}
		}
		if won != 1 {
			t.Errorf("%d appends to a new stream succeeded", won)
		}
	}
}

// TestP3_OneIDInTwoStreams is one event: the second stream gets nothing, also when
// both come at once from different processes.
func TestP3_OneIDInTwoStreams(t *testing.T) {
	t.Parallel()
	url := testkit.Database(t)
	stores := []*eventstore.Store{testkit.Store(t, eventstore.Config{URL: url}), testkit.Store(t, eventstore.Config{URL: url})}
	ctx := testkit.Context(t)
	for round := range 20 {
		m := message("a-1", round)
		results := make(chan error, 6)
		for n := range 6 {
			go func() {
				fact := m
				fact.Stream = weir.Stream("s", fmt.Sprint(round, "_", n))
				_, err := stores[n%2].Ingest(ctx, n%3 == 0, fact)
				results <- err
			}()
		}
		for range 6 {
			if err := <-results; err != nil {
				t.Errorf("round %d: %v", round, err)
			}
		}
	}
	if got := len(logged(t, stores[0])); got != 20 {
		t.Errorf("%d events are stored of 20 ids", got)
	}
}
