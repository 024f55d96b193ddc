package eventstore

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/weir-es/weir"
)

// registerTypes tells a connection what ids and shards are in the database, for the
// query modes that know a value by its Go type alone. The others ask the server.
func registerTypes(_ context.Context, conn *pgx.Conn) error {
	types := conn.TypeMap()
	types.RegisterDefaultPgType([16]byte{}, "uuid")
	types.RegisterDefaultPgType(&[16]byte{}, "uuid")
	types.RegisterDefaultPgType([][16]byte(nil), "_uuid")
	types.RegisterDefaultPgType([]*[16]byte(nil), "_uuid")
	types.RegisterDefaultPgType([]weir.Shard(nil), "_int2")
	types.RegisterDefaultPgType(texts(nil), "_text")
	types.RegisterDefaultPgType(uuids(nil), "_uuid")
	return nil
}

// texts is an array of texts; nil is null. Payloads go into it as they are, where a
// []*string would take a copy and three times as long to send.
type texts [][]byte

func (t texts) Dimensions() []pgtype.ArrayDimension {
	if t == nil {
		return nil
	}
	return []pgtype.ArrayDimension{{Length: int32(len(t)), LowerBound: 1}}
}

func (t texts) Index(i int) any { return t[i] }

func (texts) IndexType() any { return []byte(nil) }

// uuids is an array of ids; that of nothing but zeros is null. They are sent from where
// they lie, where a [][16]byte would take two copies of each.
type uuids []uuid

func (u uuids) Dimensions() []pgtype.ArrayDimension {
	if u == nil {
		return nil
	}
	return []pgtype.ArrayDimension{{Length: int32(len(u)), LowerBound: 1}}
}

func (u uuids) Index(i int) any { return &u[i] }

func (uuids) IndexType() any { return (*uuid)(nil) }

type uuid [16]byte

// UUIDValue makes pgx send it as it is.
func (u *uuid) UUIDValue() (pgtype.UUID, error) {
	return pgtype.UUID{Bytes: *u, Valid: *u != uuid{}}, nil
}

// collect reads all events of a query.
func collect(rows pgx.Rows, err error, size int) ([]weir.Event, error) {
	if err != nil {
		return nil, err
	}
	events := make([]weir.Event, 0, min(size, pageEvents))
	for event, err := range ScanEvents(rows) {
		if err != nil {
			return nil, err
		}
		events = append(events, event)
	}
	return events, nil
}

// ScanEvents reads events from a statement of the caller's own that selects what a page
// of the log selects: of an event e and its stream s, in this order, e.position, s.name,
// e.version, e.event_id, e.order_id, e.type, e.data, e.bytes, e.content_type, e.metadata,
// e.recorded_at, e.stream_id, e.shard. It closes rows and ends with the first error.
func ScanEvents(rows pgx.Rows) iter.Seq2[weir.Event, error] {
	return func(yield func(weir.Event, error) bool) {
		defer rows.Close()
		var c columns
		targets := c.targets()
		types := map[string]string{} // one string per type, not per event
		for rows.Next() {
			c = columns{}
			if err := rows.Scan(targets...); err != nil {
				yield(weir.Event{}, err)
				return
			}
			event, err := c.event(types)
			if !yield(event, err) || err != nil {
				return
			}
		}
		if rows.Err() != nil {
			yield(weir.Event{}, rows.Err())
		}
	}
}

// columns are the columns of an event, in the order in which they are selected.
type columns struct {
	position, version int64
	stream, name      string
	id                [16]byte
	order             *[16]byte
	data, bytes       []byte
	content           *string
	metadata          []byte
	recorded          time.Time
	streamID          int64
	shard             int16
}

func (c *columns) targets() []any {
	return []any{&c.position, &c.stream, &c.version, &c.id, &c.order, &c.name,
		&c.data, &c.bytes, &c.content, &c.metadata, &c.recorded, &c.streamID, &c.shard}
}

func (c *columns) event(types map[string]string) (weir.Event, error) {
	name, ok := types[c.name]
	if !ok {
		name = c.name
		types[name] = name
	}
	e := weir.Event{
		Message:  weir.Message{ID: c.id, Stream: weir.StreamID(c.stream), Type: name, Data: c.data},
		Version:  weir.Version(c.version),
		Position: weir.Position(c.position),
		Recorded: c.recorded.UTC(),
		IsNew:    true,
	}
	if c.data == nil {
		e.Data = c.bytes
	}
	if c.order != nil {
		e.OrderID = *c.order
	}
	return e, c.fill(&e.Metadata)
}

func (c *columns) fill(m *weir.Metadata) error {
	if c.content != nil {
		m.ContentType = *c.content
	}
	if c.metadata == nil || quickMetadata(string(c.metadata), m) {
		return nil
	}
	if err := json.Unmarshal(c.metadata, m); err != nil {
		return fmt.Errorf("read metadata of the event at position %d: %w", c.position, err)
	}
	return nil
}

// encodeMetadata is the value of the column metadata: null when there is none.
func encodeMetadata(m weir.Metadata) []byte {
	if text, ok := quickEncode(m); ok {
		return text
	}
	text, err := json.Marshal(m)
	if err != nil {
		panic(err) // texts only
	}
	if string(text) == "{}" {
		return nil
	}
	return text
}

// quickMetadata reads what encodeMetadata writes in the plain case: an object of
// known names and of texts without escapes. It reports whether it was one. Half of
// reading an event would be spent in encoding/json otherwise.
func quickMetadata(text string, m *weir.Metadata) bool {
	rest, ok := strings.CutPrefix(text, "{")
	read := *m
	for ok {
		var name, value, end string
		if name, rest, ok = cutText(rest); !ok || !strings.HasPrefix(rest, ":") {
			return false
		}
		if value, rest, ok = cutText(rest[1:]); !ok || rest == "" || !setMetadata(&read, name, value) {
			return false
		}
		if end, rest = rest[:1], rest[1:]; end == "}" {
			*m = read
			return rest == ""
		}
		ok = end == ","
	}
	return false
}

// cutText cuts a quoted text without escapes off the front.
func cutText(s string) (text, rest string, ok bool) {
	if !strings.HasPrefix(s, `"`) {
		return "", s, false
	}
	end := strings.IndexByte(s[1:], '"') + 1
	if end == 0 || strings.IndexByte(s[:end], '\\') >= 0 {
		return "", s, false
	}
	return s[1:end], s[end+1:], true
}

func setMetadata(m *weir.Metadata, name, value string) bool {
	switch name {
	case "correlation":
		m.Correlation = value
	case "causation":
		m.Causation = value
	case "producer":
		m.Producer = value
	case "traceparent":
		m.TraceParent = value
	case "tracestate":
		m.TraceState = value
	default:
		return false
	}
	return true
}

// quickEncode writes what json.Marshal writes, in the plain case.
func quickEncode(m weir.Metadata) (text []byte, ok bool) {
	if len(m.Extra) > 0 {
		return nil, false
	}
	fields := [...]struct{ name, value string }{
		{`"correlation":"`, m.Correlation}, {`"causation":"`, m.Causation}, {`"producer":"`, m.Producer},
		{`"traceparent":"`, m.TraceParent}, {`"tracestate":"`, m.TraceState},
	}
	size := 0
	for _, field := range fields {
		if !isPlain(field.value) {
			return nil, false
		}
		if field.value != "" {
			size += len(`,`) + len(field.name) + len(field.value) + len(`"`)
		}
	}
	if size == 0 {
		return nil, true
	}
	text = make([]byte, 0, size+len(`}`))
	for _, field := range fields {
		if field.value != "" {
			text = append(text, "{,"[min(len(text), 1)])
			text = append(append(append(text, field.name...), field.value...), '"')
		}
	}
	return append(text, '}'), true
}

// isPlain reports that json.Marshal would escape nothing of a text.
func isPlain(text string) bool {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c >= 0x7f || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			return false
		}
	}
	return true
}
