package transport

import (
	"errors"
	"net/textproto"
	"reflect"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/weir-es/weir"
)

// overTheWire is what a header becomes on its way: the client trims values and
// makes line breaks spaces.
func overTheWire(t *testing.T, h nats.Header) nats.Header {
	t.Helper()
	block := "NATS/1.0\r\n"
	for name, values := range h {
		for _, value := range values {
			block += name + ": " + strings.NewReplacer("\r", " ", "\n", " ").Replace(textproto.TrimString(value)) + "\r\n"
		}
	}
	back, err := nats.DecodeHeadersMsg([]byte(block + "\r\n"))
	must(t, err)
	return back
}

func checkWire(t *testing.T, m weir.Message) {
	t.Helper()
	h, err := encode(&m)
	if errors.As(err, new(*weir.TooLargeError)) {
		return
	}
	must(t, err)
	back, err := decode(m.Stream, overTheWire(t, h), m.Data)
	must(t, err)
	if !reflect.DeepEqual(back, m) {
		t.Errorf("went in\n%+v\ncame out\n%+v", m, back)
	}
}

func TestEveryTextSurvivesTheWire(t *testing.T) {
	for _, text := range []string{"", "plain", " leading", "trailing ", "\t", "a\r\nb: c", "50%", "%41", "Ünï 💧", "\x01\x7f", ":", "{}", "null", "\u00a0nbsp\u00a0", "\u2028"} {
		m := message("order-1", 1)
		m.Type = "t" + text
		m.Metadata = weir.Metadata{Correlation: text, Causation: text, Producer: text, ContentType: text, TraceParent: text, TraceState: text}
		if text != "" {
			m.Metadata.Extra = map[string]string{text: text, "<&>": "'\""}
		}
		checkWire(t, m)
	}
}

// Aneshas and others overwrote what the caller had set; watermill-nats fell over
// a repeated header.
func TestHeadersOfOthers(t *testing.T) {
	id := weir.NewID()
	m, err := decode("order-1", nats.Header{
		"nats-msg-id":             {id.String(), "second"},
		"WEIR-TYPE":               {"a.b"},
		"Traceparent":             {"00-1-2-01"},
		"Nats-Trace-Dest":         {"trace disabled"},
		"Nats-Expected-Stream":    {"X"},
		"X-Something":             {"else"},
		"Weir-Correlation":        {"exact"},
		"weir-correlation":        {"other case"},
		"Weir-Producer":           {},
		"Content-Type":            {""},
		"Weir-Extra":              {`{"k":"v"}`},
		"Weir-Unknown-Since-2031": {"%"},
	}, nil)
	must(t, err)
	want := weir.Message{ID: id, Stream: "order-1", Type: "a.b",
		Metadata: weir.Metadata{Correlation: "exact", TraceParent: "00-1-2-01", Extra: map[string]string{"k": "v"}}}
	if !reflect.DeepEqual(m, want) {
		t.Errorf("read %+v, want %+v", m, want)
	}
}

func TestUnreadableHeaders(t *testing.T) {
	id := weir.NewID().String()
	for name, h := range map[string]nats.Header{
		"none":         nil,
		"no id":        {headerType: {"a"}},
		"no type":      {headerID: {id}},
		"id of others": {headerID: {"7f6c0f2e-1111-4222-8333-444455556666"}, headerType: {"a"}},
		"zero id":      {headerID: {strings.Repeat("0", 26)}, headerType: {"a"}},
		"overflow":     {headerID: {strings.Repeat("Z", 26)}, headerType: {"a"}},
		"bad escape":   {headerID: {id}, headerType: {"a%2"}},
		"bad extra":    {headerID: {id}, headerType: {"a"}, headerExtra: {"{"}},
		"wrong extra":  {headerID: {id}, headerType: {"a"}, headerExtra: {`{"a":1}`}},
	} {
		if m, err := decode("order-1", h, nil); err == nil {
			t.Errorf("%s: read as %+v", name, m)
		}
	}
}

func TestHeadersTooLarge(t *testing.T) {
	m := message("order-1", 1)
	m.Metadata.Correlation = strings.Repeat("\n", 25<<10) // three bytes each
	_, err := encode(&m)
	var large *weir.TooLargeError
	if !errors.As(err, &large) || large.ID != m.ID {
		t.Errorf("got %v", err)
	}
}

func FuzzWire(f *testing.F) {
	f.Add([]byte("0123456789abcdef"), "a.b", "c", "d", "text/plain", "00-1-2-01", "k=v", "key", "value", []byte("data"))
	f.Add([]byte("\x01"), " %\r\n", "\x00", "é", "", "a\nb", "%", "", "", []byte("{}"))
	f.Fuzz(func(t *testing.T, id []byte, typ, correlation, producer, contentType, parent, state, key, value string, data []byte) {
		m := weir.Message{Stream: "order-1", Type: typ, Data: data, Metadata: weir.Metadata{
			Correlation: correlation, Causation: value, Producer: producer, ContentType: contentType,
			TraceParent: parent, TraceState: state, Extra: map[string]string{key: value},
		}}
		copy(m.ID[:], id)
		m.ID[0] &= 0x7f // 130 bits of text, 128 of id
		if m.Validate(0) == nil {
			checkWire(t, m)
		}
	})
}

// Whatever a stranger publishes is read or refused.
func FuzzUnreadable(f *testing.F) {
	f.Add("weir.t.ingest.5.order.1", []byte("NATS/1.0\r\nNats-Msg-Id: x\r\n\r\n"), []byte("data"))
	f.Add("weir.t.ingest.14.a.b", []byte("NATS/1.0\r\nnats-msg-id: 01J8ZK3V5QAAAAAAAAAAAAAAAA\r\nWeir-Type: %\r\nWeir-Extra: {\"a\":\"\\ud800\"}\r\n\r\n"), []byte{})
	f.Fuzz(func(t *testing.T, subject string, block, data []byte) {
		h, err := nats.DecodeHeadersMsg(block)
		if err != nil {
			h = nil
		}
		m, err := testNames.message(&nats.Msg{Subject: subject, Header: h, Data: data}, 0)
		if err != nil {
			return
		}
		if m.ID == (weir.ID{}) || m.Type == "" || m.Stream.Category() == "" || m.Stream.Key() == "" {
			t.Errorf("read an incomplete message %+v", m)
		}
	})
}
