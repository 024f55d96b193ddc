package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/examples/loans/xes"
)

var noon = time.Date(2024, 1, 1, 12, 0, 0, 0, time.UTC)

func TestMapper_EveryMessageCanBeStoredAndReadBack(t *testing.T) {
	registry, err := weir.NewRegistry(types)
	if err != nil {
		t.Fatal(err)
	}
	m := newMapper("log")
	amount := int64(500)
	for _, text := range awkward {
		trace := xes.Trace{Name: text, AmountReq: &amount}
		message, err := m.message(trace, xes.Event{Activity: text, Transition: text, Resource: text, Time: noon})
		if err != nil {
			t.Fatal(err)
		}
		if err := message.Validate(0); err != nil {
			t.Errorf("%.80q: %v", text, err)
		}
		value, err := registry.Decode(message)
		if err != nil {
			t.Fatal(err)
		}
		got := value.(Logged)
		if got.Case != text || got.Step() != text+"+"+text || got.Resource != text || *got.AmountReq != amount || !got.At.Equal(noon) {
			t.Errorf("%.80q came back as %+.200v", text, got)
		}
	}
}

func TestMapper_TheLargestEventFits(t *testing.T) {
	huge := strings.Repeat("<", xes.MaxTextBytes) // takes six bytes each in JSON
	message, err := newMapper("log").message(xes.Trace{Name: huge}, xes.Event{Activity: huge, Transition: huge, Resource: huge, Time: noon})
	if err != nil {
		t.Fatal(err)
	}
	// The broker counts headers too.
	if err := message.Validate(weir.MaxDataBytes - 64<<10); err != nil {
		t.Error(err)
	}
}

func TestMapper_TheSameLogGivesTheSameIdsInFileOrder(t *testing.T) {
	first, again, other := newMapper("log"), newMapper("log"), newMapper("other")
	var last weir.ID
	for i := range 100 {
		event := xes.Event{Activity: "a", Time: noon.Add(time.Duration(i/10) * time.Millisecond)}
		a, _ := first.message(xes.Trace{Name: "c"}, event)
		b, _ := again.message(xes.Trace{Name: "c"}, event)
		c, _ := other.message(xes.Trace{Name: "c"}, event)
		if a.ID != b.ID || a.ID == c.ID || bytes.Compare(a.ID[:], last[:]) <= 0 {
			t.Errorf("event %d: %s, again %s, in another log %s, after %s", i, a.ID, b.ID, c.ID, last)
		}
		last = a.ID
	}
}

func TestMapper_ATypeIsTheActivityAndItsTransition(t *testing.T) {
	for _, c := range []struct{ activity, transition, want string }{
		{"A_SUBMITTED", "COMPLETE", "loan.A_SUBMITTED.COMPLETE"},
		{"A_SUBMITTED", "", "loan.A_SUBMITTED"},
		{"W_Nabellen offertes", "START", "loan.W_Nabellen offertes.START"},
	} {
		if got := typeOf(xes.Event{Activity: c.activity, Transition: c.transition}); got != c.want {
			t.Errorf("got %s, want %s", got, c.want)
		}
	}
}

func TestSystemOf_ThePrefixOrElseAHashChoosesTheProducer(t *testing.T) {
	for activity, want := range map[string]int{"A_X": 0, "O_X": 1, "W_X": 2} {
		if got := systemOf(activity); got != want {
			t.Errorf("%s is written by %d, want %d", activity, got, want)
		}
	}
	used := map[int]bool{}
	for _, activity := range []string{"T02 Check", "T03 Adjust", "T04 Determine", "T05 Print", "T06 Stop", "Confirmation", "é", "B_1"} {
		used[systemOf(activity)] = true
	}
	if len(used) != len(systems) {
		t.Errorf("only the producers %v are used", used)
	}
}
