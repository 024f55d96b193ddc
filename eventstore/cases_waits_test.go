package eventstore

import (
	"context"
	"math"
	"testing"
	"testing/synctest"
	"time"
)

// TestWaitsDoNotOverflow after any number of failures: they grow to a limit and stay
// there, and none is negative, which would be no wait at all. (river PR#698)
func TestWaitsDoNotOverflow(t *testing.T) {
	t.Parallel()
	b := newBackOff()
	for n := range 100_000 {
		if d := b.NextBackOff(); d <= 0 || d > 2*b.MaxInterval {
			t.Fatalf("wait %d is %s", n, d)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		for _, attempt := range []int{1, 6, 7, 62, 63, 64, 65, math.MaxInt} {
			began := time.Now()
			if err := pauseJitter(context.Background(), attempt); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took > 50*time.Millisecond {
				t.Errorf("before attempt %d the wait is %s", attempt, took)
			}
		}
		p := newPause(250 * time.Millisecond)
		for n := range 1000 {
			began := time.Now()
			p.wait(context.Background(), nil, false, nil)
			if took := time.Since(began); took < longestRest || took > 250*time.Millisecond {
				t.Fatalf("look %d comes after %s", n, took)
			}
		}
	})
}
