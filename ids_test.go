package weir_test

import (
	"encoding/binary"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/weir-es/weir"
)

// ofLong is all of a long run when WEIR_LONG is set (see make chaos), else a
// fiftieth.
func ofLong(n int) int {
	if os.Getenv("WEIR_LONG") != "" {
		return n
	}
	return n / 50
}

// counting is a random source whose last 36 bits are a count. A generator reads it
// once an id, under its lock, so each id carries the number of its issue.
type counting struct {
	dice   *rand.Rand
	issued uint64
}

func (c *counting) Read(b []byte) (int, error) {
	binary.BigEndian.PutUint64(b, c.dice.Uint64())
	var count [8]byte
	binary.BigEndian.PutUint64(count[:], c.issued)
	copy(b[8:], count[2:])
	c.issued++
	return len(b), nil
}

// issueOf is the number that counting gave an id.
func issueOf(id weir.ID) uint64 { return binary.BigEndian.Uint64(id[8:]) & (1<<36 - 1) }

// stepping is a clock that ticks 10 µs a reading and goes back an hour, forward two
// and back one, at the quarters of n readings.
func stepping(n int) func() time.Time {
	readings := 0
	steps := []time.Duration{0, -time.Hour, time.Hour, 0}
	return func() time.Time {
		step := steps[min(readings*len(steps)/n, len(steps)-1)]
		readings++
		return noon.Add(step + time.Duration(readings)*10*time.Microsecond)
	}
}

// TestP5_HundredMillionIDsStayInIssueOrder, from 16 goroutines, through clock steps
// and with the counter driven to its end again and again. It needs no memory for
// them all: rounds of a million are put in the order of their issue and compared.
func TestP5_HundredMillionIDsStayInIssueOrder(t *testing.T) {
	t.Parallel()
	const writers = 16
	total, round := ofLong(100_000_000), 1_000_000
	g := &weir.Generator{Clock: stepping(total), Ahead: 3 * time.Hour, Random: &counting{dice: rand.New(rand.NewPCG(1, 2))}}
	last, ids := weir.ID{}, make([]weir.ID, round)
	for base := 0; base < total; base += round {
		clear(ids)
		var all sync.WaitGroup
		for range writers {
			all.Go(func() { fill(t, g, ids, round/writers) })
		}
		all.Wait()
		for i, id := range ids {
			if id.Compare(last) <= 0 || issueOf(id) != uint64(base+i) {
				t.Fatalf("issue %d is %s, after %s", base+i, id, last)
			}
			last = id
		}
	}
}

// fill draws n ids and puts each where its issue belongs.
func fill(t *testing.T, g *weir.Generator, ids []weir.ID, n int) {
	for i := range n {
		id := g.New()
		ids[issueOf(id)%uint64(len(ids))] = id
		if i%1000 == 999 {
			exhaust(t, g, id)
		}
	}
}

// TestP3_TenMillionDerivedIDsSortBySourceAndOrdinal, each strictly after the one
// before it, so that no two are the same.
func TestP3_TenMillionDerivedIDsSortBySourceAndOrdinal(t *testing.T) {
	t.Parallel()
	const ordinals = 1000
	sources := ofLong(10_000_000) / ordinals
	g := &weir.Generator{Clock: stepping(sources), Ahead: 3 * time.Hour}
	last := weir.ID{}
	for range sources {
		source := g.New()
		if source.Compare(last) <= 0 {
			t.Fatalf("source %s after %s", source, last)
		}
		last = source
		for ordinal := range ordinals {
			id := weir.Derive(source, ordinal, "ticket.send")
			if id.Compare(last) <= 0 {
				t.Fatalf("%d derived of %s is %s, after %s", ordinal, source, id, last)
			}
			last = id
		}
	}
}
