package main

import (
	"bytes"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestDisplay_WithoutATerminalItWritesPlainLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		d := newDisplay(&out, 262_200)
		<-time.After(2 * time.Second)
		d.show(progress{published: 20_000, stored: 1000, applied: 0})
		slog.New(slog.NewTextHandler(d, nil)).Warn("something")
		<-time.After(time.Second)
		d.show(progress{published: 20_000, stored: 1000, applied: 0}) // nothing new
		<-time.After(time.Second)
		d.show(progress{published: 22_000, stored: 11_000, applied: 500})
		lines := strings.Split(out.String(), "\n")
		for i, want := range []string{
			"published 20,000 10,000/s · stored 1,000 500/s · applied 0 0/s of 262,200",
			"level=WARN msg=something",
			"published 22,000 1,000/s · stored 11,000 5,000/s · applied 500 250/s of 262,200",
		} {
			if !strings.HasSuffix(lines[i], want) {
				t.Errorf("line %d is %q, want %q", i, lines[i], want)
			}
		}
	})
}

func TestWriteTable_ShowsThePersonWhatTheJSONSays(t *testing.T) {
	result := Result{Cases: 3, Events: 1234, Published: 1234, DuplicatesSent: 5, Stored: 1234, Variants: 2, MostCommonVariant: 1,
		AmountReqSum: -1_234_567, ByActivity: map[string]int64{"a": 1000, "b\x1b[2J": 234}, EndActivities: map[string]int64{}}
	for _, step := range "abcdefghij" {
		result.EndActivities[string(step)] = 1
	}
	var out bytes.Buffer
	if err := print(&out, result, false); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"events       1,234\n", "1,234, and 5 of them twice", "-1,234,567", `"a"         1,000`, `"b\x1b[2J"`, "and 2 others"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}

func TestGrouped_AndCompact(t *testing.T) {
	for n, want := range map[int64][2]string{0: {"0", "0"}, 999: {"999", "999"}, 1000: {"1,000", "1000"}, 262_200: {"262,200", "262k"},
		-999: {"-999", "-999"}, -1_000_000: {"-1,000,000", "-1000000"}} {
		if got := [2]string{grouped(n), compact(n)}; got != want {
			t.Errorf("got %v, want %v", got, want)
		}
	}
}

func TestWatch_GivesUpWhenNothingMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		r := &run{found: survey{Events: 9}, display: newDisplay(io.Discard, 9)}
		time.AfterFunc(time.Minute, func() { r.sent.first.Add(1) })
		err := r.watch(t.Context(), nil)
		if err == nil || !strings.Contains(err.Error(), "nothing has moved for 3m") || !strings.Contains(err.Error(), "1 published, 0 stored, 0 applied of 9") {
			t.Errorf("got %v", err)
		}
		if took := time.Since(start); took < 4*time.Minute || took > 4*time.Minute+10*time.Second {
			t.Errorf("took %s", took)
		}
	})
}
