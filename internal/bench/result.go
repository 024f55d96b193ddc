package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
)

// result is what a benchmark measured: the rates of each side, by round.
type result struct {
	benchmark
	ours, twin []float64 // items per second
	note       string
}

// line is a result as -json prints it. Rates are medians in items per second;
// ratio is ours / twin.
type line struct {
	Name   string  `json:"name"`
	Unit   string  `json:"unit"`
	Ours   float64 `json:"ours"`
	Twin   float64 `json:"twin"`
	Ratio  float64 `json:"ratio"`
	Target float64 `json:"target"`
}

func (r result) line() line {
	ours, twin := median(r.ours), median(r.twin)
	return line{r.name, r.unit, ours, twin, ours / twin, r.target}
}

func (r result) print(w io.Writer, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(w).Encode(r.line())
	}
	_, err := fmt.Fprintln(w, r)
	return err
}

// String is a line for people. The ratios in brackets are those of the worst and
// the best round: how far to trust the median.
func (r result) String() string {
	l, verdict := r.line(), "met"
	if l.Ratio < l.Target {
		verdict = "NOT MET"
	}
	low, high := r.spread()
	return fmt.Sprintf("%-19s twin %10.0f  ours %10.0f %-9s ratio %5.2f (%.2f to %.2f)  target %.1f %s  %s",
		l.Name, l.Twin, l.Ours, l.Unit, l.Ratio, low, high, l.Target, verdict, r.note)
}

// spread is the lowest and the highest ratio of a round.
func (r result) spread() (low, high float64) {
	var ratios []float64
	for i := range r.ours {
		ratios = append(ratios, r.ours[i]/r.twin[i])
	}
	return slices.Min(ratios), slices.Max(ratios)
}

// median of values, of which there is at least one.
func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}
