package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weir-es/weir"
)

// given makes deliveries of a text such as "a1@4": version 1 of stream a, at 4. The
// stream and the version make the id.
func given(text string) (all []delivery) {
	for _, word := range strings.Fields(text) {
		var d delivery
		fmt.Sscanf(word[1:], "%d@%d", &d.version, &d.position)
		d.stream, d.id[0], d.id[1] = weir.StreamID(word[:1]), word[0], byte(d.version)
		all = append(all, d)
	}
	return all
}

func TestReadersAreComparedWithTheTable(t *testing.T) {
	const stored = "a1@1 b1@2 a2@4 a3@5"
	for _, c := range []struct {
		given                                   string
		delivered, lost, duplicated, outOfOrder int
	}{
		{stored, 4, 0, 0, 0},
		{"", 0, 4, 0, 0},
		{"a1@1 a2@4 a3@5", 3, 1, 0, 0},
		{"a1@1 b1@2 b1@2 a2@4 a3@5", 4, 0, 1, 0},
		{"b1@2 a1@1 a2@4 a3@5", 4, 0, 0, 1},
		{"a1@1 b1@2 a3@4 a2@5", 4, 0, 0, 1},
		{"a1@1 a2@4 a1@1 a2@4 a3@5 b1@2", 4, 0, 2, 1},
	} {
		got := compare("x", given(stored), given(c.given))
		if got.delivered != c.delivered || len(got.lost) != c.lost || got.duplicated != c.duplicated || got.outOfOrder != c.outOfOrder {
			t.Errorf("%s: %+v", c.given, got)
		}
	}
}

func TestTheTableIsComparedWithWhatWritersWereTold(t *testing.T) {
	told := newLedger()
	for _, d := range given("a1@1 b1@2 c1@3") {
		told.ack(weir.Message{ID: d.id})
	}
	for _, d := range given("d1@4") {
		told.lose(weir.Message{ID: d.id})
	}
	for stored, want := range map[string]string{
		"a1@1 b1@2 c1@3":      "",
		"a1@1 b1@2 c1@3 e1@5": "", // an unknown outcome
		"a1@1 b1@2":           "acknowledged and is not stored",
		"a1@1 b1@2 c1@3 d1@4": "rolled back and is stored",
		"a1@1 b1@2 c1@3 a3@7": "1 out of order",
	} {
		var r report
		r.check(told, given(stored))
		err := r.complaint()
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", stored, err, want)
		}
	}
}

// TestBothSidesOfTheLagHaveTheSameShare of the run, early and late.
func TestBothSidesOfTheLagHaveTheSameShare(t *testing.T) {
	line := timeline{start: time.Unix(0, 0), length: 20 * time.Second}
	var shares [2]int
	var centres [2]time.Duration
	for at := time.Duration(0); at < line.length; at += time.Millisecond {
		now := line.start.Add(at)
		counts, foreign := line.measured(now)
		if !counts {
			continue
		}
		if line.part(now) != calm {
			t.Fatalf("%s counts and is not calm", at)
		}
		side := 0
		if foreign {
			side = 1
		}
		shares[side]++
		centres[side] += at
	}
	without, with := centres[0]/time.Duration(shares[0]), centres[1]/time.Duration(shares[1])
	if shares[0] != shares[1] || shares[0] < 5000 || (with-without).Abs() > 10*time.Millisecond {
		t.Errorf("without: %d ms around %s, with: %d ms around %s", shares[0], without, shares[1], with)
	}
}

// TestP6_NothingIsSkippedOnABadDay is a short one; make chaos has ten long ones.
func TestP6_NothingIsSkippedOnABadDay(t *testing.T) {
	var out bytes.Buffer
	if err := run(context.Background(), []string{"-seed", "7", "-seconds", "4", "-json"}, &out); err != nil {
		t.Fatal(err)
	}
	var r map[string]any
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		t.Fatalf("%v: %s", err, out.String())
	}
	if r["committed"] != r["delivered"] || r["committed"].(float64) < 500 || len(r) != 7 {
		t.Errorf("got %s", out.String())
	}
	if p50 := r["lag_ms_foreign"].(map[string]any)["p50"].(float64); p50 <= 0 || p50 > 1000 {
		t.Errorf("the lag with a foreign transaction open is %v ms", p50)
	}
}

// TestABadDayShowsWhatTheHorizonIsFor: a reader without it loses events, and the run
// fails.
func TestABadDayShowsWhatTheHorizonIsFor(t *testing.T) {
	var out bytes.Buffer
	err := run(context.Background(), []string{"-run", "last", "-seconds", "2", "-json"}, &out)
	var r report
	if json.Unmarshal(out.Bytes(), &r) != nil || r.Lost == 0 || r.Delivered+r.Lost != r.Committed || err == nil {
		t.Errorf("%v\n%s", err, out.String())
	}
}

func TestArguments(t *testing.T) {
	for _, c := range []struct{ arguments, want string }{
		{"-run nothing", "horizon, last, fan-in"},
		{"-seconds 0", "between 1 and 3600"},
		{"horizon", "after -run"},
		{"-run fan-in -delay 2s", "0..2s"},
		{"-run fan-in -delay 0..soon", "soon"},
		{"-run fan-in -delay later..2s", "later"},
		{"-run fan-in -delay 2s..1s", "ascends"},
		{"-run fan-in -delay -1s..1s", "ascends"},
		{"-run fan-in -delay 0..2m", "within 0..1m0s"},
		{"-run fan-in -windows wide", "adaptive, fixed or off"},
		{"-run fan-in -producers 0", "between 1 and 50"},
		{"-run fan-in -producers 51", "between 1 and 50"},
		{"-run fan-in -events 4", "one for each producer"},
		{"-run fan-in -events 10000001", "10000000"},
		{"-run fan-in -rate 0", "between 1 and 100000"},
		{"-run fan-in -turns 0", "between 1 and 350"},
		{"-run fan-in -turns 351", "between 1 and 350"},
		{"-run fan-in -skew -1s", "between 0 and 20s"},
		{"-run all -instances 0", "between 1 and 16"},
		{"-run all -instances 17", "between 1 and 16"},
		{"-run fan-in -skew 21s", "between 0 and 20s"},
	} {
		err := run(context.Background(), strings.Fields(c.arguments), &bytes.Buffer{})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.arguments, err)
		}
	}
}
