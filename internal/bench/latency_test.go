package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/weir-es/weir/internal/testkit"
)

// Every pace runs end to end and prints a line of its own.
func TestLatencySmoke(t *testing.T) {
	l := newLab(testkit.Context(t), false)
	t.Cleanup(func() {
		if err := l.close(); err != nil {
			t.Error(err)
		}
	})
	var out bytes.Buffer
	if err := runLatency(testkit.Context(t), l, options{rounds: 1, scale: 0.02, json: true}, &out); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != len(paces) {
		t.Fatalf("%d lines for %d paces: %s", len(lines), len(paces), out.String())
	}
	for i, text := range lines {
		var w waited
		if err := json.Unmarshal([]byte(text), &w); err != nil {
			t.Fatal(err)
		}
		if w.Name != paces[i].name || w.Windows != paces[i].windows || w.Events < 10 || w.P50 <= 0 || w.P50 > w.P99 || w.P99 > w.Max {
			t.Errorf("%+v", w)
		}
	}
}

func TestWaitedSaysWhatBecameOfItsTargets(t *testing.T) {
	p := pace{name: "latency/ordered", windows: "adaptive", p50: 15 * time.Millisecond, p99: 60 * time.Millisecond}
	var took []time.Duration
	for n := range 101 {
		took = append(took, time.Duration(n)*time.Millisecond)
	}
	var out bytes.Buffer
	if err := p.line(took).print(&out, false); err != nil {
		t.Fatal(err)
	}
	want := "latency/ordered  adaptive    101 events  p50 50.0 ms (target 15 NOT MET)  p99 99.0 ms (target 60 NOT MET)  max 100.0 ms\n"
	if out.String() != want {
		t.Errorf("got  %q\nwant %q", out.String(), want)
	}
}
