package ops

import (
	"encoding/base64"
	"encoding/json"
	"strconv"
	"time"

	"github.com/weir-es/weir"
)

// Format is how an event is written as a line of JSON.
type Format string

const (
	// Lines are objects with the names of this house: id, stream, type, time,
	// version, position, recorded, orderId, contentType and metadata, and the
	// payload as data or data_base64.
	Lines Format = "ndjson"
	// CloudEvents are events of CloudEvents 1.0 in its JSON format. What it has no
	// name for are extension attributes.
	CloudEvents Format = "cloudevents"
)

// appendLine appends an event and the end of the line. source is where CloudEvents
// are said to come from.
func (f Format) appendLine(b []byte, e weir.Event, source string) []byte {
	w := lineWriter{b, '{'}
	if f == CloudEvents {
		w.cloudEvent(e, source)
	} else {
		w.event(e)
	}
	return append(w.b, "}\n"...)
}

// lineWriter writes an object of JSON without its end.
type lineWriter struct {
	b    []byte
	next byte // what stands before the next member
}

func (w *lineWriter) event(e weir.Event) {
	w.text("id", e.ID.String())
	w.text("stream", string(e.Stream))
	w.text("type", e.Type)
	w.time("time", e.ID.Timestamp())
	w.number("version", int64(e.Version))
	w.number("position", int64(e.Position))
	w.time("recorded", e.Recorded)
	w.id("orderId", e.OrderID)
	w.text("contentType", e.Metadata.ContentType)
	if known := mustEncode(e.Metadata); string(known) != "{}" {
		w.raw("metadata", known)
	}
	w.payload(e)
}

// payload writes JSON as it stands, where it can be read back byte for byte:
// without ends of lines, and with nothing around the value. Everything else is
// base64.
func (w *lineWriter) payload(e weir.Event) {
	if e.Metadata.IsJSON() && isInline(e.Data) {
		w.raw("data", e.Data)
		return
	}
	w.name("data_base64")
	w.b = append(w.b, '"')
	w.b = base64.StdEncoding.AppendEncode(w.b, e.Data)
	w.b = append(w.b, '"')
}

func isInline(data []byte) bool {
	if len(data) == 0 || isSpace(data[0]) || isSpace(data[len(data)-1]) {
		return false
	}
	for _, c := range data {
		if c == '\n' || c == '\r' {
			return false
		}
	}
	return true
}

func (w *lineWriter) name(name string) {
	w.b = append(w.b, w.next, '"')
	w.b = append(w.b, name...)
	w.b = append(w.b, '"', ':')
	w.next = ','
}

func (w *lineWriter) raw(name string, value []byte) {
	w.name(name)
	w.b = append(w.b, value...)
}

// text writes a text, unless it is empty.
func (w *lineWriter) text(name, text string) {
	if text != "" {
		w.raw(name, mustEncode(text))
	}
}

func (w *lineWriter) number(name string, n int64) {
	if n != 0 {
		w.name(name)
		w.b = strconv.AppendInt(w.b, n, 10)
	}
}

func (w *lineWriter) id(name string, id weir.ID) {
	if id != (weir.ID{}) {
		w.text(name, id.String())
	}
}

// time writes a time that RFC 3339 can say: ids reach beyond the year 9999.
func (w *lineWriter) time(name string, t time.Time) {
	if t = t.UTC(); t.Year() <= 9999 && !t.IsZero() {
		w.text(name, t.Format(time.RFC3339Nano))
	}
}

// mustEncode is JSON of texts, which always have some.
func mustEncode(value any) []byte {
	encoded, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return encoded
}
