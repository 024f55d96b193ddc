package ops_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/eventstore"
	"github.com/weir-es/weir/internal/testkit"
	"github.com/weir-es/weir/ops"
)

var formats = []ops.Format{ops.Lines, ops.CloudEvents}

// eventful is a store whose log has everything that is hard to carry over: late
// facts, decisions with order ids, payloads that are not JSON or have ends of lines,
// streams that take turns.
func eventful(t testing.TB, n int) *eventstore.Store {
	t.Helper()
	s := testkit.Store(t, eventstore.Config{})
	ctx := testkit.Context(t)
	importer := weir.Import(t.Name())
	payloads := []string{`{"a": 1,"a":2,"n":9007199254740993}`, "{\n\"z\":\"\\u0000\"\r\n}", ` "x" `, `"\ud83d\ude00<&>"`, "null"}
	var facts []weir.Message
	for i := range n {
		id, err := importer.At(time.UnixMilli(int64(1_600_000_000_000 + i*37%n)))
		if err != nil {
			t.Fatal(err)
		}
		m := weir.Message{ID: id, Stream: weir.Stream("seat", fmt.Sprintf("%d 'ü'\n\"", i%17)), Type: "seat.held", Data: []byte(payloads[i%len(payloads)])}
		switch i % 4 {
		case 0:
			m.Data, m.Metadata.ContentType = fmt.Appendf(nil, "\x00\xff%d", i), "application/x-protobuf"
		case 1:
			m.Metadata = weir.Metadata{Correlation: "c\n", Causation: id.String(), Producer: "p", TraceParent: "00-1-2-01", TraceState: "x=y", Extra: map[string]string{"": "empty", "ключ": "\u2028"}}
		}
		facts = append(facts, m)
	}
	for part := range slices.Chunk(facts, 50) {
		if _, err := s.Ingest(ctx, false, part...); err != nil {
			t.Fatal(err)
		}
		late := weir.Message{ID: weir.Derive(part[0].ID, 0, "late"), Type: "seat.released", Data: []byte("{}")}
		if _, err := s.Append(ctx, part[0].Stream, weir.AnyVersion, late); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func export(t testing.TB, s *eventstore.Store, o ops.ExportOptions) (string, ops.ExportResult) {
	t.Helper()
	var lines strings.Builder
	r, err := ops.Export(testkit.Context(t), s, &lines, o)
	if err != nil {
		t.Fatal(err)
	}
	return lines.String(), r
}

func imported(t testing.TB, s *eventstore.Store, r io.Reader, o ops.ImportOptions) ops.ImportResult {
	t.Helper()
	result, err := ops.Import(testkit.Context(t), s, r, o)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// places are what a store gives anew to an event that it imports.
var places = regexp.MustCompile(`"(weir)?(position|recorded)":("[^"]*"|\d+),`)

// TestExportAndImportGiveTheSameLines in either format, and whatever the batches.
func TestExportAndImportGiveTheSameLines(t *testing.T) {
	t.Parallel()
	from := eventful(t, 700)
	for _, format := range formats {
		t.Run(string(format), func(t *testing.T) {
			t.Parallel()
			want, exported := export(t, from, ops.ExportOptions{Format: format})
			if lines := int64(strings.Count(want, "\n")); exported.Events != 714 || lines != 714 || exported.Bytes != int64(len(want)) {
				t.Fatalf("%+v, %d lines", exported, lines)
			}
			to := testkit.Store(t, eventstore.Config{})
			r := imported(t, to, strings.NewReader(want), ops.ImportOptions{Batch: 90})
			if r.Stored != 714 || r.Events != 714 || r.Lines != 714 || r.Bytes != int64(len(want)) {
				t.Errorf("imported %+v", r)
			}
			again := imported(t, to, strings.NewReader(want), ops.ImportOptions{Batch: 200})
			if again.Duplicates != 714 || again.Stored != 0 {
				t.Errorf("again: %+v", again)
			}
			got, _ := export(t, to, ops.ExportOptions{Format: format})
			sameLines(t, places.ReplaceAllString(got, ""), places.ReplaceAllString(want, ""))
		})
	}
}

func sameLines(t testing.TB, got, want string) {
	t.Helper()
	if got == want {
		return
	}
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range min(len(g), len(w)) {
		if g[i] != w[i] {
			t.Fatalf("line %d:\n%s\nwant\n%s", i+1, g[i], w[i])
		}
	}
	t.Fatalf("%d lines, want %d", len(g), len(w))
}

// TestExportOfAPart: a stream, a filter, and what came behind the last export.
func TestExportOfAPart(t *testing.T) {
	t.Parallel()
	s := eventful(t, 100)
	all, whole := export(t, s, ops.ExportOptions{})
	stream, _ := export(t, s, ops.ExportOptions{Stream: "seat-3 'ü'\n\""})
	if n := strings.Count(stream, "\n"); n != strings.Count(all, `"stream":"seat-3 `) || n == 0 {
		t.Errorf("%d lines of one stream", n)
	}
	released, r := export(t, s, ops.ExportOptions{Read: eventstore.Read{Types: []string{"seat.released"}}})
	if r.Events != 2 || strings.Count(released, `"type":"seat.released"`) != 2 {
		t.Errorf("%+v: %s", r, released)
	}
	if more, r := export(t, s, ops.ExportOptions{Read: eventstore.Read{From: eventstore.AtPosition(whole.Last + 1)}}); more != "" || r.Events != 0 {
		t.Errorf("behind the last: %s", more)
	}
	for name, o := range map[string]ops.ExportOptions{"backward": {Read: eventstore.Read{Backward: true}}, "csv": {Format: "csv"}} {
		if _, err := ops.Export(testkit.Context(t), s, io.Discard, o); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
	if _, err := ops.Export(testkit.Context(t), s, &full{room: 1 << 10}, ops.ExportOptions{}); !errors.Is(err, errFull) {
		t.Errorf("a disk that is full: %v", err)
	}
}

var errFull = errors.New("no space left")

// full takes so many bytes.
type full struct{ room int }

func (f *full) Write(b []byte) (int, error) {
	if f.room -= len(b); f.room < 0 {
		return 0, errFull
	}
	return len(b), nil
}

// TestImportOfAnyFile: compressed or in pieces, with a mark in front, blank lines,
// ends of lines of another system, formats mixed, and no end at the end.
func TestImportOfAnyFile(t *testing.T) {
	t.Parallel()
	from := eventful(t, 40)
	lines, _ := export(t, from, ops.ExportOptions{})
	events, _ := export(t, from, ops.ExportOptions{Format: ops.CloudEvents})
	mixed := strings.Join(slices.Concat(strings.Split(lines, "\n")[:20], strings.Split(events, "\n")[20:]), "\n")
	for name, file := range map[string]io.Reader{
		"plain":         strings.NewReader(lines),
		"gzip":          bytes.NewReader(zipped(lines)),
		"two gzips":     io.MultiReader(bytes.NewReader(zipped(lines[:1000])), bytes.NewReader(zipped(lines[1000:]))),
		"byte by byte":  iotest.OneByteReader(strings.NewReader(lines)),
		"mark":          strings.NewReader("\ufeff" + lines),
		"blank lines":   strings.NewReader("\n \n" + strings.ReplaceAll(lines, "\n", "\n\t\n\n")),
		"CRLF":          strings.NewReader(strings.ReplaceAll(lines, "\n", "\r\n")),
		"no last end":   strings.NewReader(strings.TrimSuffix(lines, "\n")),
		"mixed formats": strings.NewReader(mixed),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			to := testkit.Store(t, eventstore.Config{})
			if r := imported(t, to, file, ops.ImportOptions{}); r.Stored != 41 {
				t.Errorf("%+v", r)
			}
			got, _ := export(t, to, ops.ExportOptions{})
			sameLines(t, places.ReplaceAllString(got, ""), places.ReplaceAllString(lines, ""))
		})
	}
	if r := imported(t, from, strings.NewReader(""), ops.ImportOptions{}); r != (ops.ImportResult{}) {
		t.Errorf("an empty file: %+v", r)
	}
}

func zipped(text string) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	w.Write([]byte(text))
	w.Close()
	return b.Bytes()
}

// TestImportMakesIDs of a name and times, the same again, so that a repeat stores
// nothing and a log that has grown goes on.
func TestImportMakesIDs(t *testing.T) {
	t.Parallel()
	s := testkit.Store(t, eventstore.Config{})
	var log strings.Builder
	for i := range 30 {
		fmt.Fprintf(&log, `{"time":"2020-05-01T10:00:%02d+02:00","stream":"seat-A%d","type":"seat.held","data":{"n":%d}}`+"\n", i/10, i%3, i)
	}
	options := ops.ImportOptions{Name: "box office 2020", Batch: 7}
	if r := imported(t, s, strings.NewReader(log.String()), options); r.Stored != 30 {
		t.Errorf("%+v", r)
	}
	log.WriteString(`{"time":"2020-05-01T10:00:02+02:00","stream":"seat-A0","type":"seat.held","data":{"n":30}}`)
	if r := imported(t, s, strings.NewReader(log.String()), options); r.Stored != 1 || r.Duplicates != 30 {
		t.Errorf("again, and grown: %+v", r)
	}
	n := 0
	for e, err := range s.Log(testkit.Context(t), 0) {
		if err != nil || string(e.Data) != fmt.Sprintf(`{"n":%d}`, n) || !e.ID.Timestamp().Equal(time.Date(2020, 5, 1, 8, 0, min(n, 29)/10, 0, time.UTC)) {
			t.Errorf("event %d: %v %s at %s", n, err, e.Data, e.ID.Timestamp())
		}
		n++
	}
	options.Name = "another box office"
	if r := imported(t, s, strings.NewReader(log.String()), options); r.Stored != 31 {
		t.Errorf("another log with the same times: %+v", r)
	}
}

// TestImportNamesTheLine that is wrong. Nothing of its batch is stored, and with the
// line mended the import goes on.
func TestImportNamesTheLine(t *testing.T) {
	t.Parallel()
	good := func(n int) string {
		return fmt.Sprintf(`{"id":"01EJ3PX0000000001000000%03d","stream":"a-b","type":"t","data":%d}`+"\n\n", n, n)
	}
	var before strings.Builder
	for n := range 25 {
		before.WriteString(good(n))
	}
	poisoned := testkit.Store(t, eventstore.Config{})
	if _, err := poisoned.Pool().Exec(testkit.Context(t), poisoned.Qualify("alter table weir.events add constraint no_poison check (type <> 'poison')")); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		line string
		is   func(error) bool
	}{
		"cut off":           {`{"id":"01EJ3PX0000000001000000999","stream":"a-b","type":"t","data":`, says("unexpected end of JSON input")},
		"no stream":         {`{"id":"01EJ3PX0000000001000000999","type":"t","data":1}`, as[*weir.EmptyStreamError]},
		"no type":           {`{"id":"01EJ3PX0000000001000000999","stream":"a-b","data":1}`, as[*weir.InvalidMessageError]},
		"NUL in the stream": {`{"id":"01EJ3PX0000000001000000999","stream":"a-\u0000","type":"t","data":1}`, as[*weir.InvalidStreamError]},
		"NUL in metadata":   {`{"id":"01EJ3PX0000000001000000999","stream":"a-b","type":"t","data":1,"metadata":{"extra":{"\u0000":""}}}`, as[*weir.InvalidMessageError]},
		"text for JSON":     {`{"id":"01EJ3PX0000000001000000999","stream":"a-b","type":"t","data_base64":"aGVsbG8="}`, as[*weir.InvalidMessageError]},
		"large payload":     {`{"id":"01EJ3PX0000000001000000999","stream":"a-b","type":"t","data":"` + strings.Repeat("x", weir.MaxDataBytes) + `"}`, as[*weir.TooLargeError]},
		"long line":         {strings.Repeat(" ", 2<<20), as[*ops.LongLineError]},
		"too early":         {`{"time":"1969-12-31T23:59:59Z","stream":"a-b","type":"t","data":1}`, as[*weir.InvalidTimeError]},
		"refused":           {`{"id":"01EJ3PX0000000001000000999","stream":"a-b","type":"poison","data":1}`, eventstore.IsRefused},
	} {
		t.Run(name, func(t *testing.T) {
			s := poisoned
			if name != "refused" {
				t.Parallel()
				s = testkit.Store(t, eventstore.Config{})
			}
			options := ops.ImportOptions{Name: "x", Batch: 10, MaxLine: 2<<20 - 1}
			r, err := ops.Import(testkit.Context(t), s, strings.NewReader(before.String()+c.line+"\n"+good(25)), options)
			var line *ops.LineError
			if !errors.As(err, &line) || line.Line != 51 || !c.is(err) || !strings.Contains(err.Error(), "line 51: ") || len(err.Error()) > 500 {
				t.Fatalf("got %.600v", err)
			}
			if counts, err := s.Counts(testkit.Context(t)); err != nil || counts.Events != 20 || r.Stored != 20 {
				t.Errorf("%v, %d events are stored, result %+v", err, counts.Events, r)
			}
			r = imported(t, s, strings.NewReader(before.String()+good(25)), options)
			if r.Duplicates != 20 || r.Stored != 6 {
				t.Errorf("with the line mended: %+v", r)
			}
		})
	}
	t.Run("gzip that is cut off", func(t *testing.T) {
		t.Parallel()
		s, file := testkit.Store(t, eventstore.Config{}), zipped(before.String())
		_, err := ops.Import(testkit.Context(t), s, bytes.NewReader(file[:len(file)-9]), ops.ImportOptions{})
		if !as[*ops.LineError](err) || !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("got %v", err)
		}
	})
}

// TestP9_ImportOfALineWithoutEnd gives up at the limit.
func TestP9_ImportOfALineWithoutEnd(t *testing.T) {
	t.Parallel()
	r, err := ops.Import(testkit.Context(t), testkit.Store(t, eventstore.Config{}), endless{}, ops.ImportOptions{MaxLine: 5 << 20})
	if !as[*ops.LongLineError](err) || r.Bytes > 6<<20 {
		t.Errorf("%v after %d bytes", err, r.Bytes)
	}
}

type endless struct{}

func (endless) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = '['
	}
	return len(b), nil
}

func as[E error](err error) bool {
	var e E
	return errors.As(err, &e)
}

func says(text string) func(error) bool {
	return func(err error) bool { return strings.Contains(err.Error(), text) }
}

// TestImportIsToldHowFarItIs, and stops when it is told to.
func TestImportIsToldHowFarItIs(t *testing.T) {
	t.Parallel()
	lines, _ := export(t, eventful(t, 500), ops.ExportOptions{})
	s := testkit.Store(t, eventstore.Config{})
	ctx, cancel := context.WithCancel(testkit.Context(t))
	defer cancel()
	var told []ops.ImportResult
	_, err := ops.Import(ctx, s, strings.NewReader(lines), ops.ImportOptions{Batch: 100, Progress: func(r ops.ImportResult) {
		if told = append(told, r); len(told) == 2 {
			cancel()
		}
	}})
	if !errors.Is(err, context.Canceled) || len(told) < 2 || told[1].Stored != 200 || told[1].Lines < 200 || told[1].Bytes == 0 {
		t.Fatalf("%v: %+v", err, told)
	}
	if r := imported(t, s, strings.NewReader(lines), ops.ImportOptions{}); r.Stored+r.Duplicates != 510 || r.Duplicates < 200 {
		t.Errorf("started over: %+v", r)
	}
	got, _ := export(t, s, ops.ExportOptions{})
	sameLines(t, places.ReplaceAllString(got, ""), places.ReplaceAllString(lines, ""))
}
