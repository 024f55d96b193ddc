package batching

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cenkalti/backoff/v5"
	"go.uber.org/goleak"
)

// TestMain draws a thousand worlds for each property, unless the command line says
// otherwise: they cost a second.
func TestMain(m *testing.M) {
	if err := flag.Set("rapid.checks", "1000"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

// script is a scenario as a line of text. In arrivals, "a12@40" is an item of
// key a with number 12, its order and its size in bytes, sent 40 ms after the
// start; "stop@50" closes the source and "cancel@50" ends ctx. In want, "120:a1,a2+b1" is
// one call of Flush after 120 ms with two batches; "!" marks one that fails.
type script struct {
	name     string
	arrivals string
	want     string

	window Window        // default: quiet 50 ms, age 120 ms
	gauge  *Gauge        // default: none
	slow   time.Duration // how long each Flush takes
	fails  int           // how many calls of Flush fail, at the beginning
	err    error         // what Collect returns
}

type item struct {
	key    string
	number int
}

func (i item) String() string { return fmt.Sprint(i.key, i.number) }

func byKey(i item) string    { return i.key }
func byNumber(a, b item) int { return cmp.Compare(a.number, b.number) }
func numberSize(i item) int  { return i.number }
func numberPlace(i item) (place [16]byte) {
	binary.BigEndian.PutUint64(place[:], uint64(i.number))
	return place
}
func ms(n int) time.Duration  { return time.Duration(n) * time.Millisecond }
func after(d time.Duration)   { <-time.After(d) }
func steady() backoff.BackOff { return backoff.NewConstantBackOff(ms(100)) }
func running() (start func() int) {
	from := time.Now()
	return func() int { return int(time.Since(from) / time.Millisecond) }
}

var errBroken = errors.New("broken")

// play runs the script on fake time and tells what Flush saw.
func (s script) play(t *testing.T) (seen string, err error) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		source := make(chan item)
		go s.send(ctx, cancel, source)

		var calls []string
		clock := running()
		err = Collector[string, item]{
			Window:   s.window,
			Gauge:    s.gauge,
			Key:      byKey,
			Category: func(key string) string { return key },
			Place:    numberPlace,
			Compare:  byNumber,
			Size:     numberSize,
			Retry:    steady,
			Flush: func(_ context.Context, batches []Batch[string, item]) error {
				at := clock()
				after(s.slow)
				if len(calls) < s.fails {
					calls = append(calls, fmt.Sprintf("%d!:%s", at, written(batches)))
					return errBroken
				}
				calls = append(calls, fmt.Sprintf("%d:%s", at, written(batches)))
				return nil
			},
		}.Collect(ctx, source)
		seen = strings.Join(calls, " ")
	})
	return seen, err
}

func (s script) compare(t *testing.T) {
	t.Helper()
	seen, err := s.play(t)
	if seen != s.want || !errors.Is(err, s.err) {
		t.Errorf("%s\n got %q, %v\nwant %q, %v", s.arrivals, seen, err, s.want, s.err)
	}
}

// send lets the items of the script arrive, each at its time.
func (s script) send(ctx context.Context, cancel func(), source chan<- item) {
	clock := running()
	for _, word := range strings.Fields(s.arrivals) {
		name, at := parse(word)
		after(ms(at - clock()))
		switch name {
		case "stop":
			close(source)
			return
		case "cancel":
			cancel()
			return
		}
		select {
		case source <- parseItem(name):
		case <-ctx.Done():
			return
		}
	}
	after(time.Minute) // everything closes by itself
	close(source)
}

func parse(word string) (name string, at int) {
	name, text, _ := strings.Cut(word, "@")
	at, err := strconv.Atoi(text)
	if err != nil {
		panic(err)
	}
	return name, at
}

func parseItem(name string) item {
	number, err := strconv.Atoi(name[1:])
	if err != nil {
		panic(err)
	}
	return item{name[:1], number}
}

func written(batches []Batch[string, item]) string {
	var all []string
	for _, b := range batches {
		var names []string
		for _, i := range b.Items {
			names = append(names, i.String())
		}
		all = append(all, strings.Join(names, ","))
	}
	return strings.Join(all, "+")
}
