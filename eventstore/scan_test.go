package eventstore

import (
	"encoding/json"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"github.com/weir-es/weir"
)

// TestQuickMetadataIsTheSame as what encoding/json makes of it, or declines.
func TestQuickMetadataIsTheSame(t *testing.T) {
	quick := 0
	rapid.Check(t, func(rt *rapid.T) {
		text := rapid.OneOf(rapid.Just(""), rapid.StringMatching(`[a-z0-9-]{1,20}`), rapid.String())
		m := weir.Metadata{Correlation: text.Draw(rt, "correlation"), Causation: text.Draw(rt, "causation"),
			Producer: text.Draw(rt, "producer"), TraceParent: text.Draw(rt, "parent"), TraceState: text.Draw(rt, "state")}
		if rapid.Bool().Draw(rt, "extra") {
			m.Extra = map[string]string{text.Draw(rt, "key"): text.Draw(rt, "value")}
		}
		stored, err := json.Marshal(m)
		if err != nil {
			rt.Fatal(err)
		}
		if text, ok := quickEncode(m); ok && (text == nil && string(stored) != "{}" || text != nil && string(text) != string(stored)) {
			rt.Errorf("%+v is written as %v, want %s", m, text, stored)
		}
		var got, want weir.Metadata
		if err := json.Unmarshal(stored, &want); err != nil {
			rt.Fatal(err)
		}
		if !quickMetadata(string(stored), &got) {
			got = want
		} else {
			quick++
		}
		if !reflect.DeepEqual(got, want) {
			rt.Errorf("%s is read as %+v, want %+v", stored, got, want)
		}
	})
	if quick == 0 {
		t.Error("it always declines")
	}
}

func FuzzQuickMetadata(f *testing.F) {
	f.Add(`{"correlation":"a","producer":"b"}`)
	f.Add(`{"correlation":"a"} `)
	f.Add(`{"correlation":"a",}`)
	f.Fuzz(func(t *testing.T, text string) {
		var quick, slow weir.Metadata
		if quickMetadata(text, &quick) && json.Valid([]byte(text)) {
			if err := json.Unmarshal([]byte(text), &slow); err == nil && !reflect.DeepEqual(quick, slow) {
				t.Errorf("%q is read as %+v, want %+v", text, quick, slow)
			}
		}
	})
}
