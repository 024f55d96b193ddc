package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-es/weir"
)

// TestDelay plays items into a delay on fake time. An item is name@arrival+hold,
// in milliseconds; what leaves is name@time.
func TestDelay(t *testing.T) {
	for _, c := range []struct {
		what, items string
		limit       int
		want        string
	}{
		{"without hold the order stays", "a@0+0 b@0+0 c@0+0 d@5+0", 9, "a@0 b@0 c@0 d@5"},
		{"a held item does not hold up those behind it", "a@0+50 b@1+0 c@2+10", 9, "b@1 c@12 a@50"},
		{"equal times leave in the order they came", "a@0+10 b@5+5 c@5+5 d@10+0", 9, "a@10 b@10 c@10 d@10"},
		{"a full delay takes nothing in until one leaves", "a@0+10 b@0+20 c@0+0", 2, "a@10 c@10 b@20"},
		{"the rest leaves after the end", "a@0+30 b@0+20", 9, "b@20 a@30"},
		{"nothing comes, nothing leaves", "", 9, ""},
	} {
		t.Run(c.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if got := play(t, c.items, c.limit); got != c.want {
					t.Errorf("got  %s\nwant %s", got, c.want)
				}
			})
		})
	}
}

func play(t *testing.T, items string, limit int) string {
	start := time.Now()
	in := make(chan item)
	go func() {
		defer close(in)
		for _, text := range strings.Fields(items) {
			var name string
			var arrival, hold time.Duration
			fmt.Sscanf(strings.NewReplacer("@", " ", "+", " ").Replace(text), "%s %d %d", &name, &arrival, &hold)
			<-time.After(arrival*time.Millisecond - time.Since(start))
			in <- item{message: weir.Message{Type: name}, hold: hold * time.Millisecond}
		}
	}()
	var left []string
	d := delay{in: in, limit: limit, out: func(_ context.Context, i item) error {
		left = append(left, fmt.Sprintf("%s@%d", i.message.Type, time.Since(start).Milliseconds()))
		return nil
	}}
	if err := d.run(t.Context()); err != nil {
		t.Error(err)
	}
	return strings.Join(left, " ")
}

func TestDelay_AFailingOutEndsIt(t *testing.T) {
	in := make(chan item, 1)
	in <- item{}
	broken := errors.New("broken")
	d := delay{in: in, limit: 9, out: func(context.Context, item) error { return broken }}
	if err := d.run(t.Context()); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
}

func TestDelay_EndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		in := make(chan item, 1)
		in <- item{hold: time.Hour}
		d := delay{in: in, limit: 1, out: func(context.Context, item) error { return nil }}
		time.AfterFunc(time.Second, cancel)
		if err := d.run(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	})
}
