package eventstore

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-es/weir"
)

func requestOf(events int, facts bool) *request {
	return &request{ids: make([]weir.ID, events), facts: facts}
}

// A leader rests after facts, so that more come together, until it is worth going on;
// nobody who called Append waits for that.
func TestGroupRests(t *testing.T) {
	const took, whole = 10 * time.Millisecond, 30 * time.Millisecond
	facts, call := requestOf(100, true), requestOf(1, false)
	for _, c := range []struct {
		name    string
		written []*request
		enters  *request // a moment later
		want    time.Duration
	}{
		{"after facts", []*request{facts, facts}, nil, whole},
		{"after a few facts", []*request{requestOf(5, true)}, nil, 0},
		{"after many facts", []*request{requestOf(groupMany, true)}, nil, 0},
		{"after somebody's append", []*request{facts, call}, nil, 0},
		{"more facts come", []*request{facts}, facts, whole},
		{"many facts come", []*request{facts}, requestOf(groupMany, true), time.Millisecond},
		{"a shard is behind", []*request{facts}, requestOf(groupMany/2, true), time.Millisecond},
		{"an append comes", []*request{facts}, call, time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			var g group
			g.init()
			g.leaders = g.most
			if c.enters != nil {
				time.AfterFunc(time.Millisecond, func() { g.enter(c.enters) })
			}
			began := time.Now()
			g.rest(c.written, took)
			if rested := time.Since(began); rested != c.want {
				t.Errorf("%s: rested for %v, want %v", c.name, rested, c.want)
			}
		})
	}
}

// What is taken does not count as waiting any more, so that the next rest is whole.
func TestGroupCountsThoseWhoWait(t *testing.T) {
	var g group
	g.init()
	g.leaders = 1
	for range 3 {
		g.enter(requestOf(400, true))
	}
	g.take()
	if g.events != 400 {
		t.Errorf("%d events wait, want 400", g.events)
	}
	g.take()
	if g.take(); g.events != 0 || g.leaders != 0 {
		t.Errorf("%d events wait for %d leaders, want none", g.events, g.leaders)
	}
}
