package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// floor is what nothing may be below, whatever it promises otherwise.
const floor = 0.3

// benchmark is one path, ours and its twin.
type benchmark struct {
	name   string
	unit   string
	target float64 // of ours / twin
	size   int     // items of a round at scale 1
	step   int     // a round is a multiple of this
	ours   side
	twin   side
}

// side gets t.n items through one implementation: it prepares, calls t.measure
// once, and calls t.expect on what is there afterwards.
type side func(ctx context.Context, t *trial) error

var benchmarks = []benchmark{
	{"windows/1key", "items/s", floor, 4_000_000, 1, collectOurs(1), collectTwin(1)},
	{"windows/100k-keys", "items/s", floor, 1_000_000, 1, collectOurs(100_000), collectTwin(100_000)},
	{"windows/adaptive", "items/s", floor, 1_000_000, 1, collectAdaptive(1_000), collectTwin(1_000)},
	{"publish", "events/s", floor, 200_000, 1, publishOurs, publishTwin},
	{"ingest", "events/s", 0.7, 100_000, 1, ingestOurs, ingestTwin},
	{"append/batch100", "events/s", 0.8, 60_000, 100, appendOurs(oneStream), appendTwin(oneStream)},
	{"append/spread100", "events/s", floor, 60_000, 100, appendOurs(manyStreams), appendTwin(manyStreams)},
	{"append/own-1", "events/s", floor, 2_000, 1, crowd{callers: 1}.ours(appendExactly), crowd{callers: 1}.twin(insertExactly)},
	{"append/single-16", "events/s", 5, 8_000, 16, crowd{callers: 16}.ours(appendExactly), crowd{callers: 16}.twin(insertExactly)},
	{"append/own-64", "events/s", floor, 16_000, 64, crowd{callers: 64}.ours(appendExactly), crowd{callers: 64}.twin(insertExactly)},
	{"append/shared-1", "events/s", floor, 2_000, 1, crowd{1, true}.ours(appendAny), crowd{1, true}.twin(insertNext)},
	{"append/shared-16", "events/s", floor, 4_000, 16, crowd{16, true}.ours(appendAny), crowd{16, true}.twin(insertNext)},
	{"append/shared-64", "events/s", floor, 4_000, 64, crowd{64, true}.ours(appendAny), crowd{64, true}.twin(insertNext)},
	{"append/tx", "events/s", floor, 2_000, 1, crowd{callers: 1}.ours(appendInTx), crowd{callers: 1}.twin(insertInTx)},
	{"read/stream10k", "events/s", 0.6, 200_000, longEvents, streamOurs, streamTwin},
	{"read/log", "events/s", 0.6, 1_000_000, 1, logOurs, logTwin},
	{"import", "events/s", 0.6, 1_000_000, 1, importOurs, importTwin},
	{"view/catch-up", "events/s", 0.6, 200_000, 1, catchUpOurs, catchUpTwin},
	{"view/rebuild", "events/s", 0.6, 200_000, 1, rebuildOurs, rebuildTwin},
	{"rewind/10k-by-10", "rows/s", 20, 10 * rewindsOf, 1, late{longEvents, 10}.ours, late{longEvents, 10}.twin},
	{"rewind/100k-by-10", "rows/s", 20, rewindsOf, 1, late{10 * longEvents, 10}.ours, late{10 * longEvents, 10}.twin},
	{"rewind/100k-by-1k", "rows/s", floor, rewindsOf, 1, late{10 * longEvents, 1000}.ours, late{10 * longEvents, 1000}.twin},
	{"rewind/100k-by-100k", "rows/s", floor, rewindsOf, 1, late{10 * longEvents, 10 * longEvents}.ours, late{10 * longEvents, 10 * longEvents}.twin},
}

// choose finds what names asks for, in the order of the table.
func choose(all []benchmark, names string) (chosen []benchmark, err error) {
	wanted := strings.Split(names, ",")
	if i := slices.IndexFunc(wanted, func(name string) bool { return !slices.ContainsFunc(all, matches(name)) }); i >= 0 {
		return nil, fmt.Errorf("no benchmark is named %q; there are %s", wanted[i], list(all))
	}
	for _, b := range all {
		if slices.ContainsFunc(wanted, func(name string) bool { return matches(name)(b) }) {
			chosen = append(chosen, b)
		}
	}
	return chosen, nil
}

// matches takes a whole name, its first part, or all.
func matches(name string) func(benchmark) bool {
	return func(b benchmark) bool {
		return name == "all" || b.name == name || strings.HasPrefix(b.name, name+"/")
	}
}

func list(all []benchmark) string {
	var names []string
	for _, b := range all {
		names = append(names, b.name)
	}
	return strings.Join(names, ", ")
}

// run lets both sides work alternately: whoever comes first in one round comes
// second in the next, so that neither always meets the other's leavings.
func (b benchmark) run(ctx context.Context, l *lab, o options) (result, error) {
	r := result{benchmark: b}
	n := b.items(o.scale)
	for round := range o.rounds {
		sides := []contender{{"ours", b.ours, &r.ours}, {"twin", b.twin, &r.twin}}
		if round%2 == 1 {
			slices.Reverse(sides)
		}
		for _, s := range sides {
			t := &trial{lab: l, n: n, profile: b.profile(o.profile, s.name, round)}
			if err := t.run(ctx, s.side); err != nil {
				return r, fmt.Errorf("round %d, %s: %w", round+1, s.name, err)
			}
			*s.rates = append(*s.rates, t.rate())
			r.note = max(r.note, t.note)
		}
	}
	return r, nil
}

// contender is a side and where its rates go.
type contender struct {
	name  string
	side  side
	rates *[]float64
}

func (b benchmark) items(scale float64) int {
	return max(1, int(float64(b.size)*scale)/b.step) * b.step
}
