package main

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// progress is how many events have come how far.
type progress struct{ published, stored, applied int64 }

// display shows progress to a person: a bar on a terminal, else a line now and
// then. Log lines go through it, so that they do not tear the bar.
type display struct {
	// every is how often it wants to show something.
	every time.Duration

	mu     sync.Mutex
	out    io.Writer
	total  int64
	bar    *progressbar.ProgressBar // nil where there is no terminal
	before progress
	at     time.Time
}

func newDisplay(out io.Writer, total int64) *display {
	d := &display{out: out, total: total, every: 2 * time.Second, at: time.Now()}
	if file, ok := out.(*os.File); ok && term.IsTerminal(int(file.Fd())) {
		d.every = 200 * time.Millisecond
		d.bar = progressbar.NewOptions64(total,
			progressbar.OptionSetWriter(out),
			progressbar.OptionSetWidth(10),
			progressbar.OptionSetPredictTime(false),
			progressbar.OptionClearOnFinish(),
		)
	}
	return d
}

// Write writes a log line.
func (d *display) Write(line []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.bar != nil {
		d.bar.Clear()
	}
	return d.out.Write(line)
}

// show shows how far things are and how fast they went since the last time. A
// line that would say nothing new is left out.
func (d *display) show(now progress) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.bar == nil && now == d.before {
		return
	}
	seconds := time.Since(d.at).Seconds()
	write := grouped
	if d.bar != nil {
		write = compact
	}
	part := func(what string, now, before int64) string {
		return fmt.Sprintf("%s %s %s/s", what, write(now), write(int64(float64(now-before)/seconds)))
	}
	text := part("published", now.published, d.before.published) + " · " +
		part("stored", now.stored, d.before.stored) + " · " +
		part("applied", now.applied, d.before.applied)
	d.before, d.at = now, time.Now()
	if d.bar == nil {
		fmt.Fprintf(d.out, "%s of %s\n", text, grouped(d.total))
		return
	}
	d.bar.Set64(min(now.applied, d.total))
	d.bar.Describe(text)
}

// finish takes the bar away.
func (d *display) finish() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.bar != nil {
		d.bar.Clear()
	}
}

// endsShown is how many last steps the table shows.
const endsShown = 8

// writeTable shows the result to a person.
func writeTable(w io.Writer, r Result) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	line := func(what string, value any) { fmt.Fprintf(t, "%s\t%v\n", what, value) }
	line("cases", grouped(r.Cases))
	line("events", grouped(r.Events))
	line("published", fmt.Sprintf("%s, and %s of them twice", grouped(r.Published), grouped(r.DuplicatesSent)))
	line("stored", grouped(r.Stored))
	line("applied", fmt.Sprintf("%s by trace, %s by activity", grouped(r.Applied.Trace), grouped(r.Applied.Activity)))
	line("variants", fmt.Sprintf("%s, the commonest in %s cases", grouped(r.Variants), grouped(r.MostCommonVariant)))
	line("requested", grouped(r.AmountReqSum))
	line("late events", fmt.Sprintf("%s, put right by %s rewinds", grouped(r.Inversions), grouped(r.Rewinds)))
	line("seconds", fmt.Sprintf("%.1f published, %.1f stored, %.1f applied", r.Seconds.Publish, r.Seconds.Stored, r.Seconds.Applied))
	line("events/s", grouped(int64(r.EventsPerSecond)))
	counts(t, "activity", r.ByActivity, len(r.ByActivity))
	counts(t, "last step of a case", r.EndActivities, endsShown)
	return t.Flush()
}

func counts(w io.Writer, title string, counts map[string]int64, limit int) {
	fmt.Fprintf(w, "\n%s\tcount\n", title)
	keys := byCount(counts)
	for _, key := range keys[:min(limit, len(keys))] {
		fmt.Fprintf(w, "%.60q\t%s\n", key, grouped(counts[key]))
	}
	if len(keys) > limit {
		fmt.Fprintf(w, "and %d others\t\n", len(keys)-limit)
	}
}

// grouped writes 262200 as 262,200.
func grouped(n int64) string {
	text := strconv.FormatInt(n, 10)
	for at := len(text) - 3; at > 0 && text[at-1] != '-'; at -= 3 {
		text = text[:at] + "," + text[at:]
	}
	return text
}

// compact writes 262200 as 262k, so that a line fits a terminal of 80 columns.
func compact(n int64) string {
	if n < 10_000 {
		return strconv.FormatInt(n, 10)
	}
	return strconv.FormatInt(n/1000, 10) + "k"
}
