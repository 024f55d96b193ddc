package main

import (
	"bytes"
	"context"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/internal/crash"
)

// TestP1P3P4P7_ADeathAtSomePoints is a sample of the sweep over all of them, which is in
// make chaos.
func TestP1P3P4P7_ADeathAtSomePoints(t *testing.T) {
	var out bytes.Buffer
	// Each death takes seconds, and on a machine that has much else to do many of them.
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	if err := run(ctx, strings.Fields("-run points -instances 2 -sample 6 -seed 4 -json"), &out); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	var s swept
	if err := json.Unmarshal(out.Bytes(), &s); err != nil {
		t.Fatal(err)
	}
	if s.Deaths != 6 || s.Points != s.Reached || s.Points < 5 || s.Violations != 0 || s.Events < 100 {
		t.Errorf("%s", out.String())
	}
}

// TestEveryPointIsListed, and has a place in the sweep.
func TestEveryPointIsListed(t *testing.T) {
	var out bytes.Buffer
	if err := run(t.Context(), strings.Fields("-run points -list"), &out); err != nil {
		t.Fatal(err)
	}
	swept := map[*crash.Point]bool{}
	for _, s := range spots() {
		swept[s.point] = true
	}
	for _, p := range crash.Points() {
		if !swept[p] || !strings.Contains(out.String(), p.String()+" ") {
			t.Errorf("point %s is not swept, or not listed", p)
		}
	}
	for p := range special {
		if crash.Find(p.String()) != p {
			t.Errorf("point %s is special, and is none", p)
		}
	}
}

// TestWhatNobodyPassedIsAComplaint, like everything that is wrong in the end.
func TestWhatNobodyPassedIsAComplaint(t *testing.T) {
	all := spots()[:3]
	s := &swept{Unreached: []string{all[1].String()}}
	s.count(all)
	if s.Points != 3 || s.Reached != 2 {
		t.Errorf("%d of %d were reached", s.Reached, s.Points)
	}
	if err := s.complaint(); err == nil || !strings.Contains(err.Error(), "nobody passed "+all[1].String()) {
		t.Errorf("%v", err)
	}
	if err := (&swept{}).complaint(); err != nil {
		t.Error(err)
	}
	if err := (&swept{Violations: 1, wrong: []string{"a row is missing"}}).complaint(); err == nil {
		t.Error("no complaint")
	}
	if _, err := parse(strings.Fields("-run points -only nowhere")); err == nil {
		t.Error("there is no point nowhere")
	}
}

func TestHandledEventsAreCompared(t *testing.T) {
	var a, b weir.ID
	a[0], b[0] = 1, 2
	stored := []storedEvent{{id: a, stream: "s", version: 1}, {id: b, stream: "s", version: 2}}
	one, two := handledEvent{a, "s", 1}, handledEvent{b, "s", 2}
	for _, c := range []struct {
		name    string
		handled []handledEvent
		want    string
	}{
		{"all", []handledEvent{one, two}, ""},
		{"one is missing", []handledEvent{one}, "was not handled"},
		{"one came twice", []handledEvent{one, two, two}, "was handled 2 times"},
		{"out of order", []handledEvent{two, one}, "version 2 of s was handled after version 0"},
	} {
		f := &findings{}
		f.checkHandled(tables{relayed: true, events: stored, handled: c.handled})
		if (f.count == 0) != (c.want == "") || c.want != "" && !strings.Contains(strings.Join(f.named, "\n"), c.want) {
			t.Errorf("%s: %q", c.name, f.named)
		}
	}
}

// TestAnOutboxOutlivesItsProducer: what was noted and not answered is there, in order.
func TestAnOutboxOutlivesItsProducer(t *testing.T) {
	dir := t.TempDir()
	first := &feeder{feederTask: feederTask{Outbox: filepath.Join(dir, "x.outbox"), Journal: filepath.Join(dir, "x.journal")}}
	var err error
	if first.journal, err = openJournal(first.Journal); err != nil {
		t.Fatal(err)
	}
	if _, err := first.open(); err != nil {
		t.Fatal(err)
	}
	var sent []weir.Message
	for range 3 {
		m := weir.Message{ID: weir.NewID(), Stream: topicOf(1), Type: "chaos.said", Data: []byte(`{}`)}
		if err := first.outbox.note(m); err != nil {
			t.Fatal(err)
		}
		sent = append(sent, m)
	}
	if err := first.journal.note("published", sent[1].ID); err != nil {
		t.Fatal(err)
	}
	if _, err := first.outbox.file.WriteString("\n" + `{"ID":"01`); err != nil {
		t.Fatal(err)
	}
	second := &feeder{feederTask: first.feederTask}
	left, err := second.open()
	if err != nil || len(left) != 2 || left[0].ID != sent[0].ID || left[1].ID != sent[2].ID || string(left[1].Data) != `{}` {
		t.Errorf("%v, %v", left, err)
	}
}
