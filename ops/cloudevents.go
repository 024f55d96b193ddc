package ops

import (
	"cmp"
	"maps"
	"mime"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-es/weir"
)

// CloudEvents 1.0: what is weir's has these extension attributes. Numbers are
// texts, since integers there have 32 bits.
const (
	attributeVersion     = "weirversion"
	attributePosition    = "weirposition"
	attributeRecorded    = "weirrecorded"
	attributeOrder       = "weirorderid"
	attributeProducer    = "weirproducer"
	attributeExtra       = "weirextra" // the map, as JSON in a text
	attributeCorrelation = "correlationid"
	attributeCausation   = "causationid"
)

func (w *lineWriter) cloudEvent(e weir.Event, source string) {
	m := e.Metadata
	w.text("specversion", "1.0")
	w.text("id", e.ID.String())
	w.text("source", source)
	w.text("type", e.Type)
	w.text("subject", string(e.Stream))
	w.time("time", e.ID.Timestamp())
	w.text("datacontenttype", cmp.Or(m.ContentType, weir.ContentTypeJSON))
	w.text(attributeVersion, strconv.FormatInt(int64(e.Version), 10))
	w.text(attributePosition, strconv.FormatInt(int64(e.Position), 10))
	w.time(attributeRecorded, e.Recorded)
	w.id(attributeOrder, e.OrderID)
	w.text(attributeCorrelation, m.Correlation)
	w.text(attributeCausation, m.Causation)
	w.text(attributeProducer, m.Producer)
	w.text("traceparent", m.TraceParent)
	w.text("tracestate", m.TraceState)
	if len(m.Extra) > 0 {
		w.text(attributeExtra, string(mustEncode(m.Extra)))
	}
	w.payload(e)
}

// cloudEvent reads an event, also of another producer. Its subject names the stream.
// Attributes that mean nothing here are kept as extra metadata.
func (r *lineReader) cloudEvent(e *weir.Event) {
	if version := r.text("specversion"); version != "1.0" {
		r.fail("has specversion %.20q; only 1.0 is known", version)
	}
	e.ID = r.identity()
	e.Stream, e.Type = weir.StreamID(r.text("subject")), r.text("type")
	source, isOurs := r.text("source"), r.has(attributeVersion)
	e.Version, e.Position = weir.Version(r.digits(attributeVersion)), weir.Position(r.digits(attributePosition))
	e.OrderID = r.id(attributeOrder)
	r.text(attributeRecorded)

	m := &e.Metadata
	m.ContentType = r.contentType("datacontenttype")
	m.Correlation, m.Causation, m.Producer = r.text(attributeCorrelation), r.text(attributeCausation), r.text(attributeProducer)
	m.TraceParent, m.TraceState = r.text("traceparent"), r.text("tracestate")
	if !isOurs {
		m.Producer = cmp.Or(m.Producer, source)
	}
	e.Data = r.payload(m.ContentType)
	if e.Data == nil {
		e.Data = noData(m.ContentType)
	}
	m.Extra = r.extra()
}

// noData is the payload of an event that has none, which CloudEvents allows.
func noData(contentType string) []byte {
	if isJSONType(contentType) {
		return []byte("null")
	}
	return []byte{}
}

func (r *lineReader) digits(name string) int64 {
	text := r.text(name)
	if text == "" {
		return 0
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		r.fail("%s is %.40q and not a whole number in a text", name, text)
	}
	return n
}

// extra is what stands in the attribute of that name, and every attribute left.
func (r *lineReader) extra() map[string]string {
	var extra map[string]string
	if text := r.text(attributeExtra); text != "" {
		var inner object
		if inner.read([]byte(text)); inner.err == nil {
			extra = inner.texts()
		}
		if inner.err != nil {
			r.fail("%s: %w", attributeExtra, inner.err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.members)) {
		if extra == nil {
			extra = map[string]string{}
		}
		extra[name] = r.attribute(name)
	}
	return extra
}

// attribute is a text, or a number or boolean as a text.
func (r *lineReader) attribute(name string) string {
	switch value := r.members[name]; value[0] {
	case '"':
		return r.text(name)
	case '{', '[':
		r.fail("attribute %.60q is %s, and attributes are texts, numbers or booleans", name, cut(value))
		return ""
	default:
		return string(r.take(name))
	}
}

// isJSONType reports whether CloudEvents has payloads of this type as JSON.
func isJSONType(contentType string) bool {
	if contentType == "" {
		return true
	}
	media, _, err := mime.ParseMediaType(contentType)
	return err == nil && (strings.HasSuffix(media, "/json") || strings.HasSuffix(media, "+json"))
}
