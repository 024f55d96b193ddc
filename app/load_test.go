package app_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/app"
	"github.com/weir-es/weir/internal/testkit"
)

// load are producers that publish all the time, each about streams of its own, and
// note what the broker acknowledged.
type load struct {
	by                  *app.App // whose publisher they use
	producers, together int

	stop    func()
	writing sync.WaitGroup

	mu    sync.Mutex
	facts map[weir.ID]*sentFact
}

// sentFact is one message, and when it was sent, acknowledged and stored.
type sentFact struct {
	weir.Message
	guest                 string
	sent, acked, recorded time.Time
}

// isAcked reports that the broker has acknowledged it.
func (f *sentFact) isAcked() bool { return !f.acked.IsZero() }

const (
	loadStreams = 50 // of each producer
	loadGuests  = 20 // in all
)

// publishAlways begins so many producers, each of which has so many messages
// unanswered at a time. They end with the test or with finish.
func publishAlways(t *testing.T, by *app.App, producers, together int) *load {
	t.Helper()
	l := &load{by: by, producers: producers, together: together, facts: map[weir.ID]*sentFact{}}
	l.begin(t)
	return l
}

// begin publishes, again after finish.
func (l *load) begin(t *testing.T) {
	t.Helper()
	ctx, stop := context.WithCancel(testkit.Context(t))
	l.stop = stop
	for p := range l.producers {
		l.writing.Go(func() {
			for n := 0; ctx.Err() == nil; n += l.together {
				if err := l.publish(testkit.Context(t), p, n, l.together); err != nil {
					t.Errorf("producer %d: %v", p, err)
					return
				}
			}
		})
	}
	t.Cleanup(l.finish)
}

// publish sends some messages and notes when they were acknowledged.
func (l *load) publish(ctx context.Context, producer, from, n int) error {
	messages := make([]weir.Message, n)
	for i := range messages {
		guest := fmt.Sprint((from + i) % loadGuests)
		m, err := l.by.Message(weir.Stream("seat", fmt.Sprint(producer, "-", (from+i)%loadStreams)), held{guest})
		if err != nil {
			return err
		}
		messages[i] = m
		l.note(&sentFact{Message: m, guest: guest, sent: time.Now()})
	}
	if err := l.by.Publisher().Publish(ctx, messages...); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, m := range messages {
		l.facts[m.ID].acked = time.Now()
	}
	return nil
}

func (l *load) note(f *sentFact) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.facts[f.ID] = f
}

// finish ends the producers when all they have sent is acknowledged.
func (l *load) finish() {
	l.stop()
	l.writing.Wait()
}

// acked is how much was acknowledged.
func (l *load) acked() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range l.facts {
		if f.isAcked() {
			n++
		}
	}
	return n
}

// awaitAcked waits until so much more is acknowledged.
func (l *load) awaitAcked(t *testing.T, more int, limit time.Duration) {
	t.Helper()
	want := l.acked() + more
	testkit.Await(t, limit, fmt.Sprint(more, " more facts are acknowledged"), func() bool { return l.acked() >= want })
}

// check reads the store and the views when everything is settled: what was
// acknowledged is stored once, unless it may be lost, and the views are the fold in
// the order of emission. It returns how much was lost.
func (l *load) check(t *testing.T, a *app.App, mayBeLost func(*sentFact) bool) (lost int) {
	t.Helper()
	streams := l.stored(t, a)
	for id, f := range l.facts {
		switch {
		case !f.recorded.IsZero() || !f.isAcked():
		case mayBeLost != nil && mayBeLost(f):
			lost++
		default:
			t.Fatalf("%s of %s was acknowledged at %s and is not stored", id, f.Stream, f.acked.Format(time.StampMicro))
		}
	}
	l.checkViews(t, a, streams)
	return lost
}

// stored are the facts of each stream as the log has them, each once.
func (l *load) stored(t *testing.T, a *app.App) map[weir.StreamID][]*sentFact {
	t.Helper()
	streams := map[weir.StreamID][]*sentFact{}
	for e, err := range a.Store.Log(testkit.Context(t), 0) {
		if err != nil {
			t.Fatal(err)
		}
		f := l.facts[e.ID]
		if f == nil || !f.recorded.IsZero() {
			t.Fatalf("%s of %s was never sent, or is stored twice", e.ID, e.Stream)
		}
		f.recorded = e.Recorded
		if streams[e.Stream] = append(streams[e.Stream], f); int(e.Version) != len(streams[e.Stream]) {
			t.Fatalf("%s has version %d after %d events", e.Stream, e.Version, len(streams[e.Stream])-1)
		}
	}
	return streams
}

// checkOrder is for when nothing may come late: each stream is stored in the order
// of emission.
func (l *load) checkOrder(t *testing.T) {
	t.Helper()
	if late, slowest := l.late(); late > 0 {
		t.Errorf("%d facts were stored after later ones of their streams; the slowest %s after it was acknowledged", late, slowest)
	}
}

// late is how many facts were recorded after later ones of their streams, and how long
// the slowest took from its acknowledgement.
func (l *load) late() (late int, slowest time.Duration) {
	byID := slices.SortedFunc(maps.Values(l.facts), func(a, b *sentFact) int { return -weir.CompareMessages(a.Message, b.Message) })
	earliest := map[weir.StreamID]time.Time{} // of those emitted later
	for _, f := range byID {
		if f.recorded.IsZero() {
			continue
		}
		next, ok := earliest[f.Stream]
		if ok && next.Before(f.recorded) {
			late++
		} else {
			earliest[f.Stream] = f.recorded
		}
		slowest = max(slowest, f.recorded.Sub(f.acked))
	}
	return late, slowest.Round(time.Millisecond)
}

// slowest is how long the slowest fact took that was stored before a moment.
func (l *load) slowest(before time.Time) (took time.Duration) {
	for _, f := range l.facts {
		if !f.recorded.IsZero() && f.recorded.Before(before) {
			took = max(took, f.recorded.Sub(f.acked))
		}
	}
	return took
}

// checkViews folds again what is stored.
func (l *load) checkViews(t *testing.T, a *app.App, streams map[weir.StreamID][]*sentFact) {
	t.Helper()
	ctx := testkit.Context(t)
	each := map[string]int{}
	for stream, facts := range streams {
		slices.SortFunc(facts, func(a, b *sentFact) int { return weir.CompareMessages(a.Message, b.Message) })
		var want []string
		for _, f := range facts {
			want = append(want, f.guest)
			each[f.guest]++
		}
		if got, err := seats.Get(ctx, a.Store, string(stream)); err != nil || !slices.Equal(got.Guests, want) {
			t.Fatalf("%s: %v, %v, want %v", stream, got.Guests, err, want)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(each)) {
		if got, err := guests.Get(ctx, a.Store, name); err != nil || got.Seats != each[name] {
			t.Fatalf("guest %s has %d seats, %v, want %d", name, got.Seats, err, each[name])
		}
	}
}

// longestGap is how long nothing at all was stored between two events that follow each
// other, and how much was stored.
func longestGap(t *testing.T, a *app.App) (gap time.Duration, events int) {
	t.Helper()
	times := recorded(t, a)
	return widest(times), len(times)
}

// recorded are the times at which events were stored, in order.
func recorded(t *testing.T, a *app.App) (times []time.Time) {
	t.Helper()
	for e, err := range a.Store.Log(testkit.Context(t), 0) {
		if err != nil {
			t.Fatal(err)
		}
		times = append(times, e.Recorded)
	}
	slices.SortFunc(times, time.Time.Compare)
	return times
}

// widest is the longest time between two that follow each other.
func widest(times []time.Time) (gap time.Duration) {
	for i := 1; i < len(times); i++ {
		gap = max(gap, times[i].Sub(times[i-1]))
	}
	return gap
}

// split are the times until a moment, and those since.
func split(times []time.Time, at time.Time) (before, after []time.Time) {
	n, _ := slices.BinarySearchFunc(times, at, time.Time.Compare)
	return times[:n], times[n:]
}
