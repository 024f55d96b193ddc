package batching

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cenkalti/backoff/v5"
)

var narrow = Window{Quiet: ms(50), MaxAge: ms(120)}

func (w Window) items(n int) Window { w.MaxItems = n; return w }
func (w Window) bytes(n int) Window { w.MaxBytes = n; return w }
func (w Window) limit(n int) Window { w.Limit = n; return w }

func TestCollect(t *testing.T) {
	for _, s := range []script{
		{name: "nothing comes", arrivals: "stop@10", want: ""},
		{name: "quiet closes", arrivals: "a1@0 a2@45", want: "95:a1,a2"},
		{name: "quiet closes each key for itself", arrivals: "a1@0 b1@20 a2@40", want: "70:b1 90:a1,a2"},
		{name: "a key that was closed opens again", arrivals: "a1@0 a2@60", want: "50:a1 110:a2"},
		{name: "age closes the oldest, not the idlest", arrivals: "a1@0 a2@45 b1@80 a3@90", want: "120:a1,a2,a3 130:b1"},
		{name: "age counts from the first, not the lowest", arrivals: "a9@0 a1@40 a5@80 a7@115", want: "120:a1,a5,a7,a9"},
		{name: "full by items", arrivals: "a1@0 b1@5 a2@10 a3@20", window: narrow.items(2), want: "10:a1,a2 55:b1 70:a3"},
		{name: "full of one", arrivals: "a1@0 a2@0", window: narrow.items(1), want: "0:a1 0:a2"},
		{name: "full by bytes", arrivals: "a40@0 a60@10 a1@20", window: narrow.bytes(100), want: "10:a40,a60 70:a1"},
		{name: "what does not fit waits for the next", arrivals: "a40@0 a70@10 a1@20", window: narrow.bytes(100), want: "10:a40 70:a1,a70"},
		{name: "one larger than a batch is its own", arrivals: "a1@0 a500@10 a2@20", window: narrow.bytes(100), want: "10:a1 10:a500 70:a2"},
		{name: "bytes of one key are not those of another", arrivals: "a60@0 b60@10", window: narrow.bytes(100), want: "50:a60 60:b60"},
		{name: "limit closes the oldest", arrivals: "a1@0 b1@10 a2@20 c1@30", window: narrow.limit(4), want: "30:a1,a2 60:b1 80:c1"},
		{name: "limit of one", arrivals: "a1@0 b1@1", window: narrow.limit(1), want: "0:a1 1:b1"},
		{name: "two keys due together are one call", arrivals: "b1@0 a1@0 c1@10", want: "50:b1+a1 60:c1"},
		{name: "quiet and age due together are one call", arrivals: "a1@0 a2@40 b1@70 a3@80", want: "120:a1,a2,a3+b1"},
		{name: "full takes along what is due", arrivals: "b1@0 a1@40 a2@60", slow: ms(30), window: Window{Quiet: ms(45), MaxAge: ms(500), MaxItems: 2}, want: "45:b1 75:a1,a2"},
		{name: "equal ones stay in order of arrival", arrivals: "a2@0 a1@1 a2@2 a1@3", want: "53:a1,a1,a2,a2"},
		{name: "stop flushes what is open, oldest first", arrivals: "b2@0 a1@10 b1@20 stop@30", want: "30:b1,b2+a1"},
		{name: "cancel flushes nothing", arrivals: "a1@0 cancel@30", want: "", err: context.Canceled},
		{name: "cancel ends a flush that fails", arrivals: "a1@0 cancel@170", want: "50!:a1 150!:a1", fails: 99, err: context.Canceled},
		{name: "a failed flush comes again, the same", arrivals: "a2@0 a1@10", fails: 2, want: "60!:a1,a2 160!:a1,a2 260:a1,a2"},
		{name: "a failed stop comes again", arrivals: "a1@0 b1@0 stop@10", fails: 2, want: "10!:a1+b1 110!:a1+b1 210:a1+b1"},
		{name: "what came due meanwhile leaves at once, together", arrivals: "a1@0 b1@20 c1@40 d1@60", slow: ms(100), want: "50:a1 150:b1+c1 250:d1"},
		{name: "what came meanwhile does not join", arrivals: "a1@0 a2@60", fails: 1, want: "50!:a1 150:a1 200:a2"},
		{name: "silence is not judged while not listening", arrivals: "a1@0 b1@40 b2@80 b3@200", slow: ms(70), want: "50:a1 170:b1,b2 290:b3", window: Window{Quiet: ms(50), MaxAge: ms(500)}},
	} {
		t.Run(s.name, func(t *testing.T) {
			if s.window == (Window{}) {
				s.window = narrow
			}
			s.compare(t)
		})
	}
}

// A source that cannot be read holds its producer back: nothing is buffered here.
func TestP9_FailingFlushReadsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		source := make(chan item, 2)
		var repaired atomic.Bool
		var reads atomic.Int32
		var failures []int
		var flushed []string
		c := Collector[string, item]{
			Window: narrow,
			Key:    func(i item) string { reads.Add(1); return i.key },
			Flush: func(_ context.Context, batches []Batch[string, item]) error {
				if !repaired.Load() {
					return errBroken
				}
				flushed = append(flushed, written(batches))
				return nil
			},
			Failed: func(err error, attempt int) {
				if !errors.Is(err, errBroken) {
					t.Error(err)
				}
				failures = append(failures, attempt)
			},
		}
		ended := make(chan error)
		go func() { ended <- c.Collect(ctx, source) }()

		source <- item{"a", 1}
		after(ms(51))
		source <- item{"a", 2}
		source <- item{"b", 1}
		after(time.Hour)
		synctest.Wait()
		if reads.Load() != 1 || len(source) != 2 {
			t.Errorf("read %d items while the flush failed, %d wait; want 1 and 2", reads.Load(), len(source))
		}
		// 50 ms to 5 s: about 720 of the longest waits in an hour.
		if n := len(failures); n < 480 || n > 1500 || failures[0] != 1 || failures[n-1] != n {
			t.Errorf("%d failures in an hour, last attempt %d", n, failures[n-1])
		}

		repaired.Store(true)
		after(time.Minute)
		synctest.Wait()
		if got := strings.Join(flushed, " "); got != "a1 a2+b1" {
			t.Errorf("flushed %q, want %q", got, "a1 a2+b1")
		}
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want the error of ctx", err)
		}
	})
}

// Eight messages a second never leave a quiet time of 300 ms. (jasperfx#533,
// wolverine#3502)
func TestTrickleIsNotHeldLongerThanMaxAge(t *testing.T) {
	var arrivals []string
	for n := range 80 {
		arrivals = append(arrivals, fmt.Sprintf("a%d@%d", n, 125*n+n%2))
	}
	s := script{arrivals: strings.Join(arrivals, " "), window: Inbox}
	seen, err := s.play(t)
	if err != nil {
		t.Fatal(err)
	}
	var whole []int
	for _, call := range strings.Fields(seen) {
		when, names, _ := strings.Cut(call, ":")
		first, _, _ := strings.Cut(names, ",")
		number := parseItem(first).number
		_, at := parse("flush@" + when)
		whole = append(whole, strings.Count(names, ",")+1)
		if waited := at - (125*number + number%2); waited > 3000 {
			t.Errorf("%s waited %d ms in the window, want at most 3000", first, waited)
		}
	}
	if len(whole) != 4 || whole[0] < 24 {
		t.Errorf("batches of %v items, want 3 of 24 or more and the rest", whole)
	}
}

// A source that never pauses must not keep a due batch from leaving. Here each
// item takes a millisecond to read.
func TestBusySourceDelaysNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock, left := running(), 0
		err := Collector[string, item]{
			Window: Window{Quiet: time.Hour, MaxAge: ms(100), MaxItems: 1 << 20},
			Key:    func(i item) string { after(ms(1)); return i.key },
			Flush: func(_ context.Context, batches []Batch[string, item]) error {
				if left++; clock() > left*2*burst {
					t.Errorf("batch %d left after %d ms", left, clock())
				}
				return nil
			},
		}.Collect(t.Context(), waiting(item{"a", 1}, 20*burst))
		if err != nil || left < 10 {
			t.Errorf("%d batches, %v; want 10 or more", left, err)
		}
	})
}

// waiting is a closed source with n times the same item.
func waiting(i item, n int) <-chan item {
	source := make(chan item, n)
	for range n {
		source <- i
	}
	close(source)
	return source
}

// A flush that ctx interrupted is nobody's failure, and none comes after it.
func TestContextThatEndsInFlush(t *testing.T) {
	for _, result := range []error{nil, errBroken, backoff.Permanent(errBroken)} {
		ctx, cancel := context.WithCancelCause(t.Context())
		calls := 0
		err := Collector[string, item]{
			Window: Window{MaxItems: 1},
			Key:    byKey,
			Flush: func(context.Context, []Batch[string, item]) error {
				calls++
				cancel(errors.New("another cause"))
				return result
			},
			Failed: func(err error, _ int) { t.Error("failed:", err) },
		}.Collect(ctx, waiting(item{"a", 1}, 2))
		if calls != 1 || err != context.Canceled {
			t.Errorf("%d calls, %v; want 1 and the error of ctx", calls, err)
		}
	}
}

func TestZeroFieldsTakeDefaults(t *testing.T) {
	want := Window{Quiet: ms(300), MaxAge: ms(3000), MaxItems: 1000, MaxBytes: 4 << 20, Limit: 50_000}
	if got := (Window{}).orDefaults(); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := want.orDefaults(); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestEndedContextReadsAndFlushesNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	source := waiting(item{"a", 1}, 1)
	err := Collector[string, item]{Key: byKey}.Collect(ctx, source)
	if !errors.Is(err, context.Canceled) || len(source) != 1 {
		t.Errorf("got %v with %d items left, want the error of ctx and 1", err, len(source))
	}
}

func TestPermanentErrorEndsCollect(t *testing.T) {
	attempts, err := flushOnce(t, patient, func() error {
		return fmt.Errorf("write: %w", backoff.Permanent(errBroken))
	})
	if attempts != 1 || !errors.Is(err, errBroken) {
		t.Errorf("%d attempts, %v; want 1 and %v", attempts, err, errBroken)
	}
}

func TestRetryThatEndsEndsCollect(t *testing.T) {
	never := func() backoff.BackOff { return &backoff.StopBackOff{} }
	attempts, err := flushOnce(t, never, func() error { return errBroken })
	if attempts != 1 || !errors.Is(err, errBroken) {
		t.Errorf("%d attempts, %v; want 1 and %v", attempts, err, errBroken)
	}
}

func TestPanicOfFlushIsTheCallers(t *testing.T) {
	defer func() {
		if got := recover(); got != "bang" {
			t.Errorf("recovered %v, want bang", got)
		}
	}()
	flushOnce(t, patient, func() error { panic("bang") })
}

// flushOnce collects a single item and ends.
func flushOnce(t *testing.T, retry func() backoff.BackOff, flush func() error) (attempts int, err error) {
	err = Collector[string, item]{
		Key:   byKey,
		Retry: retry,
		Flush: func(context.Context, []Batch[string, item]) error { attempts++; return flush() },
	}.Collect(t.Context(), waiting(item{"a", 1}, 1))
	return attempts, err
}
