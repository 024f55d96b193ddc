package pace

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

const ms = time.Millisecond

func TestRest(t *testing.T) {
	for _, c := range []struct {
		name       string
		n          int
		took, want time.Duration
	}{
		{"nothing", 0, time.Second, 0},
		{"a few, that somebody may be watching", few - 1, time.Second, 0},
		{"quickly done", few, 2 * ms, 6 * ms},
		{"slowly done", 1000, 10 * ms, 30 * ms},
		{"a database that hangs", 1000, time.Minute, longest},
	} {
		if got := Rest(c.n, c.took); got != c.want {
			t.Errorf("%s: rests for %v, want %v", c.name, got, c.want)
		}
	}
}

func TestSleep(t *testing.T) {
	for _, c := range []struct {
		name    string
		d, want time.Duration
		hurry   bool
		end     bool
	}{
		{name: "whole", d: 5 * ms, want: 5 * ms},
		{name: "hurried", d: 5 * ms, want: ms, hurry: true},
		{name: "ended", d: 5 * ms, want: ms, end: true},
		{name: "in the past", d: -ms},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			hurry := make(chan struct{}, 1)
			defer time.AfterFunc(ms, func() {
				if c.hurry {
					hurry <- struct{}{}
				}
				if c.end {
					cancel()
				}
			}).Stop()
			began := time.Now()
			Sleep(ctx, c.d, hurry)
			if took := time.Since(began); took != c.want {
				t.Errorf("%s: slept for %v, want %v", c.name, took, c.want)
			}
			cancel()
		})
	}
}
