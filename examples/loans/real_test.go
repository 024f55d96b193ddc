package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// facts are the right numbers of a log, computed by another program. Of the last
// steps they list the commonest only.
type facts struct {
	Cases             int64            `json:"cases"`
	Events            int64            `json:"events"`
	ByActivity        map[string]int64 `json:"by_activity"`
	EndActivities     map[string]int64 `json:"end_activities"`
	Variants          int64            `json:"variants"`
	MostCommonVariant int64            `json:"most_common_variant"`
	AmountReqSum      int64            `json:"amount_req_sum"`
}

// realLog is the log of a real process with its facts, where it is at hand: the logs are
// somebody else's to publish, so the project does not have them.
func realLog(t *testing.T, name string) (source, facts) {
	t.Helper()
	folder := filepath.Join("..", "..", "..", "shared", "data")
	text, err := os.ReadFile(filepath.Join(folder, name+".facts.json"))
	if errors.Is(err, os.ErrNotExist) {
		t.Skipf("needs the real log %s in ../shared/data beside the project", name)
	}
	if err != nil {
		t.Fatal(err)
	}
	var right facts
	if err := json.Unmarshal(text, &right); err != nil {
		t.Fatal(err)
	}
	log, err := fileSource(filepath.Join(folder, name+".xes.gz"))
	if err != nil {
		t.Fatal(err)
	}
	return log, right
}

func TestLoans_RealLogsAgreeWithTheirFacts(t *testing.T) {
	for _, c := range []struct {
		log, what string
		options
	}{
		{"receipt", "as it is", options{seed: 1, duplicate: 0.01, jitter: 20 * time.Millisecond}},
		{"receipt", "in trouble", options{seed: 2, duplicate: 0.05, jitter: 200 * time.Millisecond, kill: 3}},
		{"bpic2012", "in trouble", options{seed: 1, duplicate: 0.05, jitter: 200 * time.Millisecond, kill: 3}},
	} {
		if c.log == "bpic2012" && underRace {
			continue // it takes minutes there, and finds what receipt finds
		}
		t.Run(c.log+" "+c.what, func(t *testing.T) {
			log, right := realLog(t, c.log)
			r, _ := testRun(t, log, c.options)
			result, err := r.all(within(t, 8*time.Minute))
			if err != nil {
				t.Fatal(err)
			}
			wantFacts(t, result, right)
		})
	}
}

func wantFacts(t *testing.T, got Result, right facts) {
	t.Helper()
	for _, c := range []struct {
		what      string
		got, want int64
	}{
		{"cases", got.Cases, right.Cases},
		{"events", got.Events, right.Events},
		{"published", got.Published, right.Events},
		{"stored", got.Stored, right.Events},
		{"applied by trace", got.Applied.Trace, right.Events},
		{"applied by activity", got.Applied.Activity, right.Events},
		{"variants", got.Variants, right.Variants},
		{"most common variant", got.MostCommonVariant, right.MostCommonVariant},
		{"amount", got.AmountReqSum, right.AmountReqSum},
		{"activities", int64(len(got.ByActivity)), int64(len(right.ByActivity))},
	} {
		if c.got != c.want {
			t.Errorf("%s: got %d, want %d", c.what, c.got, c.want)
		}
	}
	if got.DuplicatesSent == 0 {
		t.Error("nothing was sent twice")
	}
	for activity, want := range right.ByActivity {
		if got.ByActivity[activity] != want {
			t.Errorf("%s: got %d, want %d", activity, got.ByActivity[activity], want)
		}
	}
	for step, want := range right.EndActivities {
		if got.EndActivities[step] != want {
			t.Errorf("ends with %s: got %d, want %d", step, got.EndActivities[step], want)
		}
	}
}
