package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/internal/testkit"
	"github.com/weir-es/weir/projection"
)

// TestMain is a producer where a test of fan-in has started it as one.
func TestMain(m *testing.M) {
	if isChild() {
		main()
		return
	}
	testkit.Main(m)
}

// fanned runs fan-in and reads what it prints.
func fanned(t *testing.T, arguments string) (v verdict) {
	t.Helper()
	var out bytes.Buffer
	err := run(testkit.Context(t), strings.Fields("-run fan-in -json "+arguments), &out)
	if err := json.Unmarshal(out.Bytes(), &v); err != nil {
		t.Errorf("%v: %s", err, out.String())
	}
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestP5_RowsAreASortedFold whatever the windows; make chaos has ten long days of each.
func TestP5_RowsAreASortedFold(t *testing.T) {
	for windows := range policies {
		t.Run(windows, func(t *testing.T) {
			v := fanned(t, "-events 2000 -rate 2000 -skew 500ms -delay 0..500ms -observe=false -seed 7 -windows "+windows)
			if v.Events != 2000 || v.Rows != 100 || v.WrongRows+v.Lost+v.Duplicated > 0 {
				t.Errorf("got %+v", v)
			}
			if windows == "off" && (v.Inversions == 0 || v.Rewinds.Full+v.Rewinds.Snapshot == 0 || v.Replayed < v.Inversions) {
				t.Errorf("nothing came late, so nothing was shown: %+v", v)
			}
			if v.Latency.P50 <= 0 || v.Latency.P99 < v.Latency.P50 || v.Latency.P99 > 60_000 {
				t.Errorf("latency is %+v", v.Latency)
			}
		})
	}
}

// TestP5_WindowsWiderThanTheDelayLeaveNothingToRewind although clocks are 2 s apart,
// since producers know of each other. The delay is far below the 300 ms of the window,
// but a busy machine adds its own, so one try of some has to have none; without
// windows no try has.
func TestP5_WindowsWiderThanTheDelayLeaveNothingToRewind(t *testing.T) {
	for seed := range 5 {
		v := fanned(t, fmt.Sprint("-events 800 -rate 800 -skew 1s -delay 0..50ms -windows fixed -seed ", seed))
		if v.Inversions+v.Rewinds.Full+v.Rewinds.Snapshot+v.Replayed == 0 {
			return
		}
		t.Logf("seed %d: held back for up to %.0f ms, %d inversions", seed, v.Held, v.Inversions)
	}
	t.Error("windows of 300 ms do not catch delays of 50 ms")
}

func TestThePrintedObjectHasTheseNames(t *testing.T) {
	var out bytes.Buffer
	if err := new(verdict).print(&out, options{json: true}); err != nil {
		t.Fatal(err)
	}
	const want = `{"events":0,"rows":0,"wrong_rows":0,"inversions":0,"rewinds":{"snapshot":0,"full":0},"events_replayed":0,` +
		`"latency_ms":{"p50":0,"p99":0},"lost":0,"duplicated":0,"held_ms":0}`
	if got := strings.TrimSpace(out.String()); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// said are three messages of one stream and one of another, in another order than
// they were emitted in.
func said() []sent {
	word := func(stream weir.StreamID, id byte, number int) sent {
		return sent{ID: weir.ID{id}, Stream: stream, Note: noted{1, number}}
	}
	return []sent{word("a", 3, 30), word("a", 1, 10), word("b", 9, 90), word("a", 2, 20)}
}

// linked is a row that has seen the numbers in this order.
func linked(key string, last byte, numbers ...int) projection.Row[chain] {
	var state chain
	for _, n := range numbers {
		state = state.Evolve(noted{1, n})
	}
	return projection.Row[chain]{Key: key, State: state, Version: weir.Version(len(numbers)), EventID: weir.ID{last}}
}

func TestAWrongRowIsFound(t *testing.T) {
	right, other := linked("a", 3, 10, 20, 30), linked("b", 9, 90)
	behind := right
	behind.Version = 2
	for _, c := range []struct {
		name  string
		rows  []projection.Row[chain]
		wrong int
		why   string
	}{
		{"right", []projection.Row[chain]{right, other}, 0, ""},
		{"as they came", []projection.Row[chain]{linked("a", 3, 30, 10, 20), other}, 1, "instead of"},
		{"two swapped", []projection.Row[chain]{linked("a", 3, 20, 10, 30), other}, 1, "instead of"},
		{"one missed", []projection.Row[chain]{linked("a", 3, 10, 30), other}, 1, "instead of"},
		{"one twice", []projection.Row[chain]{linked("a", 3, 10, 20, 20, 30), other}, 1, "instead of"},
		{"another's event", []projection.Row[chain]{right, linked("b", 9, 91)}, 1, "instead of"},
		{"a version that says less", []projection.Row[chain]{behind, other}, 1, "version 2 of 3"},
		{"the wrong last id", []projection.Row[chain]{linked("a", 2, 10, 20, 30), other}, 1, "ends with"},
		{"missing", []projection.Row[chain]{other}, 1, "row a of view chain is missing"},
		{"made of nothing", []projection.Row[chain]{right, other, linked("c", 1, 1)}, 1, "without events"},
	} {
		var v verdict
		checkRows(&v, "chain", byStream(said()), c.rows)
		err := v.complaint()
		if v.WrongRows != c.wrong || v.Rows != 2 || (err == nil) != (c.wrong == 0) || err != nil && !strings.Contains(err.Error(), c.why) {
			t.Errorf("%s: %d wrong of %d: %v", c.name, v.WrongRows, v.Rows, err)
		}
	}
}

// TestTheLastValueIsThatOfTheHighestID, not of the last to come.
func TestTheLastValueIsThatOfTheHighestID(t *testing.T) {
	row := projection.Row[latest]{Key: "a", State: latest{noted{1, 20}}, Version: 3, EventID: weir.ID{3}}
	if differs(byStream(said())["a"], row) == "" {
		t.Error("the value of the last to come passes")
	}
	row.State.Number = 30
	if why := differs(byStream(said())["a"], row); why != "" {
		t.Error(why)
	}
}

func TestWhatIsStoredIsComparedWithWhatWasSent(t *testing.T) {
	for _, c := range []struct {
		ids              []byte
		lost, duplicated int
		why              string
	}{
		{[]byte{3, 1, 9, 2}, 0, 0, ""},
		{[]byte{3, 9, 2}, 1, 0, "is not stored"},
		{[]byte{3, 1, 9, 2, 9}, 0, 1, "stored twice"},
		{[]byte{3, 1, 9, 2, 5}, 0, 0, "nobody has sent it"},
	} {
		var stored []delivery
		for _, id := range c.ids {
			stored = append(stored, delivery{id: weir.ID{id}})
		}
		var v verdict
		v.checkStored(said(), stored)
		err := v.complaint()
		if v.Events != 4 || v.Lost != c.lost || v.Duplicated != c.duplicated || (err == nil) != (c.why == "") || err != nil && !strings.Contains(err.Error(), c.why) {
			t.Errorf("%v: %+v: %v", c.ids, v, err)
		}
	}
}

func TestWhatAViewFindsItselfCounts(t *testing.T) {
	for _, found := range []projection.Verified{
		{Wrong: 1, Differences: []projection.Difference{{Key: "a", What: "order"}}},
		{Behind: 1},
	} {
		var v verdict
		v.checkVerified("chain", found)
		if v.complaint() == nil {
			t.Errorf("%+v is no complaint", found)
		}
	}
}

// TestLatencyEndsWhenTheVersionIsSeen: all events up to a row's version are in it.
func TestLatencyEndsWhenTheVersionIsSeen(t *testing.T) {
	zero, w := time.Unix(0, 0), newWatch(nil)
	at := func(ms int) time.Time { return zero.Add(time.Duration(ms) * time.Millisecond) }
	w.note(place{"a", 2}, at(20))
	w.note(place{"a", 2}, at(40))
	w.note(place{"a", 3}, at(60))
	all := []sent{{ID: weir.ID{1}, At: at(5)}, {ID: weir.ID{2}, At: at(10)}, {ID: weir.ID{3}, At: at(20)}, {ID: weir.ID{4}, At: at(20)}}
	stored := []delivery{{id: weir.ID{2}, stream: "a", version: 1}, {id: weir.ID{1}, stream: "a", version: 2}, {id: weir.ID{3}, stream: "a", version: 3}}
	got := w.latencies(all, stored)
	if want := []time.Duration{10e6, 15e6, 40e6}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestMessagesAreHeldBackAndOvertakeEachOther, each for a time of its own, counted from
// when its id was issued by the producer's own clock.
func TestMessagesAreHeldBackAndOvertakeEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said bytes.Buffer
		var gone []weir.ID
		e := errand{Seed: 3, Events: 3000, Every: time.Millisecond, Ahead: -time.Second, Delay: span{10 * time.Millisecond, 50 * time.Millisecond}, Turns: 2}
		p, err := newProducer(e, func(_ context.Context, m weir.Message) error { gone = append(gone, m.ID); return nil }, json.NewEncoder(&said))
		if err != nil {
			t.Fatal(err)
		}
		p.start = time.Now()
		if err := p.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		words := json.NewDecoder(&said)
		overtaken, first := 0, map[string]bool{}
		for i, id := range gone {
			var s sent
			if err := words.Decode(&s); err != nil || s.ID != id {
				t.Fatalf("message %d: said %+v of %s: %v", i, s, id, err)
			}
			if held := s.At.Sub(s.Issued); held < e.Delay.Least || held > e.Delay.Most {
				t.Errorf("message %d was held back for %s", i, held)
			}
			if s.ID.Time() != uint64(s.Issued.Add(e.Ahead).UnixMilli()) {
				t.Errorf("message %d was issued at %s and has the id %s", i, s.Issued, s.ID)
			}
			if i > 0 && id.Compare(gone[i-1]) < 0 {
				overtaken++
			}
			if second := s.Issued.Sub(p.start) / turnLength; (s.Stream < "chaos-175") != (second%2 == 0) {
				t.Errorf("message %d of second %d is of %s", i, second, s.Stream)
			}
			first[string(s.Stream)] = true
		}
		if len(gone) != e.Events || overtaken < e.Events/4 || len(first) < 340 {
			t.Errorf("%d sent, %d after one that sorts after it, %d streams", len(gone), overtaken, len(first))
		}
	})
}

// TestClocksAreSpread over all that is allowed, by the seed alone.
func TestClocksAreSpread(t *testing.T) {
	orders := map[string]bool{}
	for seed := range uint64(20) {
		f := fan{options: options{seed: seed, producers: 5, skew: 2 * time.Second}}
		clocks := f.clocks()
		orders[fmt.Sprint(clocks)] = true
		if again := f.clocks(); !slices.Equal(again, clocks) {
			t.Errorf("seed %d: %v, then %v", seed, clocks, again)
		}
		slices.Sort(clocks)
		if want := []time.Duration{-2e9, -1e9, 0, 1e9, 2e9}; !slices.Equal(clocks, want) {
			t.Errorf("seed %d: %v", seed, clocks)
		}
	}
	if len(orders) < 10 {
		t.Errorf("20 seeds give %d orders", len(orders))
	}
}

// TestProducersShareAllEvents, whatever the numbers.
func TestProducersShareAllEvents(t *testing.T) {
	f := fan{options: options{producers: 3, events: 100, rate: 10}}
	total := 0
	for _, e := range f.errands() {
		total += e.Events
		if e.Every != 300*time.Millisecond {
			t.Errorf("producer %d issues an event every %s", e.Producer, e.Every)
		}
	}
	if total != 100 {
		t.Errorf("%d events in all", total)
	}
}

// TestAProducerThatFailsEndsTheRun, and the error is what it said itself.
func TestAProducerThatFailsEndsTheRun(t *testing.T) {
	patient := errand{Producer: 0, NATS: testkit.NATS(t), Namespace: "weir", Events: 1, Every: time.Second, Turns: 1}
	hasty := patient
	hasty.Producer, hasty.Namespace = 1, "NOT A NAME"
	_, err := produceAll(testkit.Context(t), []errand{patient, hasty})
	if err == nil || !strings.Contains(err.Error(), "producer 1") || !strings.Contains(err.Error(), "NOT A NAME") {
		t.Errorf("got %v", err)
	}
}

// TestAProducerEndsWithItsParent, however long it would have gone on.
func TestAProducerEndsWithItsParent(t *testing.T) {
	url := testkit.NATS(t)
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	orders, parent := io.Pipe()
	heard, words := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- produce(testkit.Context(t), orders, words) }()
	to, from := json.NewEncoder(parent), json.NewDecoder(heard)
	e := errand{NATS: url, Namespace: "weir", Events: 1, Every: time.Second, Turns: 1, Observe: true}
	if err := to.Encode(e); err != nil {
		t.Fatal(err)
	}
	if err := from.Decode(new(string)); err != nil {
		t.Fatal(err)
	}
	if err := to.Encode(time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	parent.Close()
	if err := <-ended; err == nil {
		t.Error("it ended well")
	}
}

// TestProducersThatObserveAgree on the time of the one that is furthest ahead.
func TestProducersThatObserveAgree(t *testing.T) {
	url := testkit.NATS(t)
	ctx, stop := context.WithCancel(testkit.Context(t))
	defer stop()
	ahead := &weir.Generator{Clock: func() time.Time { return time.Now().Add(10 * time.Second) }}
	behind := &weir.Generator{Clock: func() time.Time { return time.Now().Add(-10 * time.Second) }}
	for _, ids := range []*weir.Generator{ahead, behind} {
		end, err := gossip(ctx, url, ids)
		if err != nil {
			t.Fatal(err)
		}
		defer end()
	}
	now := time.Now()
	testkit.Await(t, 10*time.Second, "the one behind to follow", func() bool {
		return behind.New().Time() >= uint64(now.Add(10*time.Second).UnixMilli())
	})
}
