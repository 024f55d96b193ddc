package batching

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestAdaptiveWindows(t *testing.T) {
	for _, s := range []script{
		{name: "what comes in order waits 2 ms", arrivals: "a1@0 a2@10 a3@20", want: "2:a1 12:a2 22:a3"},
		{name: "a late one widens at once", arrivals: "a1@0 a3@10 a2@18 a4@30", want: "2:a1 12:a3 48:a2,a4"},
		{name: "the next late one is caught", arrivals: "a3@10 a2@18 a4@100 a6@110 a5@118", want: "12:a3 36:a2 136:a4,a5,a6"},
		{name: "a category learns for itself", arrivals: "a3@10 b3@11 a2@18 b4@20 b5@30", want: "12:a3 13:b3 22:b4 32:b5 36:a2"},
		{name: "the window is the most", arrivals: "a2@0 a1@49 a3@80 a4@200", want: "2:a2 130:a1,a3 250:a4"},
		{name: "what comes later than the window gets the whole window", arrivals: "a2@0 a3@40 a1@60 a4@100", want: "2:a2 42:a3 150:a1,a4"},
		{name: "what comes when all is forgotten is on time", arrivals: "a2@0 a1@160 a3@200", want: "2:a2 162:a1 202:a3"},
		{name: "a repeat is not late", arrivals: "a2@0 a2@10 a3@20", want: "2:a2 12:a2 22:a3"},
		{name: "one that repeats an older one is", arrivals: "a1@0 a2@10 a1@18 a3@30", want: "2:a1 12:a2 48:a1,a3"},
	} {
		t.Run(s.name, func(t *testing.T) {
			s.window = narrow
			s.gauge = &Gauge{Policy: Adaptive(narrow)}
			s.compare(t)
		})
	}
}

func TestOffWaitsForNothing(t *testing.T) {
	s := script{window: narrow, gauge: &Gauge{Policy: Off(narrow)}, arrivals: "a1@0 a3@5 a2@6", want: "0:a1 5:a3 6:a2"}
	s.compare(t)
}

func TestFixedWaitsTheSameWhateverComes(t *testing.T) {
	s := script{window: narrow, gauge: &Gauge{Policy: Fixed(narrow)}, arrivals: "a1@0 a3@60 a2@65 a4@200", want: "50:a1 115:a2,a3 250:a4"}
	s.compare(t)
}

// Each shard has a Collector; what one learns is for all.
func TestCollectorsShareWhatTheyLearn(t *testing.T) {
	g := &Gauge{Policy: Adaptive(narrow)}
	script{window: narrow, gauge: g, arrivals: "a3@10 a2@18", want: "12:a3 36:a2"}.compare(t)
	script{window: narrow, gauge: g, arrivals: "a1@0", want: "18:a1"}.compare(t)
}

// A deadline that becomes an earlier one must move the timer: here it stands at
// 50 ms for the quiet of a, when b comes which waits 2 ms.
func TestATimerDoesNotWaitForTheWidest(t *testing.T) {
	s := script{window: narrow, gauge: &Gauge{Policy: Adaptive(narrow)},
		arrivals: "a2@0 a1@40 b1@45", want: "2:a2 47:b1 90:a1"}
	s.compare(t)
}

// Eight items a second, each pair in the wrong order, ask for a Quiet that the next
// item never leaves alone. (jasperfx#533, wolverine#3502)
func TestALateTrickleIsNotHeldLongerThanMaxAge(t *testing.T) {
	var arrivals []string
	for n := range 160 {
		arrivals = append(arrivals, fmt.Sprintf("a%d@%d", n^1, 125*n))
	}
	g := &Gauge{Policy: Adaptive(Inbox)}
	seen, err := script{arrivals: strings.Join(arrivals, " "), window: Inbox, gauge: g}.play(t)
	if err != nil {
		t.Fatal(err)
	}
	held := false
	for _, call := range strings.Fields(seen) {
		when, names, _ := strings.Cut(call, ":")
		_, at := parse("flush@" + when)
		for _, name := range strings.Split(names, ",") {
			waited := at - 125*(parseItem(name).number^1)
			held = held || waited > 2900
			if waited > 3000 {
				t.Errorf("%s waited %d ms in the window, want at most 3000", name, waited)
			}
		}
	}
	if s := g.Stats()["a"]; !held || s.Late != 80 || s.Quiet < ms(250) || s.WaitP99 > ms(3600) {
		t.Errorf("a window that nothing held open proves nothing: %+v", s)
	}
}

func TestOneLateItemWidensAtOnceAndNarrowsSlowly(t *testing.T) {
	now := time.Now()
	d := newDial(Adaptive(Window{Quiet: time.Second}))
	second := func() { // of 1000 items on time
		now = now.Add(time.Second)
		d.arrived(now, 1000)
	}
	for range 10 {
		second()
	}
	if q := d.read().Quiet; q != leastQuiet {
		t.Fatalf("Quiet is %v before anything was late", q)
	}
	d.late(now, ms(100))
	d.late(now, ms(10)) // a small one takes nothing back
	before := d.read().Quiet
	if before != ms(200) {
		t.Fatalf("Quiet is %v after an item late by 100 ms", before)
	}
	for n := 1; n <= 40; n++ {
		second()
		q := d.read().Quiet
		if q > before {
			t.Fatalf("Quiet went up from %v to %v, and nothing was late", before, q)
		}
		if want := ms(200) >> (n / 5); n%5 == 0 && q != max(want, leastQuiet) {
			t.Errorf("Quiet is %v after %d s, want %v", q, n, want)
		}
		before = q
	}
}

// What no window would have caught is worth nobody's wait while it is seldom. When it
// is not, wide windows pay all the same: several late items are one rewind.
func TestOneThatIsHopelesslyLateWidensNothing(t *testing.T) {
	now := time.Now()
	d := newDial(Adaptive(narrow))
	d.arrived(now, 5000)
	d.late(now, 2*narrow.Quiet)
	if q := d.read().Quiet; q != leastQuiet {
		t.Errorf("Quiet is %v after one of 5000", q)
	}
	for range 9 {
		d.late(now, 2*narrow.Quiet)
	}
	if q := d.read().Quiet; q != narrow.Quiet {
		t.Errorf("Quiet is %v after ten of 5000", q)
	}
}

// One in a hundred is late by 50 ms, for an hour: the window is there for it all
// the time, and shrinks again when that ends.
func TestQuietIsThereForOneInAThousand(t *testing.T) {
	now := time.Now()
	d := newDial(Adaptive(Window{}))
	for n := range 360_000 {
		now = now.Add(ms(10))
		d.arrived(now, 1)
		if n%100 == 0 {
			d.late(now, ms(50))
		}
		if q := d.read().Quiet; q < ms(100) || q > ms(121) {
			t.Fatalf("Quiet is %v after %d items", q, n)
		}
	}
	for range 60_000 {
		now = now.Add(ms(10))
		d.arrived(now, 1)
	}
	if q := d.read().Quiet; q != leastQuiet {
		t.Errorf("Quiet is %v ten minutes after the last late item", q)
	}
}

func TestGaugeCountsWhatItSees(t *testing.T) {
	g := &Gauge{Policy: Fixed(narrow)}
	script{window: narrow, gauge: g, arrivals: "a1@0 a3@10 a2@20 b1@30", want: "70:a1,a2,a3 80:b1"}.compare(t)
	all := g.Stats()
	a := all["a"]
	if a.Items != 3 || a.Batches != 1 || a.Late != 1 || a.Quiet != ms(50) || a.SizeP50 != 3 || a.SizeP99 != 3 {
		t.Errorf("a: %+v", a)
	}
	if a.Lateness < ms(10) || a.Lateness > ms(12) || a.WaitP50 < ms(70) || a.WaitP50 > ms(84) {
		t.Errorf("a: %+v", a)
	}
	if b := all["b"]; b.Items != 1 || b.Late != 0 || b.Lateness != 0 || b.SizeP50 != 1 {
		t.Errorf("b: %+v", b)
	}
}

func TestP9_AGaugeTellsSoManyCategoriesApart(t *testing.T) {
	g, s := &Gauge{}, newShelf[string, item](Window{}.orDefaults())
	s.watch(g, func(key string) string { return key }, numberPlace)
	now := time.Now()
	for n := range 10_000 {
		e := s.start(fmt.Sprint(n), now)
		s.put(e, item{}, 0, now)
	}
	s.closeAll()
	s.report(now)
	all := g.Stats()
	if len(all) != maxCategories+1 || len(s.categories) != maxCategories+1 {
		t.Fatalf("%d categories in the gauge, %d in the shelf", len(all), len(s.categories))
	}
	if n := all[Others].Items; n != 10_000-maxCategories {
		t.Errorf("%d items of others", n)
	}
}

// Adaptive windows close between 2 ms and the fixed Quiet after the last item,
// whatever came before.
func TestQuietStaysWithinItsLimits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ceiling := ms(rapid.IntRange(1, 1000).Draw(t, "ceiling"))
		now, d := time.Now(), newDial(Adaptive(Window{Quiet: ceiling}))
		for range rapid.IntRange(0, 50).Draw(t, "reports") {
			now = now.Add(ms(rapid.IntRange(0, 100_000).Draw(t, "pause")))
			if rapid.Bool().Draw(t, "late") {
				late := ms(rapid.IntRange(0, 1000).Draw(t, "by"))
				d.late(now, late)
				if q := d.read().Quiet; late <= ceiling && q < min(2*late, ceiling) {
					t.Fatalf("Quiet is %v after an item late by %v", q, late)
				}
			} else {
				d.arrived(now, rapid.Int64Range(1, 1e9).Draw(t, "n"))
			}
			if q := d.read().Quiet; q < min(leastQuiet, ceiling) || q > ceiling {
				t.Fatalf("Quiet is %v, want between %v and %v", q, leastQuiet, ceiling)
			}
		}
	})
}

// What cannot be seen cannot be adapted to.
func TestWithoutPlaceAdaptiveIsFixed(t *testing.T) {
	s := newShelf[string, item](narrow.orDefaults())
	s.watch(&Gauge{Policy: Adaptive(narrow)}, nil, nil)
	began := time.Now()
	s.put(s.start("a", began), item{}, 0, began)
	if at, _ := s.deadline(); at.Sub(began) != narrow.Quiet {
		t.Errorf("the batch closes after %v, want %v", at.Sub(began), narrow.Quiet)
	}
}

func TestTheCollectorsWindowIsTheMost(t *testing.T) {
	script{window: narrow, gauge: &Gauge{Policy: Fixed(Inbox)}, arrivals: "a1@0", want: "50:a1"}.compare(t)
}
