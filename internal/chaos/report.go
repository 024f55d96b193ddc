package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/weir-es/weir"
)

// delivery is an event as a reader was given it.
type delivery struct {
	id       weir.ID
	stream   weir.StreamID
	version  weir.Version
	position weir.Position
	seen     time.Time
}

// tally is what one reader was given, against what is stored.
type tally struct {
	reader                            string
	delivered, duplicated, outOfOrder int
	lost                              []weir.ID
}

// compare counts what a reader was given once, not at all, more than once, and
// after what follows it: positions ascend, and so do the versions of a stream.
func compare(reader string, stored, given []delivery) tally {
	t := tally{reader: reader}
	seen := make(map[weir.ID]bool, len(given))
	versions := map[weir.StreamID]weir.Version{}
	var last weir.Position
	for _, d := range given {
		switch {
		case seen[d.id]:
			t.duplicated++
			continue
		case d.position <= last || d.version <= versions[d.stream]:
			t.outOfOrder++
		}
		seen[d.id] = true
		last, versions[d.stream] = d.position, d.version
		t.delivered++
	}
	for _, d := range stored {
		if !seen[d.id] {
			t.lost = append(t.lost, d.id)
		}
	}
	return t
}

// spread is the lag of a number of deliveries, in milliseconds.
type spread struct {
	P50 float64 `json:"p50"`
	Max float64 `json:"max"`
}

func spreadOf(lags []time.Duration) spread {
	if len(lags) == 0 {
		return spread{}
	}
	slices.Sort(lags)
	return spread{millis(lags[len(lags)/2]), millis(lags[len(lags)-1])}
}

func millis(d time.Duration) float64 {
	return float64(d.Round(10*time.Microsecond)) / float64(time.Millisecond)
}

// lags are the times from the acknowledged commit to the reader, for commits in the
// measured part, without and with the foreign transaction. A reader may be faster
// than the acknowledgement: that is no lag.
func lags(t timeline, acked map[weir.ID]time.Time, given []delivery) (own, foreign []time.Duration) {
	for _, d := range given {
		at, ok := acked[d.id]
		counts, isForeign := t.measured(at)
		switch lag := max(0, d.seen.Sub(at)); {
		case !ok || !counts:
		case isForeign:
			foreign = append(foreign, lag)
		default:
			own = append(own, lag)
		}
	}
	return own, foreign
}

// report is what came out. Delivered are the events that every reader was given that
// should be; lost, duplicated and out of order are sums over all readers. Lag is that
// of each tail reader to each event.
type report struct {
	Committed  int    `json:"committed"`
	Delivered  int    `json:"delivered"`
	Lost       int    `json:"lost"`
	Duplicated int    `json:"duplicated"`
	OutOfOrder int    `json:"out_of_order"`
	Lag        spread `json:"lag_ms"`
	LagForeign spread `json:"lag_ms_foreign"`

	acked, gone, unknown, killed int
	tallies                      []tally
	missed                       map[weir.ID]bool // by some reader
	wrong                        []string         // contradictions between writers and the table
}

func (r *report) add(t tally) {
	for _, id := range t.lost {
		r.missed[id] = true
	}
	r.tallies = append(r.tallies, t)
	r.Delivered = r.Committed - len(r.missed)
	r.Lost += len(t.lost)
	r.Duplicated += t.duplicated
	r.OutOfOrder += t.outOfOrder
}

// check compares what is stored with what the writers were told, and in itself.
func (r *report) check(l *ledger, stored []delivery) {
	r.Committed, r.missed = len(stored), map[weir.ID]bool{}
	is := make(map[weir.ID]bool, len(stored))
	versions := map[weir.StreamID]weir.Version{}
	for _, d := range stored {
		if versions[d.stream]++; d.version != versions[d.stream] {
			r.OutOfOrder++
		}
		is[d.id] = true
		if l.gone[d.id] {
			r.wrong = append(r.wrong, fmt.Sprintf("%s was rolled back and is stored", d.id))
		}
		if _, ok := l.acked[d.id]; !ok {
			r.unknown++
		}
	}
	for id := range l.acked {
		if !is[id] {
			r.Lost++
			r.wrong = append(r.wrong, fmt.Sprintf("%s was acknowledged and is not stored", id))
		}
	}
	r.acked, r.gone = len(l.acked), len(l.gone)
}

// complaint is why the run has failed, if it has.
func (r report) complaint() error {
	var all []error
	for _, text := range r.wrong {
		all = append(all, errors.New(text))
	}
	if r.Lost+r.Duplicated+r.OutOfOrder > 0 {
		all = append(all, fmt.Errorf("%d lost, %d duplicated, %d out of order", r.Lost, r.Duplicated, r.OutOfOrder))
	}
	if r.Committed == 0 {
		all = append(all, errors.New("nothing was committed, so nothing was shown"))
	}
	return errors.Join(all...)
}

func (r report) print(out io.Writer, o options) error {
	if o.json {
		return json.NewEncoder(out).Encode(r)
	}
	fmt.Fprintf(out, "%s, seed %d, %v s\n", o.name, o.seed, o.seconds)
	fmt.Fprintf(out, "%-16s %d events stored, of which %d were never acknowledged; %d rolled back; %d backends killed\n",
		"written", r.Committed, r.unknown, r.gone, r.killed)
	for _, t := range r.tallies {
		fmt.Fprintf(out, "%-16s %d delivered, %d lost, %d duplicated, %d out of order\n", t.reader, t.delivered, len(t.lost), t.duplicated, t.outOfOrder)
	}
	_, err := fmt.Fprintf(out, "%-16s p50 %.1f ms, max %.1f ms; with a foreign transaction open p50 %.1f ms, max %.1f ms\n",
		"lag of tails", r.Lag.P50, r.Lag.Max, r.LagForeign.P50, r.LagForeign.Max)
	return err
}
