package app_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/app"
	"github.com/weir-es/weir/batching"
	"github.com/weir-es/weir/internal/testkit"
)

// TestP5_ALateFactWidensTheWindow: the second of two facts is stored before the
// first arrives. The read model is right all the same, the window of the category
// gets wider, and that of another category does not.
func TestP5_ALateFactWidensTheWindow(t *testing.T) {
	t.Parallel()
	config := service(t)
	// So slow a machine that half a minute passes between the two is none.
	config.Inbox = batching.Adaptive(batching.Window{Quiet: 30 * time.Second, MaxAge: time.Second})
	a := open(t, config)
	err := a.Run(testkit.Context(t), func(ctx context.Context) error {
		first, second := fact(t, a, "seat-1", "first"), fact(t, a, "seat-1", "second")
		send(t, a, fact(t, a, "box-1", "box"), second)
		testkit.Await(t, 20*time.Second, "the second is stored", func() bool { return a.Stats().Stored == 2 })
		send(t, a, first)
		if err := a.Settle(ctx); err != nil {
			return err
		}
		s, err := seats.Get(ctx, a.Store, "seat-1")
		if err != nil || !slices.Equal(s.Guests, []string{"first", "second"}) {
			t.Errorf("seat-1: %v, %v", s, err)
		}
		all := a.Stats().Windows
		if w := all["seat"]; w.Items != 2 || w.Batches != 2 || w.Late != 1 || w.Lateness == 0 || w.Quiet < 2*time.Millisecond || w.SizeP99 != 1 {
			t.Errorf("seat: %+v", w)
		}
		if w := all["seat"]; w.Quiet < w.Lateness {
			t.Errorf("Quiet is %v after a lateness of %v", w.Quiet, w.Lateness)
		}
		if w := all["box"]; w.Items != 1 || w.Late != 0 || w.Quiet != 2*time.Millisecond {
			t.Errorf("box: %+v", w)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func fact(t *testing.T, a *app.App, stream weir.StreamID, guest string) weir.Message {
	t.Helper()
	m, err := a.Message(stream, held{guest})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func send(t *testing.T, a *app.App, messages ...weir.Message) {
	t.Helper()
	if err := a.Publisher().Publish(testkit.Context(t), messages...); err != nil {
		t.Error(err)
	}
}

// TestOrderedFactsDoNotWait: with windows of half a minute, ten facts after each
// other would take minutes if they waited for them.
func TestOrderedFactsDoNotWait(t *testing.T) {
	t.Parallel()
	config := service(t)
	config.Inbox = batching.Adaptive(batching.Window{Quiet: 30 * time.Second, MaxAge: 30 * time.Second})
	a := open(t, config)
	err := a.Run(testkit.Context(t), func(ctx context.Context) error {
		for n := range 10 {
			send(t, a, fact(t, a, "seat-1", "guest"))
			testkit.Await(t, 20*time.Second, "it is stored", func() bool { return a.Stats().Stored == int64(n+1) })
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
