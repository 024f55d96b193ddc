package transport

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/oklog/ulid/v2"

	"github.com/weir-es/weir"
)

// The headers of a message. The stream is not among them: the subject says it.
const (
	headerID          = "Nats-Msg-Id"
	headerType        = "Weir-Type"
	headerCorrelation = "Weir-Correlation"
	headerCausation   = "Weir-Causation"
	headerProducer    = "Weir-Producer"
	headerExtra       = "Weir-Extra"
	headerContentType = "Content-Type"
	headerTraceParent = "traceparent"
	headerTraceState  = "tracestate"
	// A trace context that is none, such as one with a line break, travels here,
	// so that it comes out as it went in without disturbing anyone's tracing.
	headerOddTraceParent = "Weir-Odd-Traceparent"
	headerOddTraceState  = "Weir-Odd-Tracestate"
)

// The headers that a committed event has besides.
const (
	headerVersion  = "Weir-Version"
	headerPosition = "Weir-Position"
	headerOrder    = "Weir-Order"    // where it is not the id
	headerRecorded = "Weir-Recorded" // RFC 3339, in microseconds
	headerStream   = "Weir-Stream"   // where the subject holds a hash of it
	headerOmitted  = "Weir-Omitted"  // why there is no payload
)

// HeaderHandler names the handler that failed, in the headers of a message that is
// kept because of it.
const HeaderHandler = "Weir-Handler"

// maxHeaderBytes is the most that headers may take. The server's limit is 64 KiB
// with those that it adds.
const maxHeaderBytes = 60 << 10

// Texts are percent-encoded where a header could not carry them: control
// characters, '%' itself, and a space at either end. Everything else, UTF-8
// included, stands as it is. Trace context stands as it is always.

// encode writes everything but stream and payload into headers. Extra becomes
// one JSON object, since its keys may be any text.
func encode(m *weir.Message) (nats.Header, error) {
	w := headerWriter{make(nats.Header, 8), make([]string, 0, 12)}
	w.raw(headerID, m.ID.String())
	w.text(headerType, m.Type)
	w.text(headerCorrelation, m.Metadata.Correlation)
	w.text(headerCausation, m.Metadata.Causation)
	w.text(headerProducer, m.Metadata.Producer)
	w.text(headerContentType, m.Metadata.ContentType)
	w.trace(headerTraceParent, headerOddTraceParent, m.Metadata.TraceParent)
	w.trace(headerTraceState, headerOddTraceState, m.Metadata.TraceState)
	if err := w.extra(m.Metadata.Extra); err != nil {
		return nil, err
	}
	if size := headerBytes(w.header); size > maxHeaderBytes {
		return nil, &weir.TooLargeError{ID: m.ID, What: "the header block", Size: size, Limit: maxHeaderBytes}
	}
	return w.header, nil
}

type headerWriter struct {
	header nats.Header
	values []string // one array for all of them
}

func (w *headerWriter) raw(name, value string) {
	if value == "" {
		return
	}
	w.values = append(w.values, value)
	n := len(w.values)
	w.header[name] = w.values[n-1 : n : n]
}

func (w *headerWriter) text(name, value string) { w.raw(name, escape(value)) }

func (w *headerWriter) trace(name, odd, value string) {
	if escaped := escape(value); strings.ReplaceAll(escaped, "%25", "%") != value {
		w.raw(odd, escaped)
		return
	}
	w.raw(name, value)
}

func (w *headerWriter) extra(extra map[string]string) error {
	if len(extra) == 0 {
		return nil
	}
	text, err := json.Marshal(extra)
	if err != nil {
		return fmt.Errorf("encode extra metadata: %w", err)
	}
	w.text(headerExtra, string(text))
	return nil
}

func headerBytes(h nats.Header) int {
	size := len("NATS/1.0\r\n\r\n")
	for name, values := range h {
		for _, value := range values {
			size += len(name) + len(value) + len(": \r\n")
		}
	}
	return size
}

// decode is the inverse of encode. Headers that are not ours, the broker's own
// included, are left out.
func decode(stream weir.StreamID, h nats.Header, data []byte) (weir.Message, error) {
	m := weir.Message{Stream: stream, Data: data}
	r := headerReader{header: h}
	id, err := parseID(headerID, r.raw(headerID))
	if err != nil {
		return weir.Message{}, err
	}
	m.ID = id
	m.Type = r.text(headerType)
	m.Metadata = weir.Metadata{
		Correlation: r.text(headerCorrelation),
		Causation:   r.text(headerCausation),
		Producer:    r.text(headerProducer),
		ContentType: r.text(headerContentType),
		TraceParent: r.trace(headerTraceParent, headerOddTraceParent),
		TraceState:  r.trace(headerTraceState, headerOddTraceState),
		Extra:       r.extra(),
	}
	if m.Type == "" && r.err == nil {
		r.err = fmt.Errorf("has no header %s", headerType)
	}
	if r.err != nil {
		return weir.Message{}, r.err
	}
	return m, nil
}

func parseID(name, text string) (weir.ID, error) {
	if text == "" {
		return weir.ID{}, fmt.Errorf("has no header %s", name)
	}
	id, err := ulid.ParseStrict(text)
	if err != nil || id == (weir.ID{}) {
		return weir.ID{}, fmt.Errorf("header %s is no id: %.40q", name, text)
	}
	return id, nil
}

// encodeEvent writes the headers of an event. They say where its stream is only if
// the subject does not, and why the payload is left out, if it is.
func encodeEvent(e *weir.Event, whole bool, omitted string) (nats.Header, error) {
	header, err := encode(&e.Message)
	if err != nil {
		return nil, err
	}
	w := headerWriter{header, make([]string, 0, 6)}
	w.raw(headerVersion, strconv.FormatInt(int64(e.Version), 10))
	w.raw(headerPosition, strconv.FormatInt(int64(e.Position), 10))
	w.raw(headerRecorded, e.Recorded.UTC().Format(time.RFC3339Nano))
	w.text(headerOmitted, omitted)
	if e.OrderID != (weir.ID{}) {
		w.raw(headerOrder, e.OrderID.String())
	}
	if !whole {
		w.text(headerStream, string(e.Stream))
	}
	return header, nil
}

// decodeEvent is the inverse of encodeEvent.
func (n names) decodeEvent(m *nats.Msg) (e weir.Event, omitted string, err error) {
	r := headerReader{header: m.Header}
	stream, err := n.locate(m.Subject, r.text(headerStream))
	if err != nil {
		return e, "", errors.Join(r.err, err)
	}
	if e.Message, err = decode(stream, m.Header, m.Data); err != nil {
		return e, "", err
	}
	e.Version, e.Position = weir.Version(r.number(headerVersion)), weir.Position(r.number(headerPosition))
	e.Recorded, e.OrderID = r.time(headerRecorded), r.id(headerOrder)
	return e, r.text(headerOmitted), r.err
}

// headerReader keeps the first error.
type headerReader struct {
	header nats.Header
	err    error
}

func (r *headerReader) raw(name string) string { return headerGet(r.header, name) }

func (r *headerReader) note(err error) {
	if err != nil && r.err == nil {
		r.err = err
	}
}

// number reads a count from 1.
func (r *headerReader) number(name string) int64 {
	n, err := strconv.ParseInt(r.raw(name), 10, 64)
	if err != nil || n < 1 {
		r.note(fmt.Errorf("header %s is no number from 1: %.40q", name, r.raw(name)))
	}
	return n
}

func (r *headerReader) time(name string) time.Time {
	t, err := time.Parse(time.RFC3339Nano, r.raw(name))
	if err != nil {
		r.note(fmt.Errorf("header %s is no time: %.40q", name, r.raw(name)))
	}
	return t.UTC()
}

// id reads one that may be missing.
func (r *headerReader) id(name string) (id weir.ID) {
	if text := r.raw(name); text != "" {
		var err error
		id, err = parseID(name, text)
		r.note(err)
	}
	return id
}

func (r *headerReader) text(name string) string {
	value, err := unescape(r.raw(name))
	if err != nil && r.err == nil {
		r.err = fmt.Errorf("header %s: %w", name, err)
	}
	return value
}

func (r *headerReader) trace(name, odd string) string {
	if value := r.text(odd); value != "" {
		return value
	}
	return r.raw(name)
}

func (r *headerReader) extra() (extra map[string]string) {
	text := r.text(headerExtra)
	if text == "" {
		return nil
	}
	if err := json.Unmarshal([]byte(text), &extra); err != nil && r.err == nil {
		r.err = fmt.Errorf("header %s: %w", headerExtra, err)
	}
	if len(extra) == 0 {
		return nil
	}
	return extra
}

// headerGet reads a header by its exact name, then ignoring case: others write
// Traceparent, and nats.Header is case-sensitive.
func headerGet(h nats.Header, name string) string {
	if values := h[name]; len(values) > 0 {
		return values[0]
	}
	for other, values := range h {
		if len(other) == len(name) && len(values) > 0 && strings.EqualFold(other, name) {
			return values[0]
		}
	}
	return ""
}

func escape(text string) string {
	for i := range len(text) {
		if mustEscape(text, i) {
			return escapeFrom(text, i)
		}
	}
	return text
}

func mustEscape(text string, i int) bool {
	c := text[i]
	return c < ' ' || c == 0x7f || c == '%' || c == ' ' && (i == 0 || i == len(text)-1)
}

const hexDigits = "0123456789ABCDEF"

func escapeFrom(text string, i int) string {
	out := append(make([]byte, 0, len(text)+16), text[:i]...)
	for ; i < len(text); i++ {
		if c := text[i]; mustEscape(text, i) {
			out = append(out, '%', hexDigits[c>>4], hexDigits[c&15])
		} else {
			out = append(out, c)
		}
	}
	return string(out)
}

var errBadEscape = errors.New("a '%' is not followed by two hexadecimal digits")

func unescape(text string) (string, error) {
	if !strings.Contains(text, "%") {
		return text, nil
	}
	out := make([]byte, 0, len(text))
	for i := 0; i < len(text); i++ {
		if text[i] != '%' {
			out = append(out, text[i])
			continue
		}
		if i+2 >= len(text) {
			return "", errBadEscape
		}
		high, low := unhex(text[i+1]), unhex(text[i+2])
		if high < 0 || low < 0 {
			return "", errBadEscape
		}
		out = append(out, byte(high<<4|low))
		i += 2
	}
	return string(out), nil
}

func unhex(c byte) int {
	if 'a' <= c && c <= 'f' {
		c -= 'a' - 'A'
	}
	return strings.IndexByte(hexDigits, c)
}
