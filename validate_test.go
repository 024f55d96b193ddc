package weir_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/weir-es/weir"
)

// message is a valid message with one thing changed.
func message(change func(*weir.Message)) *weir.Message {
	m := &weir.Message{ID: idAt(noon, 1, 1), Stream: "seat-A1", Type: "seat.held", Data: []byte(`{"guest":"Ada"}`)}
	if change != nil {
		change(m)
	}
	return m
}

func payload(data string) func(*weir.Message) {
	return func(m *weir.Message) { m.Data = []byte(data) }
}

func nested(depth int) string {
	return strings.Repeat("[", depth) + strings.Repeat("]", depth)
}

func TestValidateAccepts(t *testing.T) {
	for name, change := range map[string]func(*weir.Message){
		"an event":               nil,
		"a singleton":            func(m *weir.Message) { m.Stream = weir.Singleton },
		"a hostile key":          func(m *weir.Message) { m.Stream = "case-a b.*> '\"🪑\n" },
		"a type of 200 bytes":    func(m *weir.Message) { m.Type = strings.Repeat("é", weir.MaxTypeBytes/2) },
		"a payload of 1 MiB":     payload(`"` + strings.Repeat("a", weir.MaxDataBytes-2) + `"`),
		"depth 128":              payload(nested(128)),
		"depth 128 of objects":   payload(strings.Repeat(`{"a":`, 128) + "1" + strings.Repeat("}", 128)),
		"many side by side":      payload("[" + strings.Repeat("[],{},", 500) + "0]"),
		"brackets in a text":     payload(`"` + nested(500) + `"`),
		"brackets after a quote": payload(`"\"` + nested(500) + `"`),
		"an escaped backslash":   payload(`["\\",` + nested(127) + `]`),
		"a NUL in a text":        payload(`"a\u0000b"`),
		"half a surrogate pair":  payload(`"\ud800"`),
		"a number beyond float":  payload(`1e999999`),
		"a scalar":               payload(`null`),
		"keys twice":             payload(`{"a":1,"a":2}`),
		"JSON by name":           func(m *weir.Message) { m.Metadata.ContentType = weir.ContentTypeJSON },
		"bytes of another kind": func(m *weir.Message) {
			m.Data, m.Metadata.ContentType = []byte{0, 0xff, '{'}, "application/protobuf"
		},
		"nothing of another kind": func(m *weir.Message) { m.Data, m.Metadata.ContentType = nil, "text/plain" },
		"metadata of 32 KiB":      func(m *weir.Message) { m.Metadata = metadataOf(weir.MaxMetadataBytes) },
	} {
		t.Run(name, func(t *testing.T) {
			if err := message(change).Validate(0); err != nil {
				t.Error(err)
			}
		})
	}
}

// metadataOf is metadata whose texts, keys and values together, have n bytes.
func metadataOf(n int) weir.Metadata {
	return weir.Metadata{
		Correlation: "12345", Causation: "67890", Producer: "12345", ContentType: weir.ContentTypeJSON,
		TraceParent: "12345", TraceState: "67890",
		Extra: map[string]string{"key": strings.Repeat("v", n-25-len(weir.ContentTypeJSON)-len("key"))},
	}
}

func TestValidateRefusesTheHighestID(t *testing.T) {
	m := message(func(m *weir.Message) { m.ID = weir.ID(bytes.Repeat([]byte{0xff}, 16)) })
	var invalid *weir.InvalidMessageError
	if err := m.Validate(0); !errors.As(err, &invalid) {
		t.Errorf("error %v, want an *InvalidMessageError: an order id could not be above it", err)
	}
}

func TestValidateRefusesStreams(t *testing.T) {
	for name, stream := range map[string]weir.StreamID{
		"empty": "", "no key": "seat-", "no category": "-A1",
		"zero ULID": "seat-" + zeroULID, "zero UUID": "seat-" + zeroUUID,
	} {
		t.Run(name, func(t *testing.T) {
			m := message(func(m *weir.Message) { m.Stream = stream })
			var empty *weir.EmptyStreamError
			if err := m.Validate(0); !errors.As(err, &empty) {
				t.Fatalf("error %v, want an *EmptyStreamError", err)
			}
			if empty.ID != m.ID || empty.Type != m.Type || empty.Stream != stream {
				t.Errorf("error says %+v", empty)
			}
		})
	}
	for name, stream := range map[string]weir.StreamID{
		"NUL": "seat-A\x00", "bad UTF-8": "seat-\xff", "too long": weir.Stream("seat", strings.Repeat("a", weir.MaxStreamBytes)),
	} {
		t.Run(name, func(t *testing.T) {
			var invalid *weir.InvalidStreamError
			if err := message(func(m *weir.Message) { m.Stream = stream }).Validate(0); !errors.As(err, &invalid) {
				t.Errorf("error %v, want an *InvalidStreamError", err)
			}
		})
	}
}

func TestValidateRefusesMessages(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*weir.Message)
		reason string
	}{
		"no id":                 {func(m *weir.Message) { m.ID = weir.ID{} }, "no id"},
		"no type":               {func(m *weir.Message) { m.Type = "" }, "no type"},
		"long type":             {func(m *weir.Message) { m.Type = strings.Repeat("a", weir.MaxTypeBytes+1) }, "201 bytes"},
		"NUL in the type":       {func(m *weir.Message) { m.Type = "seat\x00" }, "type name with a NUL"},
		"bad UTF-8 in the type": {func(m *weir.Message) { m.Type = "seat\xc0\xaf" }, "invalid UTF-8"},
		"no payload":            {payload(""), "empty payload"},
		"spaces":                {payload("  "), "not JSON"},
		"half an object":        {payload(`{"a":`), "not JSON"},
		"two values":            {payload(`{} {}`), "not JSON"},
		"a byte order mark":     {payload("\ufeff{}"), "not JSON"},
		"a raw NUL":             {payload("\"\x00\""), "not JSON"},
		"bad UTF-8":             {payload("\"\xff\""), "not UTF-8"},
		"a surrogate as UTF-8":  {payload("\"\xed\xa0\x80\""), "not UTF-8"},
		"depth 129":             {payload(nested(129)), "nested deeper than 128"},
		"depth 129 of both":     {payload(strings.Repeat(`{"a":[`, 64) + "{}" + strings.Repeat("]}", 64)), "nested deeper than 128"},
		"depth after a text":    {payload(`["\"]]",` + nested(128) + `]`), "nested deeper than 128"},
		"depth 100,000":         {payload(nested(100_000)), "payload"},
		"no JSON, JSON by name": {func(m *weir.Message) {
			m.Data, m.Metadata.ContentType = []byte("{"), weir.ContentTypeJSON
		}, "not JSON"},
		"NUL in metadata":       {func(m *weir.Message) { m.Metadata.Producer = "a\x00" }, "metadata with a NUL"},
		"bad UTF-8 in a key":    {func(m *weir.Message) { m.Metadata.Extra = map[string]string{"\xff": ""} }, "metadata with a NUL"},
		"NUL in a value":        {func(m *weir.Message) { m.Metadata.Extra = map[string]string{"a": "\x00"} }, "metadata with a NUL"},
		"NUL in a content type": {func(m *weir.Message) { m.Metadata.ContentType = "text/\x00" }, "metadata with a NUL"},
	} {
		t.Run(name, func(t *testing.T) {
			var invalid *weir.InvalidMessageError
			err := message(c.change).Validate(0)
			if !errors.As(err, &invalid) || !strings.Contains(err.Error(), c.reason) {
				t.Errorf("error %v, want an *InvalidMessageError with %q", err, c.reason)
			}
		})
	}
}

func TestP9_ValidateRefusesWhatIsTooLarge(t *testing.T) {
	for name, c := range map[string]struct {
		change             func(*weir.Message)
		limit              int
		what               string
		wantSize, wantStop int
	}{
		"1 MiB and a byte":     {payload(`"` + strings.Repeat("a", weir.MaxDataBytes-1) + `"`), 0, "payload", weir.MaxDataBytes + 1, weir.MaxDataBytes},
		"a limit of one's own": {payload(`"12345678"`), 9, "payload", 10, 9},
		"bytes of another kind": {func(m *weir.Message) {
			m.Data, m.Metadata.ContentType = make([]byte, 10), "image/png"
		}, 9, "payload", 10, 9},
		"metadata": {func(m *weir.Message) { m.Metadata = metadataOf(weir.MaxMetadataBytes + 1) }, 0, "metadata", weir.MaxMetadataBytes + 1, weir.MaxMetadataBytes},
	} {
		t.Run(name, func(t *testing.T) {
			m := message(c.change)
			var large *weir.TooLargeError
			if err := m.Validate(c.limit); !errors.As(err, &large) {
				t.Fatalf("error %v, want a *TooLargeError", err)
			}
			if want := (weir.TooLargeError{ID: m.ID, What: c.what, Size: c.wantSize, Limit: c.wantStop}); *large != want {
				t.Errorf("error says %+v, want %+v", *large, want)
			}
		})
	}
	if err := message(payload(`"12345678"`)).Validate(10); err != nil {
		t.Errorf("exactly at the limit: %v", err)
	}
}

// However a message is broken, an error of Validate is short enough to log.
func TestValidateErrorsAreShort(t *testing.T) {
	const huge = 1 << 20
	for name, change := range map[string]func(*weir.Message){
		"payload": payload(strings.Repeat("a", huge)),
		"type":    func(m *weir.Message) { m.Type = strings.Repeat("a", huge) },
		"stream":  func(m *weir.Message) { m.Stream = weir.Stream("seat", strings.Repeat("\x00", huge)) },
		"no key":  func(m *weir.Message) { m.Stream = weir.StreamID(strings.Repeat("a", huge) + "-") },
		"extra":   func(m *weir.Message) { m.Metadata.Extra = map[string]string{strings.Repeat("a", huge): ""} },
	} {
		t.Run(name, func(t *testing.T) {
			err := message(change).Validate(0)
			if err == nil || len(err.Error()) > 2000 {
				t.Errorf("the error has %d bytes", len(errorText(err)))
			}
		})
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// depthOf is how deep a decoded JSON value nests, the slow and obvious way.
func depthOf(v any) int {
	deepest := 0
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			deepest = max(deepest, depthOf(e))
		}
		return deepest + 1
	case map[string]any:
		for _, e := range v {
			deepest = max(deepest, depthOf(e))
		}
		return deepest + 1
	}
	return 0
}

func FuzzValidate(f *testing.F) {
	for _, seed := range []string{`{}`, `"\u0000"`, `[["\\\"]"]]`, nested(128), nested(129), "\"\xff\"", "1e9", "nul", ""} {
		f.Add("seat-A1", "seat.held", []byte(seed), "", "key", "value")
	}
	f.Add("*", "t", []byte{0xff}, "text/plain", "\x00", "")
	f.Fuzz(func(t *testing.T, stream, typ string, data []byte, contentType, key, value string) {
		m := &weir.Message{
			ID: idAt(noon, 1, 1), Stream: weir.StreamID(stream), Type: typ, Data: data,
			Metadata: weir.Metadata{ContentType: contentType, Extra: map[string]string{key: value}},
		}
		if err := m.Validate(0); err != nil || !m.Metadata.IsJSON() {
			return
		}
		var v any
		d := json.NewDecoder(bytes.NewReader(data))
		d.UseNumber() // a number may be beyond what a float64 holds
		if err := d.Decode(&v); err != nil {
			t.Fatalf("accepted %q, which encoding/json refuses: %v", data, err)
		}
		if got := depthOf(v); got > 128 {
			t.Fatalf("accepted depth %d", got)
		}
	})
}

func TestValidateCountsDepthAsDecodingDoes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := message(payload(drawJSON(t)))
		var v any
		if err := json.Unmarshal(m.Data, &v); err != nil {
			t.Fatal(err)
		}
		if err := m.Validate(0); (err == nil) != (depthOf(v) <= 128) {
			t.Fatalf("depth %d: %v", depthOf(v), err)
		}
	})
}

// drawJSON is a text of some depth around the limit with brackets and quotes in texts.
func drawJSON(t *rapid.T) string {
	text, err := json.Marshal(rapid.StringOf(rapid.RuneFrom([]rune(`[]{}"\a`))).Draw(t, "text"))
	if err != nil {
		t.Fatal(err)
	}
	open, shut := "", ""
	for range rapid.IntRange(120, 136).Draw(t, "depth") {
		if rapid.Bool().Draw(t, "array") {
			open, shut = open+"["+string(text)+",", "]"+shut
		} else {
			open, shut = open+"{"+string(text)+":", "}"+shut
		}
	}
	return open + string(text) + shut
}

func BenchmarkValidate256B(b *testing.B) {
	m := message(payload(`{"guest":"` + strings.Repeat("a", 256-12) + `"}`))
	m.Metadata = weir.Metadata{Correlation: weir.NewID().String(), Producer: "boxoffice", TraceParent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}
	b.SetBytes(int64(len(m.Data)))
	b.ReportAllocs()
	for b.Loop() {
		if err := m.Validate(0); err != nil {
			b.Fatal(err)
		}
	}
}

// slowlyValid is what a payload has to be, in as many passes.
func slowlyValid(data []byte) bool {
	var v any
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	return json.Valid(data) && utf8.Valid(data) && d.Decode(&v) == nil && depthOf(v) <= 128
}

// FuzzValidatePayload against the standard library, which takes several passes.
func FuzzValidatePayload(f *testing.F) {
	for _, seed := range payloads {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m := message(payload(string(data)))
		if err := m.Validate(0); (err == nil) != slowlyValid(data) {
			t.Fatalf("%q: %v", data, err)
		}
	})
}

// payloads are texts around the edges of JSON.
var payloads = []string{
	`{}`, `[]`, ` { "a" : [ 1 , -0.5e+7 , true , false , null , "x" ] } `, "\t\n\r1", `[1,]`, `[,1]`, `{"a":1,}`, `{"a"}`, `{1:2}`, `{"a":}`, `{`, `[`, `]`, `}`, `[}`, `{]`,
	`01`, `-`, `-01`, `1.`, `.5`, `1e`, `1e+`, `1E-5`, `+1`, `0x1`, `1 2`, `--1`, `1.5.5`, `NaN`, `tru`, `truee`, `nul`, `falsee`, `t`,
	`"`, `"\`, `"\"`, `"\u12`, `"\u12G4"`, `"\uD800"`, `"\x"`, `"\/\b\f\n\r\t\\\""`, "\"\x00\"", "\"\x1f\"", "\"\x7f\"", "\"\u00e9\u4e16\U0001f600\"", "\"\ufffd\"", "\"\xff\"", "\"\xe4\xb8\"", "\"\xed\xa0\x80\"", "{}\x00", "\x00", "\ufeff{}", "\v1",
	nested(128), nested(129), `{"a":` + nested(127) + `}`, `{"a":` + nested(128) + `}`,
}

// TestValidateReadsPayloadsAsTheStandardLibraryDoes: texts around the edges of JSON,
// each with any one byte changed, left out or cut off after.
func TestValidateReadsPayloadsAsTheStandardLibraryDoes(t *testing.T) {
	check := func(data []byte) {
		m := message(payload(string(data)))
		if err := m.Validate(0); (err == nil) != slowlyValid(data) {
			t.Errorf("%q: %v", data, err)
		}
	}
	for _, text := range payloads {
		check([]byte(text))
		if len(text) > 100 {
			continue
		}
		for i := range len(text) {
			check([]byte(text[:i]))
			check([]byte(text[:i] + text[i+1:]))
			for c := range 256 {
				changed := []byte(text)
				changed[i] = byte(c)
				check(changed)
			}
		}
	}
}
