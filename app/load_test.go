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
	by *app.App // whose publisher they use

	stop    func()
	writing sync.WaitGroup

	mu    sync.Mutex
	facts map[weir.ID]*sentFact
}

// sentFact is one message, and when it was sent and acknowledged.
type sentFact struct {
	weir.Message
	guest       string
	sent, acked time.Time
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
	ctx, stop := context.WithCancel(testkit.Context(t))
	l := &load{by: by, stop: stop, facts: map[weir.ID]*sentFact{}}
	for p := range producers {
		l.writing.Go(func() {
			for n := 0; ctx.Err() == nil; n += together {
				if err := l.publish(testkit.Context(t), p, n, together); err != nil {
					t.Errorf("producer %d: %v", p, err)
					return
				}
			}
		})
	}
	t.Cleanup(l.finish)
	return l
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
// acknowledged is stored once and in the order of sending, unless it may be lost,
// and the views are the fold. It returns how much was lost.
func (l *load) check(t *testing.T, a *app.App, mayBeLost func(*sentFact) bool) (lost int) {
	t.Helper()
	streams := l.stored(t, a)
	found := map[weir.ID]bool{}
	for _, facts := range streams {
		for _, f := range facts {
			found[f.ID] = true
		}
	}
	for id, f := range l.facts {
		switch {
		case found[id] || !f.isAcked():
		case mayBeLost != nil && mayBeLost(f):
			lost++
		default:
			t.Errorf("%s of %s was acknowledged at %s and is not stored", id, f.Stream, f.acked.Format(time.StampMicro))
		}
		if t.Failed() {
			break
		}
	}
	l.checkViews(t, a, streams)
	return lost
}

// stored are the facts of each stream as the log has them, each once.
func (l *load) stored(t *testing.T, a *app.App) map[weir.StreamID][]*sentFact {
	t.Helper()
	streams := map[weir.StreamID][]*sentFact{}
	seen := map[weir.ID]bool{}
	for e, err := range a.Store.Log(testkit.Context(t), 0) {
		if err != nil {
			t.Fatal(err)
		}
		f := l.facts[e.ID]
		if f == nil || seen[e.ID] {
			t.Fatalf("%s of %s was never sent, or is stored twice", e.ID, e.Stream)
		}
		seen[e.ID] = true
		before := streams[e.Stream]
		if int(e.Version) != len(before)+1 {
			t.Fatalf("%s has version %d after %d events", e.Stream, e.Version, len(before))
		}
		if n := len(before); n > 0 && weir.CompareMessages(before[n-1].Message, f.Message) > 0 {
			t.Errorf("version %d of %s was sent before version %d", n+1, e.Stream, n)
		}
		streams[e.Stream] = append(before, f)
	}
	return streams
}

// checkViews folds again what is stored.
func (l *load) checkViews(t *testing.T, a *app.App, streams map[weir.StreamID][]*sentFact) {
	t.Helper()
	ctx := testkit.Context(t)
	each := map[string]int{}
	for stream, facts := range streams {
		var want []string
		for _, f := range facts {
			want = append(want, f.guest)
			each[f.guest]++
		}
		if got, err := seats.Get(ctx, a.Store, string(stream)); err != nil || !slices.Equal(got.Guests, want) {
			t.Errorf("%s: %v, %v, want %v", stream, got.Guests, err, want)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(each)) {
		if got, err := guests.Get(ctx, a.Store, name); err != nil || got.Seats != each[name] {
			t.Errorf("guest %s has %d seats, %v, want %d", name, got.Seats, err, each[name])
		}
	}
}

// longestGap is how long nothing at all was stored between the first event and the
// last, in buckets of 200 ms, and how much was stored.
func longestGap(t *testing.T, a *app.App) (gap time.Duration, events int) {
	t.Helper()
	const bucket = 200 * time.Millisecond
	var buckets []int64
	for e, err := range a.Store.Log(testkit.Context(t), 0) {
		if err != nil {
			t.Fatal(err)
		}
		events++
		buckets = append(buckets, e.Recorded.UnixMilli()/bucket.Milliseconds())
	}
	slices.Sort(buckets)
	for i := 1; i < len(buckets); i++ {
		gap = max(gap, time.Duration(buckets[i]-buckets[i-1]-1)*bucket)
	}
	return gap, events
}
