package ops

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/cloudevents/sdk-go/v2/event"
	"pgregory.net/rapid"

	"github.com/weir-es/weir"
)

// hostile are texts that PostgreSQL holds and programs stumble over.
func hostile() *rapid.Generator[string] {
	tricky := rapid.SampledFrom([]string{"", "\\", `"`, "\\u0000", "\n", "\r\n", "\t", "\x1f", "\x7f", "\u0085", "\u2028", "</script>", "&", "ÿ", "e\u0301",
		"\ufeff", "\ufffd", "\U0010ffff", "😀", "{}", "[", ",", ":", "null", "data", "data_base64", "specversion", "  ", "\\N", "\\.", "'; drop table", "%s", "$1"})
	clean := rapid.Map(rapid.String(), func(text string) string { return strings.ReplaceAll(text, "\x00", "") })
	return rapid.Map(rapid.SliceOfN(rapid.OneOf(tricky, clean), 0, 4), func(parts []string) string { return strings.Join(parts, "") })
}

// values are texts of JSON that say the same in many ways.
func values() *rapid.Generator[string] {
	leaf := rapid.OneOf(
		rapid.SampledFrom([]string{"null", "true", "0", "-0", "1e400", "9007199254740993", "0.10", "1E+2", `"\u0000"`, `"\ud83d\ude00"`, `"\/"`, `"\ud800"`, "{}", "[]", `{"a":1,"a":2}`}),
		rapid.Map(hostile(), func(text string) string { return string(mustEncode(text)) }))
	space := rapid.SampledFrom([]string{"", "", "", " ", "\t", "\n", "\r\n  "})
	return rapid.Custom(func(t *rapid.T) string {
		text := leaf.Draw(t, "leaf")
		for range rapid.IntRange(0, 3).Draw(t, "depth") {
			name := mustEncode(hostile().Draw(t, "name"))
			s := func() string { return space.Draw(t, "space") }
			text = rapid.SampledFrom([]string{
				"{" + s() + string(name) + s() + ":" + s() + text + s() + "}",
				"[" + s() + text + s() + "," + s() + leaf.Draw(t, "leaf") + s() + "]",
			}).Draw(t, "around")
		}
		return space.Draw(t, "before") + text + space.Draw(t, "behind")
	})
}

func events() *rapid.Generator[weir.Event] {
	return rapid.Custom(func(t *rapid.T) (e weir.Event) {
		copy(e.ID[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "id"))
		e.ID[15] |= 1
		e.Stream = weir.Stream(hostile().Draw(t, "category")+"c", hostile().Draw(t, "key")+"k")
		e.Type = hostile().Draw(t, "type") + "t"
		e.Version = weir.Version(rapid.Int64Min(1).Draw(t, "version"))
		e.Position = weir.Position(rapid.Int64Min(1).Draw(t, "position"))
		e.Recorded = time.UnixMicro(rapid.Int64Range(0, 1e16).Draw(t, "recorded")).UTC()
		if rapid.Bool().Draw(t, "has an order id") {
			e.OrderID = weir.Derive(e.ID, 3, "order")
		}
		if e.Data = []byte(values().Draw(t, "data")); rapid.Bool().Draw(t, "binary") {
			e.Data = rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")
			e.Metadata.ContentType = rapid.SampledFrom([]string{"application/octet-stream", "text/plain; charset=utf-8", "application/problem+json", "application/json; charset=utf-8", "x", " ", "\n"}).Draw(t, "content type")
		}
		m := &e.Metadata
		for _, field := range []*string{&m.Correlation, &m.Causation, &m.Producer, &m.TraceParent, &m.TraceState} {
			*field = hostile().Draw(t, "metadata")
		}
		if extra := rapid.MapOfN(hostile(), hostile(), 0, 3).Draw(t, "extra"); len(extra) > 0 {
			m.Extra = extra
		}
		return e
	})
}

var formats = []Format{Lines, CloudEvents}

// expect is what a line keeps: not the time of recording.
func expect(e weir.Event) weir.Event {
	e.Recorded = time.Time{}
	return e
}

// TestLinesKeepEverything of any event that can be stored, in one line.
func TestLinesKeepEverything(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		e := events().Draw(r, "event")
		for _, format := range formats {
			line := format.appendLine(nil, e, "/weir")
			if bytes.IndexByte(line, '\n') != len(line)-1 || bytes.IndexByte(line, '\r') >= 0 || !json.Valid(line) {
				r.Fatalf("%s is not one line of JSON: %q", format, line)
			}
			var reader lineReader
			got, err := reader.read(line)
			if err != nil {
				r.Fatalf("%s: %v: %s", format, err, line)
			}
			text := string(line)
			clear(line) // the next one comes there
			if want := expect(e); !reflect.DeepEqual(got, want) {
				r.Fatalf("%s: read %+v of %+v: %s", format, got, want, text)
			}
		}
	})
}

// TestLinesAreReadable: JSON stays JSON, where it can be kept as it is.
func TestLinesAreReadable(t *testing.T) {
	id := weir.ID{5: 1, 15: 7}
	for data, want := range map[string]string{
		`{"a": 1,"n":9007199254740993}`: `"data":{"a": 1,"n":9007199254740993}`,
		"{\"a\":\n1}":                   `"data_base64":"eyJhIjoKMX0="`,
		" 1":                            `"data_base64":"IDE="`,
	} {
		e := weir.Event{Message: weir.Message{ID: id, Stream: "seat-A1", Type: "seat.held", Data: []byte(data)}, Version: 3, Position: 9}
		for _, format := range formats {
			if line := format.appendLine(nil, e, "/weir"); !bytes.Contains(line, []byte(want)) {
				t.Errorf("%s of %q is %s", format, data, line)
			}
		}
	}
	e := weir.Event{Message: weir.Message{ID: id, Stream: "seat-A1", Type: "seat.held", Data: []byte(`{}`)}, Version: 3, Position: 9, Recorded: time.UnixMicro(1_600_000_000_123_456)}
	if got, want := string(Lines.appendLine(nil, e, "")), `{"id":"00000000010000000000000007","stream":"seat-A1","type":"seat.held","time":"1970-01-01T00:00:00.001Z","version":3,"position":9,"recorded":"2020-09-13T12:26:40.123456Z","data":{}}`+"\n"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got, want := string(CloudEvents.appendLine(nil, e, "/weir")), `{"specversion":"1.0","id":"00000000010000000000000007","source":"/weir","type":"seat.held","subject":"seat-A1","time":"1970-01-01T00:00:00.001Z","datacontenttype":"application/json","weirversion":"3","weirposition":"9","weirrecorded":"2020-09-13T12:26:40.123456Z","data":{}}`+"\n"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestCloudEventsAreCloudEvents to the SDK of CloudEvents, which finds in them what
// was stored.
func TestCloudEventsAreCloudEvents(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		e := events().Draw(r, "event")
		if e.Metadata.ContentType == " " || e.Metadata.ContentType == "\n" {
			e.Metadata.ContentType = "x/y"
		}
		if e.ID.Timestamp().Year() > 9999 {
			e.ID[0] = 0
		}
		// The SDK decodes all numbers as float64.
		e.Data = bytes.ReplaceAll(e.Data, []byte("1e400"), []byte("1e300"))
		var c event.Event
		if err := json.Unmarshal(CloudEvents.appendLine(nil, e, "/weir"), &c); err != nil {
			r.Fatal(err)
		}
		if err := c.Validate(); err != nil {
			r.Fatal(err)
		}
		if c.ID() != e.ID.String() || c.Type() != e.Type || c.Subject() != string(e.Stream) || c.Source() != "/weir" || !c.Time().Equal(e.ID.Timestamp()) {
			r.Fatalf("the SDK reads %s of %+v", c, e)
		}
		if blank := strings.TrimFunc(string(e.Data), unicode.IsSpace); e.Metadata.IsJSON() && blank != string(e.Data) && !c.DataBase64 {
			r.Fatalf("%q was not kept", e.Data)
		}
		if !bytes.Equal(c.Data(), e.Data) && !(e.Metadata.IsJSON() && sameJSON(c.Data(), e.Data)) {
			r.Fatalf("the SDK reads the payload %q of %q", c.Data(), e.Data)
		}
		if x := c.Extensions(); x[attributeVersion] != fmt.Sprint(e.Version) || e.Metadata.TraceParent != "" && x["traceparent"] != e.Metadata.TraceParent {
			r.Fatalf("the SDK reads extensions %v of %+v", x, e)
		}
	})
}

// sameJSON because the SDK may write values anew.
func sameJSON(a, b []byte) bool {
	var x, y bytes.Buffer
	return json.Compact(&x, a) == nil && json.Compact(&y, b) == nil && bytes.Equal(x.Bytes(), y.Bytes())
}

// TestForeignCloudEvents as other programs write them.
func TestForeignCloudEvents(t *testing.T) {
	const id = `"specversion":"1.0","id":"01EJ3PX000000000100C3WZCTR","type":"t","subject":"seat-A1"`
	plain := weir.Metadata{Producer: "https://example.org/cart"}
	for name, c := range map[string]struct {
		line string
		data string
		meta weir.Metadata
	}{
		"JSON":             {`{` + id + `,"source":"https://example.org/cart","data":{"a" : 1}}`, `{"a" : 1}`, plain},
		"no data":          {`{` + id + `,"source":"https://example.org/cart"}`, `null`, plain},
		"null":             {`{` + id + `,"source":"https://example.org/cart","data":null,"dataschema":null}`, `null`, weir.Metadata{Producer: plain.Producer, Extra: map[string]string{"dataschema": "null"}}},
		"text":             {`{` + id + `,"datacontenttype":"text/plain","data":"a\n\"b\""}`, "a\n\"b\"", weir.Metadata{ContentType: "text/plain"}},
		"text as JSON":     {`{` + id + `,"datacontenttype":"application/problem+json","data":"a\n"}`, `"a\n"`, weir.Metadata{ContentType: "application/problem+json"}},
		"binary":           {`{` + id + `,"datacontenttype":"application/protobuf","data_base64":"AP8="}`, "\x00\xff", weir.Metadata{ContentType: "application/protobuf"}},
		"no binary":        {`{` + id + `,"datacontenttype":"application/protobuf"}`, "", weir.Metadata{ContentType: "application/protobuf"}},
		"attributes":       {`{` + id + `,"partitionkey":"k","sampledrate":3,"x":true,"traceparent":"00-1","tracestate":"a=b"}`, `null`, weir.Metadata{TraceParent: "00-1", TraceState: "a=b", Extra: map[string]string{"partitionkey": "k", "sampledrate": "3", "x": "true"}}},
		"spaces all over":  {` { ` + strings.ReplaceAll(id, ":", " : ") + ` , "data" : [ 1 ] } `, `[ 1 ]`, weir.Metadata{}},
		"escaped names":    {`{"\u0073pecversion":"1.0",` + id[len(`"specversion":"1.0",`):] + `,"\u0064ata":1}`, `1`, weir.Metadata{}},
		"explicitly JSON":  {`{` + id + `,"datacontenttype":"application/json","data":"x"}`, `"x"`, weir.Metadata{}},
		"base64 with JSON": {`{` + id + `,"data_base64":"IDE="}`, ` 1`, weir.Metadata{}},
	} {
		var reader lineReader
		e, err := reader.read([]byte(c.line))
		if err != nil || string(e.Data) != c.data || !reflect.DeepEqual(e.Metadata, c.meta) || e.Stream != "seat-A1" || e.Type != "t" {
			t.Errorf("%s: %v %+v, payload %q", name, err, e, e.Data)
		}
	}
}

// TestBadLines are refused with a reason.
func TestBadLines(t *testing.T) {
	const id, ce = `"id":"01EJ3PX000000000100C3WZCTR","stream":"a-b","type":"t"`, `"specversion":"1.0","id":"01EJ3PX000000000100C3WZCTR","subject":"a-b","type":"t"`
	for _, c := range []struct{ line, want string }{
		{`{` + id + `,"data":{"a":1}`, "is not JSON: unexpected end"},
		{`{` + id + `,"data":01}`, "is not JSON: invalid character '1'"},
		{`{` + id + `,"data":1} {}`, "is not JSON: invalid character '{' after"},
		{"{" + id + ",\"data\":\"\x00\"}", `is not JSON: invalid character '\x00'`},
		{"{" + id + ",\"data\":\"ä\xff\"}", "is not UTF-8 at byte 72"},
		{"\xff\xfe{\x00", "is not JSON"},
		{"id;stream;type", "is not JSON"},
		{`["` + id[1:3] + `"]`, "is [\"id\"] and not an object"},
		{`null`, "is null and not an object"},
		{`{"id":7,"stream":"a-b","type":"t","data":1}`, "id is 7 and not a text"},
		{`{"id":"01EJ3PX000000000100C3WZCT","stream":"a-b","type":"t","data":1}`, "is not a ULID"},
		{`{"id":"8ZZZZZZZZZZZZZZZZZZZZZZZZZ","stream":"a-b","type":"t","data":1}`, "is not a ULID"},
		{`{"id":"00000000000000000000000000","stream":"a-b","type":"t","data":1}`, "is not a ULID"},
		{`{"id":"2b5c2a3e-1f4c-4f55-9f9e-0d1d8a8f6c11","stream":"a-b","type":"t","data":1}`, "is not a ULID"},
		{`{"ID":"01EJ3PX000000000100C3WZCTR","stream":"a-b","type":"t","time":"2020-01-01T00:00:00Z","data":1}`, `"ID" that means nothing`},
		{`{` + id + `,"data":1,"meta":{}}`, `"meta" that means nothing; a line has id, stream`},
		{`{` + id + `,"data":1,"type":"u"}`, `two members "type"`},
		{`{` + id + `,"data":1,"\u0074ype":"u"}`, `two members "type"`},
		{`{` + id + `}`, "neither data nor data_base64"},
		{`{` + id + `,"data":1,"data_base64":"MQ=="}`, "data and data_base64"},
		{`{` + id + `,"data_base64":"MQ"}`, "data_base64: illegal base64"},
		{`{` + id + `,"data_base64":7}`, "data_base64 is 7 and not a text"},
		{`{` + id + `,"data":1,"metadata":[]}`, "metadata: is [] and not an object"},
		{`{` + id + `,"data":1,"metadata":{"extra":{"a":1}}}`, "metadata: extra: a is 1 and not a text"},
		{`{` + id + `,"data":1,"metadata":{"owner":"x"}}`, `metadata: has a member "owner" that means nothing`},
		{`{` + id + `,"data":1,"version":"7"}`, `version is "7" and not a whole number`},
		{`{` + id + `,"data":1,"position":-1}`, "position is -1 and not a whole number"},
		{`{` + id + `,"data":1,"position":1.5}`, "position is 1.5 and not a whole number"},
		{`{` + id + `,"data":1,"orderId":"x"}`, `orderId "x" is not a ULID`},
		{`{"stream":"a-b","type":"t","data":1}`, "neither an id nor a time"},
		{`{"stream":"a-b","type":"t","data":1,"time":"1 May"}`, `time "1 May" is not in the form`},
		{`{"stream":"a-b","type":"t","data":1,"time":"1969-12-31T23:59:59Z"}`, "between 1970 and"},
		{`{` + ce + `,"data":1,"x":{}}`, "attributes are texts, numbers or booleans"},
		{`{` + ce + `,"data":1,"weirextra":"[]"}`, "weirextra: is [] and not an object"},
		{`{` + ce + `,"data":1,"weirversion":7}`, "weirversion is 7 and not a text"},
		{`{` + ce + `,"data":1,"weirposition":"a"}`, "not a whole number in a text"},
		{`{"specversion":"0.3","id":"01EJ3PX000000000100C3WZCTR","subject":"a-b","type":"t"}`, `specversion "0.3"; only 1.0 is known`},
		{"{" + strings.Repeat(`"a":1,`, 3) + id + "}", `two members "a"`},
		{"{" + manyMembers(1001) + "}", "more than 1000 members"},
		{`{` + id + `,"data":` + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000) + `}`, "exceeded max depth"},
	} {
		reader := lineReader{importer: weir.Import("test")}
		_, err := reader.read([]byte(c.line))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.80s: got %v, want %s", c.line, err, c.want)
		}
	}
	_, err := new(lineReader).read([]byte(`{"stream":"a-b","type":"t","data":1,"time":"2020-01-01T00:00:00Z"}`))
	if err == nil || !strings.Contains(err.Error(), "give the import a name") {
		t.Errorf("without a name: %v", err)
	}
}

func manyMembers(n int) string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf(`"a%d":1`, i))
	}
	return strings.Join(all, ",")
}

// FuzzLine: whatever the line, it is refused or read; what is read and could be
// stored is the same when it is written and read again.
func FuzzLine(f *testing.F) {
	for _, seed := range []string{
		`{"id":"01EJ3PX000000000100C3WZCTR","stream":"a-b","type":"t","time":"2020-01-01T00:00:00Z","version":1,"position":2,"orderId":"01EJ3PX000000000100C3WZCTS","contentType":"x","metadata":{"correlation":"c","extra":{"a":"b"}},"data":"\u0000"}`,
		`{"specversion":"1.0","id":"01EJ3PX000000000100C3WZCTR","source":"/x","subject":"a-b","type":"t","weirextra":"{}","x":1.5,"data":[1, {"a":"}\""}]}`,
		`{"stream":"*","type":"t","time":"2020-01-01T00:00:00Z","data_base64":""}`, ` { } `, `{"a":1e5,"b":[],"c":{"d":null}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		reader := lineReader{importer: weir.Import("fuzz")}
		e, err := reader.read(line)
		if (err != nil) || e.Validate(0) != nil {
			return
		}
		if !json.Valid(line) {
			t.Fatalf("read %+v of what is not JSON", e)
		}
		e.Stream = e.Stream.Resolve(e.ID)
		e.Version, e.Position = max(e.Version, 1), max(e.Position, 1)
		for _, format := range formats {
			written := format.appendLine(nil, e, "/weir")
			again, err := reader.read(written)
			if err != nil || !reflect.DeepEqual(again, e) {
				t.Fatalf("%s: read %+v, %v of %s, which was %+v", format, again, err, written, e)
			}
		}
	})
}
