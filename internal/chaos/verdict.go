package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/batching"
	"github.com/weir-es/weir/projection"
)

// verdict is what came out of fan-in. Rows, inversions, rewinds and replayed events
// are sums over both views: each does all of it for itself.
type verdict struct {
	Events     int   `json:"events"` // that the producers say they sent
	Rows       int   `json:"rows"`   // that these events make
	WrongRows  int   `json:"wrong_rows"`
	Inversions int64 `json:"inversions"`
	Rewinds    struct {
		Snapshot int64 `json:"snapshot"`
		Full     int64 `json:"full"`
	} `json:"rewinds"`
	Replayed int64 `json:"events_replayed"`
	Latency  struct {
		P50 float64 `json:"p50"`
		P99 float64 `json:"p99"`
	} `json:"latency_ms"`
	Lost       int `json:"lost"`
	Duplicated int `json:"duplicated"`
	// Held is how long a producer really held a message back at most, in
	// milliseconds: on a busy machine longer than it was told to.
	Held float64 `json:"held_ms"`

	took    time.Duration
	windows batching.Stats
	views   []projection.Status
	wrong   []string
}

// maxWrong is how many wrong things are named.
const maxWrong = 10

func (v *verdict) complain(format string, with ...any) {
	if len(v.wrong) < maxWrong {
		v.wrong = append(v.wrong, fmt.Sprintf(format, with...))
	}
}

// checkStored compares what is stored with what was sent.
func (v *verdict) checkStored(all []sent, stored []delivery) {
	v.Events = len(all)
	times := make(map[weir.ID]int, len(stored))
	for _, d := range stored {
		if times[d.id]++; times[d.id] > 1 {
			v.Duplicated++
			v.complain("%s of %s is stored twice", d.id, d.stream)
		}
	}
	known := make(map[weir.ID]bool, len(all))
	for _, s := range all {
		known[s.ID] = true
		v.Held = max(v.Held, millis(s.At.Sub(s.Issued)))
		if times[s.ID] == 0 {
			v.Lost++
			v.complain("%s of %s, which is %+v, was sent and is not stored", s.ID, s.Stream, s.Note)
		}
	}
	for _, d := range stored {
		if !known[d.id] {
			v.complain("%s of %s is stored, and nobody has sent it", d.id, d.stream)
		}
	}
}

// byStream are the events of each stream in the order in which they were emitted.
func byStream(all []sent) map[string][]sent {
	streams := map[string][]sent{}
	for _, s := range all {
		streams[string(s.Stream)] = append(streams[string(s.Stream)], s)
	}
	for _, events := range streams {
		slices.SortFunc(events, func(a, b sent) int { return bytes.Compare(a.ID[:], b.ID[:]) })
	}
	return streams
}

// folded is a state that can be compared.
type folded[S any] interface {
	comparable
	weir.Evolver[S]
}

// checkRows compares the rows of a view with one fold over the sorted events of each
// stream.
func checkRows[S folded[S]](v *verdict, view string, streams map[string][]sent, rows []projection.Row[S]) {
	v.Rows += len(streams)
	seen := map[string]bool{}
	for _, row := range rows {
		seen[row.Key] = true
		if why := differs(streams[row.Key], row); why != "" {
			v.WrongRows++
			v.complain("row %s of view %s %s", row.Key, view, why)
		}
	}
	for key := range streams {
		if !seen[key] {
			v.WrongRows++
			v.complain("row %s of view %s is missing", key, view)
		}
	}
}

// differs says in what a row is not a sorted fold of events, or "".
func differs[S folded[S]](events []sent, row projection.Row[S]) string {
	if len(events) == 0 {
		return "is of a stream without events"
	}
	var state S
	for _, e := range events {
		state = state.Evolve(e.Note)
	}
	last := events[len(events)-1].ID
	switch {
	case row.State != state:
		return fmt.Sprintf("is %+v instead of %+v", row.State, state)
	case row.Version != weir.Version(len(events)):
		return fmt.Sprintf("is at version %d of %d", row.Version, len(events))
	case row.EventID != last:
		return fmt.Sprintf("ends with %s instead of %s", row.EventID, last)
	}
	return ""
}

// checkVerified takes over what the view says of itself.
func (v *verdict) checkVerified(view string, found projection.Verified) {
	for _, d := range found.Differences {
		v.complain("view %s finds that %s", view, d)
	}
	if found.Behind > 0 {
		v.complain("view %s is behind with %d streams", view, found.Behind)
	}
}

func (v *verdict) count(views []projection.Status) {
	v.views = views
	for _, s := range views {
		v.Inversions += s.Inversions
		v.Rewinds.Snapshot += s.FromSnapshot
		v.Rewinds.Full += s.Rewinds - s.FromSnapshot
		v.Replayed += s.Replayed
	}
}

// time takes over how long events took, the shortest first.
func (v *verdict) time(took []time.Duration) {
	if len(took) == 0 {
		return
	}
	at := func(q float64) float64 { return millis(took[int(q*float64(len(took)-1))]) }
	v.Latency.P50, v.Latency.P99 = at(0.5), at(0.99)
}

// complaint is why the run has failed, if it has.
func (v *verdict) complaint() error {
	var all []error
	for _, text := range v.wrong {
		all = append(all, errors.New(text))
	}
	if v.WrongRows+v.Lost+v.Duplicated > 0 {
		all = append(all, fmt.Errorf("%d wrong rows, %d events lost, %d duplicated", v.WrongRows, v.Lost, v.Duplicated))
	}
	return errors.Join(all...)
}

func (v *verdict) print(out io.Writer, o options) error {
	if o.json {
		return json.NewEncoder(out).Encode(v)
	}
	fmt.Fprintf(out, "%s, seed %d: %d producers, clocks off by up to %s, delays of %s, windows %s\n", o.name, o.seed, o.producers, o.skew, &o.delay, o.windows)
	fmt.Fprintf(out, "%-9s %d sent, held back for up to %.0f ms; %d lost, %d duplicated; all applied after %.1f s\n",
		"events", v.Events, v.Held, v.Lost, v.Duplicated, v.took.Seconds())
	fmt.Fprintf(out, "%-9s %d, %d wrong\n", "rows", v.Rows, v.WrongRows)
	for _, s := range v.views {
		fmt.Fprintf(out, "%-9s %d inversions, %d rewinds, %d of them from a snapshot, %d events replayed\n", s.View, s.Inversions, s.Rewinds, s.FromSnapshot, s.Replayed)
	}
	fmt.Fprintf(out, "%-9s %d batches, quiet %s, lateness %s, %d late\n", "windows", v.windows.Batches, v.windows.Quiet, v.windows.Lateness, v.windows.Late)
	_, err := fmt.Fprintf(out, "%-9s p50 %.0f ms, p99 %.0f ms from the publisher to the row\n", "latency", v.Latency.P50, v.Latency.P99)
	return err
}
