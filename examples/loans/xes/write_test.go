package xes_test

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weir-es/weir/examples/loans/xes"
)

func TestWrite_WhatIsWrittenIsRead(t *testing.T) {
	text := rapid.StringOfN(rapid.Rune().Filter(isXML), 0, 40, -1)
	event := rapid.Custom(func(t *rapid.T) xes.Event {
		return xes.Event{
			Activity:   "a" + text.Draw(t, "activity"),
			Transition: text.Draw(t, "transition"),
			Resource:   text.Draw(t, "resource"),
			Time:       time.UnixMilli(rapid.Int64Range(0, 1e13).Draw(t, "time")).UTC(),
		}
	})
	trace := rapid.Custom(func(t *rapid.T) xes.Trace {
		amount := rapid.Int64Range(-xes.MaxAmount, xes.MaxAmount).Draw(t, "amount")
		return xes.Trace{
			Name:      "c" + text.Draw(t, "name"),
			AmountReq: rapid.SampledFrom([]*int64{nil, &amount}).Draw(t, "has amount"),
			Events:    rapid.SliceOfN(event, 0, 5).Draw(t, "events"),
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		wrote := rapid.SliceOfN(trace, 0, 5).Draw(t, "traces")
		var file bytes.Buffer
		if err := xes.Write(&file, slices.Values(wrote)); err != nil {
			t.Fatal(err)
		}
		read, err := readAll(&file)
		if err != nil {
			t.Fatal(err)
		}
		if len(read) != len(wrote) {
			t.Fatalf("read %d traces of %d", len(read), len(wrote))
		}
		for i := range read {
			if got, want := describe(withoutLines(read[i])), describe(wrote[i]); got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
		}
	})
}

func withoutLines(t xes.Trace) xes.Trace {
	t.Line = 0
	for i := range t.Events {
		t.Events[i].Line = 0
	}
	return t
}

// isXML reports whether XML 1.0 can hold the character.
func isXML(r rune) bool {
	return r == '\t' || r == '\n' || r == '\r' || r >= 0x20 && r < 0xd800 || r >= 0xe000 && r < 0xfffe || r > 0xffff
}
