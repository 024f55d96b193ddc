package ops

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/weir-es/weir"
)

// lineReader reads lines of both formats, each line in its own.
type lineReader struct {
	importer *weir.Importer // makes the ids that are missing; nil: none may be
	object
}

// read is the event of a line. It shares no memory with it.
func (r *lineReader) read(line []byte) (weir.Event, error) {
	r.object.read(line)
	var e weir.Event
	switch {
	case r.err != nil:
	case r.has("specversion"):
		r.cloudEvent(&e)
	default:
		r.event(&e)
	}
	return e, r.err
}

func (r *lineReader) event(e *weir.Event) {
	e.ID = r.identity()
	e.Stream = weir.StreamID(r.text("stream"))
	e.Type = r.text("type")
	e.Version, e.Position = weir.Version(r.number("version")), weir.Position(r.number("position"))
	e.OrderID = r.id("orderId")
	e.Metadata = r.metadata()
	e.Metadata.ContentType = r.contentType("contentType")
	e.Data = r.payload(e.Metadata.ContentType)
	if e.Data == nil {
		r.fail("has neither data nor data_base64")
	}
	r.text("recorded") // the store that the event comes to says so anew
	r.end("; a line has id, stream, type, time, version, position, recorded, orderId, contentType, metadata, data and data_base64")
}

// identity is the id of the line, or one made of its time: the same each time that
// the same lines are read.
func (r *lineReader) identity() (id weir.ID) {
	id, when := r.id("id"), r.text("time")
	switch {
	case r.err != nil || id != (weir.ID{}):
		return id
	case when == "":
		r.fail("has neither an id nor a time to make one of")
		return id
	case r.importer == nil:
		r.fail("has no id; give the import a name, and ids are made of the name and the time")
		return id
	}
	t, err := time.Parse(time.RFC3339, when)
	if err != nil {
		r.fail("time %.60q is not in the form of RFC 3339, such as 2006-01-02T15:04:05.999Z", when)
		return id
	}
	id, err = r.importer.At(t)
	r.note(err)
	return id
}

func (r *lineReader) id(name string) (id weir.ID) {
	text := r.text(name)
	if text == "" {
		return id
	}
	id, err := ulid.ParseStrict(text)
	if err != nil || id == (weir.ID{}) {
		r.fail("%s %.60q is not a ULID, which has 26 characters; without it one is made of the time", name, text)
	}
	return id
}

// contentType is empty for JSON, as in the store.
func (r *lineReader) contentType(name string) string {
	if text := r.text(name); text != weir.ContentTypeJSON {
		return text
	}
	return ""
}

func (r *lineReader) metadata() (m weir.Metadata) {
	r.inside("metadata", func(o *object) {
		m.Correlation, m.Causation, m.Producer = o.text("correlation"), o.text("causation"), o.text("producer")
		m.TraceParent, m.TraceState = o.text("traceparent"), o.text("tracestate")
		o.inside("extra", func(o *object) { m.Extra = o.texts() })
		o.end("; what is the application's own belongs into extra")
	})
	return m
}

// payload is data or data_base64; nil if there is none. Where the payload is not
// JSON, a text in data stands for its characters.
func (r *lineReader) payload(contentType string) []byte {
	switch {
	case r.has("data") && r.has("data_base64"):
		r.fail("has data and data_base64, and only one can be the payload")
	case r.has("data_base64"):
		data, err := base64.StdEncoding.Strict().DecodeString(r.text("data_base64"))
		if err != nil {
			r.fail("data_base64: %w", err)
		}
		return data
	case r.has("data"):
		value := r.take("data")
		if value[0] == '"' && !isJSONType(contentType) {
			return []byte(r.unquote("data", value))
		}
		return append([]byte{}, value...)
	}
	return nil
}

// object is an object of JSON on its way apart. It keeps the first error.
type object struct {
	members map[string][]byte // as they stand in the text
	err     error
}

// mostMembers is how many members an object may have: more are no event.
const mostMembers = 1000

// read takes a text apart. Values stay as they stand there: encoding/json would
// compact them, match names in any case, and take the last of two with one name.
func (o *object) read(text []byte) {
	o.err = checkJSON(text)
	if o.err == nil {
		o.split(text)
	}
}

// split takes a valid text apart.
func (o *object) split(text []byte) {
	if o.members == nil {
		o.members = map[string][]byte{}
	}
	clear(o.members)
	s := scanner{text: text}
	if s.peek() != '{' {
		o.fail("is %s and not an object", cut(text))
		return
	}
	for s.step() != '}' {
		name := o.unquote("a name", s.value())
		s.step() // past the colon
		if o.has(name) {
			o.fail("has two members %.60q", name)
		}
		o.members[name] = s.value()
		if len(o.members) > mostMembers {
			o.fail("has more than %d members", mostMembers)
			return
		}
		if s.peek() == '}' {
			return
		}
	}
}

func (o *object) has(name string) bool {
	_, ok := o.members[name]
	return ok
}

// take removes a member.
func (o *object) take(name string) []byte {
	value := o.members[name]
	delete(o.members, name)
	return value
}

// inside reads a member that is an object, if it is there.
func (o *object) inside(name string, read func(*object)) {
	value := o.take(name)
	if value == nil || string(value) == "null" {
		return
	}
	var inner object
	inner.split(value)
	if inner.err == nil {
		read(&inner)
	}
	if inner.err != nil {
		o.fail("%s: %w", name, inner.err)
	}
}

// text is a member that is a text; empty if it is not there, or null.
func (o *object) text(name string) string {
	value := o.take(name)
	if value == nil || string(value) == "null" {
		return ""
	}
	return o.unquote(name, value)
}

func (o *object) unquote(name string, value []byte) (text string) {
	if value[0] != '"' {
		o.fail("%s is %s and not a text", name, cut(value))
		return ""
	}
	if bytes.IndexByte(value, '\\') < 0 {
		return string(value[1 : len(value)-1])
	}
	o.note(json.Unmarshal(value, &text))
	return text
}

// number is a member that counts something; 0 if it is not there, or null.
func (o *object) number(name string) int64 {
	value := o.take(name)
	if value == nil || string(value) == "null" {
		return 0
	}
	n, err := strconv.ParseInt(string(value), 10, 64)
	if err != nil || n < 1 {
		o.fail("%s is %s and not a whole number above 0", name, cut(value))
	}
	return n
}

// texts are all members; nil if there are none.
func (o *object) texts() (texts map[string]string) {
	for name, value := range o.members {
		if texts == nil {
			texts = map[string]string{}
		}
		texts[name] = o.unquote(name, value)
	}
	return texts
}

// end complains of members that nobody took.
func (o *object) end(hint string) {
	for name := range o.members {
		o.fail("has a member %.60q that means nothing%s", name, hint)
	}
}

func (o *object) fail(format string, args ...any) { o.note(fmt.Errorf(format, args...)) }

func (o *object) note(err error) {
	if o.err == nil {
		o.err = err
	}
}
