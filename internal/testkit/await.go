package testkit

import (
	"testing"
	"time"
)

// Await returns once done says so, and fails the test when it has not within
// limit. Give it a question that is cheap to ask: it asks every few milliseconds.
func Await(t testing.TB, limit time.Duration, what string, done func() bool) {
	t.Helper()
	if !Within(limit, done) {
		t.Fatalf("waited %s for this in vain: %s", limit, what)
	}
}

// Within reports whether done says so within limit.
func Within(limit time.Duration, done func() bool) bool {
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if done() {
			return true
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			return done()
		}
	}
}
