package main

import (
	"fmt"
	"maps"
	"slices"
)

// Result is what the read models say in the end, and how it went.
type Result struct {
	Cases          int64 `json:"cases"`
	Events         int64 `json:"events"`
	Published      int64 `json:"published"`
	DuplicatesSent int64 `json:"duplicates_sent"`
	Stored         int64 `json:"stored"`
	Applied        struct {
		Trace    int64 `json:"trace"`
		Activity int64 `json:"activity"`
	} `json:"applied"`
	ByActivity        map[string]int64 `json:"by_activity"`
	EndActivities     map[string]int64 `json:"end_activities"`
	Variants          int64            `json:"variants"`
	MostCommonVariant int64            `json:"most_common_variant"`
	AmountReqSum      int64            `json:"amount_req_sum"`
	Inversions        int64            `json:"inversions"`
	Rewinds           int64            `json:"rewinds"`
	Seconds           Seconds          `json:"seconds"`
	EventsPerSecond   float64          `json:"events_per_second"`
}

// Seconds since the first message was published until all were published,
// stored and applied.
type Seconds struct {
	Publish float64 `json:"publish"`
	Stored  float64 `json:"stored"`
	Applied float64 `json:"applied"`
}

// tally gathers the rows of the two views.
type tally struct {
	result   Result
	variants map[string]int64
}

func newTally() *tally {
	return &tally{
		result:   Result{ByActivity: map[string]int64{}, EndActivities: map[string]int64{}},
		variants: map[string]int64{},
	}
}

func (t *tally) addTrace(row Trace) {
	t.result.Cases++
	t.result.Events += row.Events
	t.result.Applied.Trace += row.Events
	t.result.EndActivities[row.Last]++
	t.variants[row.Variant]++
	if row.AmountReq != nil {
		t.result.AmountReqSum += *row.AmountReq
	}
}

func (t *tally) addActivity(row Activity) {
	t.result.Applied.Activity += row.Count
	t.result.ByActivity[row.Name] += row.Count
}

func (t *tally) finish() Result {
	t.result.Variants = int64(len(t.variants))
	for _, cases := range t.variants {
		t.result.MostCommonVariant = max(t.result.MostCommonVariant, cases)
	}
	return t.result
}

// disagrees says where the result differs from what is in the log, or "".
func (r Result) disagrees(log survey) string {
	for _, c := range []struct {
		what      string
		got, want int64
	}{
		{"cases in the view", r.Cases, log.Cases},
		{"events published", r.Published, log.Events},
		{"events stored", r.Stored, log.Events},
		{"events applied by trace", r.Applied.Trace, log.Events},
		{"events applied by activity", r.Applied.Activity, log.Events},
	} {
		if c.got != c.want {
			return fmt.Sprintf("%d %s, %d in the log", c.got, c.what, c.want)
		}
	}
	return ""
}

// byCount is the keys, the most frequent first.
func byCount(counts map[string]int64) []string {
	return slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		if counts[a] != counts[b] {
			return int(counts[b] - counts[a])
		}
		if a < b {
			return -1
		}
		return 1
	})
}
