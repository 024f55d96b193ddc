package weir_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"github.com/oklog/ulid/v2"
	"pgregory.net/rapid"

	"github.com/weir-es/weir"
)

var noon = time.Date(2026, 3, 14, 12, 0, 0, 0, time.UTC)

// idAt builds an id from its three parts.
func idAt(t time.Time, counter uint32, tail uint64) (id weir.ID) {
	binary.BigEndian.PutUint64(id[:8], uint64(t.UnixMilli())<<16)
	binary.BigEndian.PutUint32(id[6:10], counter)
	for i := range 6 {
		id[10+i] = byte(tail >> (40 - 8*i))
	}
	return id
}

func counterOf(id weir.ID) uint32 { return binary.BigEndian.Uint32(id[6:10]) }

// stopped is a generator whose clock a test moves by hand.
func stopped(at time.Time) (*weir.Generator, *time.Time) {
	now := &at
	return &weir.Generator{Clock: func() time.Time { return *now }}, now
}

// restless is a clock that ticks 10 µs a reading, goes back an hour at the 50,000th
// and forward an hour (from where it would have been) at the 150,000th. It keeps
// state without a lock: the generator promises to read it under its own.
func restless() func() time.Time {
	readings, step := 0, time.Duration(0)
	return func() time.Time {
		readings++
		switch readings {
		case 50_000:
			step = -time.Hour
		case 150_000:
			step = time.Hour
		}
		return noon.Add(step + time.Duration(readings)*10*time.Microsecond)
	}
}

func TestP5_IssueOrderIsByteOrder(t *testing.T) {
	const writers, each = 16, 20_000
	g := &weir.Generator{Clock: restless(), Ahead: 3 * time.Hour}
	var newest atomic.Pointer[weir.ID] // some id whose New has returned
	newest.Store(&weir.ID{})

	issued := make([][]weir.ID, writers)
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() { issued[w] = issue(t, g, &newest, each) })
	}
	all.Wait()

	ids := slices.Concat(issued...)
	slices.SortFunc(ids, weir.ID.Compare)
	if got := len(slices.Compact(ids)); got != writers*each {
		t.Errorf("%d distinct ids of %d", got, writers*each)
	}
}

// issue draws n ids and checks that each sorts after every id that had been issued
// anywhere before it was asked for. Now and then it drives the counter to its end.
func issue(t *testing.T, g *weir.Generator, newest *atomic.Pointer[weir.ID], n int) []weir.ID {
	ids := make([]weir.ID, 0, n)
	for i := range n {
		before := *newest.Load()
		id := g.New()
		if id.Compare(before) <= 0 {
			t.Errorf("issued %s after %s", id, before)
			return ids
		}
		newest.Store(&id)
		ids = append(ids, id)
		if i%1000 == 999 {
			exhaust(t, g, id)
		}
	}
	return ids
}

// exhaust leaves the generator at the last counter of the millisecond of id.
func exhaust(t *testing.T, g *weir.Generator, id weir.ID) {
	if err := g.Observe(idAt(ulid.Time(id.Time()), math.MaxUint32, 0)); err != nil {
		t.Error(err)
	}
}

func TestIDLayout(t *testing.T) {
	g, now := stopped(noon)
	g.Random = bytes.NewReader(slices.Concat(
		[]byte{0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6}, // starts the counter
		[]byte{0, 0, 0, 0, 0xf2, 0, 0, 0, 6, 5, 4, 3, 2, 1},          // grows it by 2 + 1
		[]byte{0, 0, 0, 9, 0xff, 0, 0, 0, 7, 7, 7, 7, 7, 7}))         // next millisecond
	first, second := g.New(), g.New()
	*now = now.Add(time.Millisecond)
	third := g.New()

	if first.Time() != uint64(noon.UnixMilli()) || counterOf(first) != math.MaxInt32 {
		t.Errorf("first id %s: time %d, counter %d", first, first.Time(), counterOf(first))
	}
	if second.Time() != first.Time() || counterOf(second) != counterOf(first)+3 {
		t.Errorf("second id %s: time %d, counter %d", second, second.Time(), counterOf(second))
	}
	if third.Time() != first.Time()+1 || counterOf(third) != 9>>1 {
		t.Errorf("third id %s: time %d, counter %d", third, third.Time(), counterOf(third))
	}
}

func TestCounterGrowsByOneToSixteen(t *testing.T) {
	g, _ := stopped(noon)
	before := g.New()
	for range 10_000 {
		id := g.New()
		if grown := counterOf(id) - counterOf(before); id.Time() != before.Time() || grown < 1 || grown > 16 {
			t.Fatalf("from %s to %s: counter grew by %d", before, id, grown)
		}
		before = id
	}
}

func TestExhaustedCounterBorrowsTheNextMillisecond(t *testing.T) {
	g, _ := stopped(noon)
	exhaust(t, g, g.New())
	g.Random = bytes.NewReader(bytes.Repeat([]byte{0xff}, 14))
	id := g.New()
	if id.Time() != uint64(noon.UnixMilli())+1 || counterOf(id) > math.MaxInt32 {
		t.Errorf("after the last counter: time %d, counter %d", id.Time(), counterOf(id))
	}
}

// TestClockStepsBackAndIDsDoNot, however far it steps.
// (oklog/ulid#121, LiosK/uuidv7#7)
func TestClockStepsBackAndIDsDoNot(t *testing.T) {
	g, now := stopped(noon)
	before := g.New()
	*now = noon.Add(-time.Hour)
	if id := g.New(); id.Time() != before.Time() || id.Compare(before) <= 0 {
		t.Errorf("issued %s after %s", id, before)
	}
	*now = noon.Add(time.Second)
	if id := g.New(); id.Time() != uint64(now.UnixMilli()) {
		t.Errorf("id %s does not follow the clock that caught up", id)
	}
}

func TestBrokenRandomSourceIsReplaced(t *testing.T) {
	g, _ := stopped(noon)
	g.Random = iotest.ErrReader(errors.New("unplugged"))
	if a, b := g.New(), g.New(); bytes.Equal(a[10:], b[10:]) {
		t.Errorf("ids %s and %s have the same random bits", a, b)
	}
}

func TestZeroGeneratorFollowsTheSystemClock(t *testing.T) {
	before := time.Now().UnixMilli()
	var g weir.Generator
	for _, id := range []weir.ID{g.New(), weir.NewID()} {
		if issued := int64(id.Time()); issued < before || issued > time.Now().UnixMilli()+1000 {
			t.Errorf("id %s is of %d, asked for at %d", id, issued, before)
		}
	}
}

func TestStandardGeneratorObserves(t *testing.T) {
	seen := idAt(time.Now().Add(20*time.Second), 7, 7)
	if err := weir.Observe(seen); err != nil {
		t.Fatal(err)
	}
	if id := weir.NewID(); id.Compare(seen) <= 0 {
		t.Errorf("issued %s after observing %s", id, seen)
	}
}

func TestObservedIDSortsBeforeTheNext(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g, _ := stopped(noon)
		g.New()
		seen := drawID(t, noon.Add(-time.Hour), noon.Add(weir.MaxAhead))
		if err := g.Observe(seen); err != nil {
			t.Fatal(err)
		}
		if id := g.New(); id.Compare(seen) <= 0 {
			t.Fatalf("issued %s after observing %s", id, seen)
		}
	})
}

// drawID draws an id of any counter and tail, with a bias to their ends.
func drawID(t *rapid.T, from, to time.Time) weir.ID {
	millis := rapid.Int64Range(from.UnixMilli(), to.UnixMilli()).Draw(t, "millis")
	counter := rapid.Uint32().Draw(t, "counter")
	tail := rapid.Uint64Range(0, 1<<48-1).Draw(t, "tail")
	return idAt(time.UnixMilli(millis), counter, tail)
}

// Whatever is issued, observed and refused, and however the clock steps: every id
// sorts after all that was issued or accepted before it.
// (oklog/ulid#121)
func TestHybridClockNeverGoesBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g, now := stopped(noon)
		var highest weir.ID
		t.Repeat(map[string]func(*rapid.T){
			"new": func(t *rapid.T) {
				id := g.New()
				if id.Compare(highest) <= 0 {
					t.Fatalf("issued %s, not after %s", id, highest)
				}
				highest = id
			},
			"observe": func(t *rapid.T) {
				id := drawID(t, now.Add(-2*time.Hour), now.Add(2*time.Hour))
				if g.Observe(id) == nil && id.Compare(highest) > 0 {
					highest = id
				}
			},
			"clock": func(t *rapid.T) {
				step := rapid.Int64Range(-int64(time.Hour), int64(time.Hour)).Draw(t, "step")
				*now = now.Add(time.Duration(step))
			},
		})
	})
}

func TestObserveRefusesTheFuture(t *testing.T) {
	for _, c := range []struct {
		name         string
		ahead, limit time.Duration
		refused      bool
	}{
		{"a minute is allowed", time.Minute, 0, false},
		{"a millisecond more is not", time.Minute + time.Millisecond, 0, true},
		{"a year", 365 * 24 * time.Hour, 0, true},
		{"as far as a duration reaches", math.MaxInt64 / 1e6 * 1e6, 0, true},
		{"narrower", 2 * time.Second, time.Second, true},
		{"wider", time.Hour, time.Hour, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			g, _ := stopped(noon)
			g.Ahead = c.limit
			checkObserve(t, g, idAt(noon.Add(c.ahead), 5, 5), c.refused)
		})
	}
}

// The whole range of an id's time is tried: past the year 2318 the distance to it
// does not fit a time.Duration.
func TestObserveRefusesAnyFuture(t *testing.T) {
	end := time.UnixMilli(int64(ulid.MaxTime()))
	for _, future := range []time.Time{end, noon.AddDate(293, 0, 0), noon.AddDate(600, 0, 0), noon.AddDate(5000, 0, 0)} {
		g, _ := stopped(noon)
		checkObserve(t, g, idAt(future, math.MaxUint32, 1<<48-1), true)
	}
	rapid.Check(t, func(t *rapid.T) {
		g, _ := stopped(noon)
		id := drawID(t, noon.Add(weir.MaxAhead+time.Millisecond), end)
		if err := g.Observe(id); err == nil {
			t.Fatalf("accepted %s, which is of %s", id, ulid.Time(id.Time()))
		}
	})
}

// checkObserve observes id and, where it is refused, that nothing has changed.
func checkObserve(t *testing.T, g *weir.Generator, id weir.ID, refused bool) {
	t.Helper()
	before := g.New()
	err := g.Observe(id)
	if !refused {
		if err != nil {
			t.Errorf("refused: %v", err)
		}
		return
	}
	var future *weir.FutureIDError
	if !errors.As(err, &future) {
		t.Fatalf("error %v, want a *FutureIDError", err)
	}
	if future.ID != id || future.Ahead <= future.Limit {
		t.Errorf("error says %+v", future)
	}
	if next := g.New(); next.Time() != before.Time() {
		t.Errorf("a refused id moved the clock from %d to %d", before.Time(), next.Time())
	}
}

func TestP3_DeriveRepeats(t *testing.T) {
	source := idAt(noon, 1000, 0xabcdef)
	got := weir.Derive(source, 3, "ticket")
	if again := weir.Derive(source, 3, "ticket"); again != got {
		t.Errorf("derived %s, then %s", got, again)
	}
	for name, other := range map[string]weir.ID{
		"another name":    weir.Derive(source, 3, "refund"),
		"another ordinal": weir.Derive(source, 4, "ticket"),
		"another source":  weir.Derive(idAt(noon, 1000, 0xabcdee), 3, "ticket"),
	} {
		if other == got {
			t.Errorf("%s gives the same id %s", name, got)
		}
	}
}

// The cause is issued first, what follows from it is derived, and then the generator
// goes on: that is the order in which the bytes sort.
func TestP5_DerivedIDsSortBetweenTheirSourceAndTheNext(t *testing.T) {
	for range 1000 {
		g, _ := stopped(noon)
		source := g.New()
		order := []weir.ID{source}
		for ordinal := range 20 {
			order = append(order, weir.Derive(source, ordinal, "x"))
		}
		order = append(order, weir.Derive(source, 4095, "x"), g.New())
		if !slices.IsSortedFunc(order, weir.ID.Compare) {
			t.Fatalf("source, derived and next are out of order:\n%s", lines(order))
		}
	}
}

func lines(ids []weir.ID) string {
	var b bytes.Buffer
	for _, id := range ids {
		fmt.Fprintf(&b, "%s %x\n", id, id[:])
	}
	return b.String()
}

func TestDeriveSaturates(t *testing.T) {
	source := idAt(noon, 1, 0)
	last := weir.Derive(source, 4095, "x")
	for _, ordinal := range []int{4096, 1 << 20, math.MaxInt} {
		id := weir.Derive(source, ordinal, "x")
		if !bytes.Equal(id[:11], last[:11]) || id[11]>>4 != last[11]>>4 || id == last {
			t.Errorf("ordinal %d gives %x, the last place is %x", ordinal, id[:], last[:])
		}
	}
	if first, before := weir.Derive(source, 0, "x"), weir.Derive(source, -1, "x"); first == before || before.Compare(last) >= 0 {
		t.Errorf("ordinal -1 gives %x, ordinal 0 %x", before[:], first[:])
	}
}

func TestP3_DerivedIDsDoNotCollide(t *testing.T) {
	const sources, each = 500, 2000
	var g weir.Generator
	ids := make([]weir.ID, 0, sources*each)
	for range sources {
		source := g.New()
		for ordinal := range each {
			ids = append(ids, weir.Derive(source, ordinal, "item"))
		}
	}
	slices.SortFunc(ids, weir.ID.Compare)
	if got := len(slices.Compact(ids)); got != sources*each {
		t.Errorf("%d distinct ids of %d", got, sources*each)
	}
}

// A handler emits while it handles what another handler emitted, and so on: each
// effect sorts after its cause, and the whole chain before what comes next.
func TestP5_EffectsOfEffectsSortAfterTheirCause(t *testing.T) {
	for range 1000 {
		g, _ := stopped(noon)
		chain := []weir.ID{g.New()}
		for depth := range 50 {
			chain = append(chain, weir.Derive(chain[depth], depth%3, "step"))
		}
		chain = append(chain, g.New())
		if !slices.IsSortedFunc(chain, weir.ID.Compare) {
			t.Fatalf("a chain of effects is out of order:\n%s", lines(chain))
		}
	}
}

// Of any source, also one that another program made, a derived id shares the time
// and the counter, and a higher ordinal never has a lower place.
func TestDeriveKeepsOrdinalOrder(t *testing.T) {
	place := func(id weir.ID) uint16 { return binary.BigEndian.Uint16(id[10:12]) >> 4 }
	rapid.Check(t, func(t *rapid.T) {
		source := drawID(t, time.UnixMilli(0), noon)
		low := rapid.IntRange(0, 5000).Draw(t, "low")
		high := rapid.IntRange(low, 5000).Draw(t, "high")
		a := weir.Derive(source, low, rapid.String().Draw(t, "a"))
		b := weir.Derive(source, high, rapid.String().Draw(t, "b"))
		if place(a) > place(b) {
			t.Fatalf("ordinal %d gives %s, %d gives %s", low, a, high, b)
		}
		if !bytes.Equal(a[:10], source[:10]) {
			t.Fatalf("derived %x does not share 80 bits with %x", a[:], source[:])
		}
	})
}

// history is a log of n events with times a few milliseconds apart and many equal.
func history(t *rapid.T) []time.Time {
	gaps := rapid.SliceOfN(rapid.Int64Range(-3, 3), 1, 60).Draw(t, "gaps")
	times := make([]time.Time, len(gaps))
	for i, gap := range gaps {
		times[i] = noon.Add(time.Duration(gap) * time.Millisecond)
	}
	return times
}

func importAll(t interface{ Fatal(...any) }, name string, times []time.Time) []weir.ID {
	importer := weir.Import(name)
	ids := make([]weir.ID, len(times))
	for i, at := range times {
		id, err := importer.At(at)
		if err != nil {
			t.Fatal(err)
		}
		ids[i] = id
	}
	return ids
}

func TestP3_ImportRepeats(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		times := history(t)
		ids := importAll(t, "log", times)
		if again := importAll(t, "log", times); !slices.Equal(ids, again) {
			t.Fatalf("imported as\n%sthen as\n%s", lines(ids), lines(again))
		}
		other := importAll(t, "other log", times)
		for i := range ids {
			if ids[i] == other[i] {
				t.Fatalf("two logs share id %s", ids[i])
			}
		}
	})
}

func TestP5_ImportKeepsTheOrderOfALog(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		times := history(t)
		ids := importAll(t, "log", times)
		for i, id := range ids {
			if id.Time() != uint64(times[i].UnixMilli()) {
				t.Fatalf("event %d of %s has id %s of %d", i, times[i], id, id.Time())
			}
			for j := range i {
				if order := times[j].Compare(times[i]); order <= 0 && ids[j].Compare(id) >= 0 {
					t.Fatalf("event %d of %s sorts after event %d of %s", j, times[j], i, times[i])
				}
			}
		}
	})
}

func TestImportRefusesTimesThatFitNoID(t *testing.T) {
	end := time.UnixMilli(int64(ulid.MaxTime()))
	for _, c := range []struct {
		name string
		time time.Time
		fits bool
	}{
		{"the first millisecond", time.UnixMilli(0), true},
		{"before 1970", time.UnixMilli(-1), false},
		{"the zero time", time.Time{}, false},
		{"the last millisecond", end, true},
		{"after 10889", end.Add(time.Millisecond), false},
		{"so late that milliseconds overflow", time.Unix(1<<61, 0), false},
		{"so early that milliseconds overflow", time.Unix(-1<<61, 0), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			id, err := weir.Import("log").At(c.time)
			var invalid *weir.InvalidTimeError
			switch {
			case c.fits && err != nil:
				t.Error(err)
			case !c.fits && !errors.As(err, &invalid):
				t.Errorf("gave %s and %v, want an *InvalidTimeError", id, err)
			case !c.fits && !invalid.Time.Equal(c.time):
				t.Errorf("error names %s", invalid.Time)
			}
		})
	}
}

func BenchmarkNewID(b *testing.B) {
	var g weir.Generator
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			g.New()
		}
	})
}

func BenchmarkDerive(b *testing.B) {
	source := weir.NewID()
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		weir.Derive(source, i&4095, "item")
	}
}
