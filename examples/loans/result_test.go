package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
)

func TestTally_CountsCasesVariantsAndEnds(t *testing.T) {
	amount := int64(500)
	tally := newTally()
	for _, steps := range []string{"ab", "ab", "ba", "a"} {
		var row Trace
		for i, step := range steps {
			logged := Logged{Activity: string(step), Transition: "DONE"}
			if i == 0 {
				logged.AmountReq = &amount
			}
			row = row.Evolve(logged)
		}
		tally.addTrace(row)
	}
	tally.addActivity(Activity{Name: "a", Count: 4})
	tally.addActivity(Activity{Name: "b", Count: 3})
	r := tally.finish()
	got := fmt.Sprint(r.Cases, r.Events, r.Applied, r.Variants, r.MostCommonVariant, r.AmountReqSum, r.EndActivities, r.ByActivity)
	if want := "4 7 {7 7} 3 2 2000 map[a+DONE:2 b+DONE:2] map[a:4 b:3]"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestTrace_AnEventWithoutTransitionCountsAsItsActivityAndAPlus(t *testing.T) {
	if got := (Trace{}).Evolve(Logged{Activity: "a"}).Last; got != "a+" {
		t.Errorf("got %q", got)
	}
}

func TestResult_HasTheFieldsPeopleReadByName(t *testing.T) {
	text, err := json.Marshal(newTally().finish())
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"cases":0,"events":0,"published":0,"duplicates_sent":0,"stored":0,"applied":{"trace":0,"activity":0},"by_activity":{},"end_activities":{},"variants":0,"most_common_variant":0,"amount_req_sum":0,"inversions":0,"rewinds":0,"seconds":{"publish":0,"stored":0,"applied":0},"events_per_second":0}`
	if string(text) != want {
		t.Errorf("got  %s\nwant %s", text, want)
	}
}

func TestResult_SaysWhereItDisagreesWithTheLog(t *testing.T) {
	r := Result{Cases: 2, Published: 9, Stored: 9}
	r.Applied.Trace, r.Applied.Activity = 9, 9
	if got := r.disagrees(survey{Cases: 2, Events: 9}); got != "" {
		t.Errorf("got %s", got)
	}
	r.Stored = 8
	if got := r.disagrees(survey{Cases: 2, Events: 9}); got != "8 events stored, 9 in the log" {
		t.Errorf("got %s", got)
	}
}

func TestByCount_TheMostFrequentFirst(t *testing.T) {
	if got := byCount(map[string]int64{"b": 1, "a": 1, "c": 2}); !slices.Equal(got, []string{"c", "a", "b"}) {
		t.Errorf("got %v", got)
	}
}
