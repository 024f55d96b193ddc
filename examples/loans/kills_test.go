package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
)

// TestKills_AllHappenInTheMiddle reads logs of every small size, and notes for
// each kill how far the reader was.
func TestKills_AllHappenInTheMiddle(t *testing.T) {
	for _, events := range []int64{0, 1, 2, 3, 7, 100, 262_200} {
		for n := range 5 {
			t.Run(fmt.Sprintf("%d kills in %d events", n, events), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { checkKills(t, n, events) })
			})
		}
	}
}

func checkKills(t *testing.T, n int, events int64) {
	k := newKills(n, events, rand.New(rand.NewPCG(uint64(n), uint64(events))))
	if want := min(int64(n), int64(n)*events); int64(len(k.at)) != want {
		t.Fatalf("%d kills, want %d", len(k.at), want)
	}
	happened := 0
	over := make(chan struct{})
	go func() {
		defer close(over)
		for i := range k.at {
			if err := errors.Join(k.awaitDue(t.Context(), i), k.linger(t.Context(), i)); err != nil {
				t.Error(err)
			}
			happened++
			close(k.done[i])
		}
	}()
	for place := range events {
		if err := k.pass(t.Context(), place); err != nil {
			t.Fatal(err)
		}
		if k.next < len(k.at) && place >= k.at[k.next] {
			t.Errorf("event %d was handed over before kill %d was due at %d", place, k.next, k.at[k.next])
		}
	}
	if events > 0 && happened != len(k.at) {
		t.Errorf("%d of %d kills had happened when the last event was handed over", happened, len(k.at))
	}
	<-over
}

func TestKills_AreSpreadEvenly(t *testing.T) {
	k := newKills(3, 1000, rand.New(rand.NewPCG(1, 1)))
	for i, at := range k.at {
		if want := int64(i+1) * 250; at < want-63 || at > want+63 {
			t.Errorf("kill %d is at %d, want about %d", i, at, want)
		}
	}
}

func TestKills_TheReaderEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	k := newKills(1, 1, rand.New(rand.NewPCG(1, 1)))
	if err := k.pass(ctx, 0); err == nil {
		t.Error("passed a kill that never happened")
	}
}
