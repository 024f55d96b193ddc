package xes_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/weir-es/weir/examples/loans/xes"
)

// event is one event on one line; extra is put inside it.
func event(activity, at, extra string) string {
	return fmt.Sprintf(`<event><string key="concept:name" value=%q/><date key="time:timestamp" value=%q/>%s</event>`, activity, at, extra)
}

const (
	noon = "2024-01-01T12:00:00.000+00:00"
	name = `<string key="concept:name" value="c1"/>`
)

func inLog(body string) string { return "<log>\n<trace>\n" + body + "\n</trace>\n</log>\n" }

func readAll(source io.Reader) (traces []xes.Trace, err error) {
	for trace, err := range xes.Read(source) {
		if err != nil {
			return traces, err
		}
		traces = append(traces, trace)
	}
	return traces, nil
}

func zipped(text string) []byte {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	io.WriteString(w, text)
	w.Close()
	return out.Bytes()
}

func TestRead_ABadLogGivesAClearErrorWithItsLine(t *testing.T) {
	good := inLog(name + "\n" + event("a", noon, ""))
	attribute := func(value string) string {
		return inLog(name + "\n" + event("a", noon, `<string key="note" value="`+value+`"/>`))
	}
	nested := strings.Repeat(`<list key="l">`, 200) + strings.Repeat("</list>", 200)

	for _, c := range []struct{ what, log, want string }{
		{"empty file", "", "line 1: there is no log in it"},
		{"only a header", "<?xml version=\"1.0\"?>\n", "line 2: there is no log in it"},
		{"another format", "<html><body/></html>", "line 1: not an XES log: unexpected element <html>"},
		{"plain text", "case;activity;time\n1;a;2\n", "line 3: there is no log in it"},
		{"two logs", good + good, "line 7: not an XES log: unexpected element <log>"},
		{"ends in a tag", good[:len(good)/2], "line 4: the log ends in the middle"},
		{"ends between traces", "<log>\n<trace>\n" + name + "\n</trace>\n", "line 5: the log ends in the middle"},
		{"ends in an attribute", "<log>\n<trace>\n<string key=\"concept:na", "line 3: the log ends in the middle"},
		{"wrong end tag", "<log>\n<trace>\n</event></log>", "line 3: malformed XML: element <trace> closed by </event>"},
		{"no quotes", "<log>\n<trace>\n<string key=a/></trace></log>", "line 3: malformed XML: unquoted or missing attribute value in element"},
		{"NUL", "<log>\n<trace>\n<string key=\"concept:name\" value=\"&#0;\"/></trace></log>", "line 3: malformed XML: illegal character code U+0000"},
		{"NUL in hex", "<log>\n<trace>\n<string key=\"concept:name\" value=\"&#x0;\"/></trace></log>", "line 3: malformed XML: illegal character code U+0000"},
		{"raw NUL", "<log>\n<trace>\n<string key=\"concept:name\" value=\"\x00\"/></trace></log>", "line 3: malformed XML: illegal character code U+0000"},
		{"not UTF-8", "<log>\n<trace>\n<string key=\"concept:name\" value=\"\xff\"/></trace></log>", "line 3: malformed XML: invalid UTF-8"},
		{"another encoding", `<?xml version="1.0" encoding="ISO-8859-1"?><log/>`, `line 1: cannot read on: xml: encoding "ISO-8859-1" declared but Decoder.CharsetReader is nil`},
		{"own entity", "<!DOCTYPE log [<!ENTITY e \"x\">]>\n<log><trace>\n<string key=\"concept:name\" value=\"&e;\"/></trace></log>", "line 3: malformed XML: invalid character entity &e;"},
		{"external entity", "<!DOCTYPE log [<!ENTITY e SYSTEM \"file:///etc/passwd\">]>\n<log><trace>\n<string key=\"concept:name\" value=\"&e;\"/></trace></log>", "line 3: malformed XML: invalid character entity &e;"},
		{"a billion laughs", "<!DOCTYPE log [<!ENTITY a \"ha\"><!ENTITY b \"&a;&a;\">]>\n<log>\n<trace><string key=\"concept:name\" value=\"&b;\"/></trace></log>", "line 3: malformed XML: invalid character entity &b;"},
		{"trace without a name", inLog(event("a", noon, "")), "line 2: the trace has no name (concept:name)"},
		{"trace with an empty name", inLog(`<string key="concept:name" value=""/>`), "line 2: the trace has no name (concept:name)"},
		{"event without activity", inLog(name + "\n\n" + `<event><date key="time:timestamp" value="` + noon + `"/></event>`), "line 5: the event has no activity (concept:name)"},
		{"event with an empty activity", inLog(name + "\n" + event("", noon, "")), "line 4: the event has no activity (concept:name)"},
		{"activity only in a nested attribute", inLog(name + "\n" + `<event><list key="l">` + name + `</list><date key="time:timestamp" value="` + noon + `"/></event>`), "line 4: the event has no activity (concept:name)"},
		{"event without a time", inLog(name + "\n" + `<event><string key="concept:name" value="a"/></event>`), "line 4: the event has no time (time:timestamp)"},
		{"a time that is none", inLog(name + "\n" + event("a", "yesterday", "")), `line 4: time:timestamp "yesterday" is not a time like 2011-10-01T00:38:44.546+02:00`},
		{"a month that is none", inLog(name + "\n" + event("a", "2024-13-01T00:00:00Z", "")), `line 4: time:timestamp "2024-13-01T00:00:00Z" is not a time like 2011-10-01T00:38:44.546+02:00`},
		{"before 1970", inLog(name + "\n" + event("a", "1969-12-31T23:59:59.999Z", "")), "line 4: time:timestamp 1969-12-31T23:59:59.999Z lies before 1970"},
		{"before 1970 by its zone", inLog(name + "\n" + event("a", "1970-01-01T00:00:00.000+01:00", "")), "line 4: time:timestamp 1970-01-01T00:00:00.000+01:00 lies before 1970"},
		{"two names", inLog(name + "\n" + name), "line 4: concept:name is given twice"},
		{"an amount that is none", inLog(name + "\n" + `<string key="AMOUNT_REQ" value="a lot"/>`), `line 4: AMOUNT_REQ "a lot" is not a whole number up to 1000000000000`},
		{"an amount with cents", inLog(name + "\n" + `<float key="AMOUNT_REQ" value="1.5"/>`), `line 4: AMOUNT_REQ "1.5" is not a whole number up to 1000000000000`},
		{"an amount that is not a number", inLog(name + "\n" + `<float key="AMOUNT_REQ" value="NaN"/>`), `line 4: AMOUNT_REQ "NaN" is not a whole number up to 1000000000000`},
		{"an amount over the limit", inLog(name + "\n" + `<int key="AMOUNT_REQ" value="1000000000001"/>`), `line 4: AMOUNT_REQ "1000000000001" is not a whole number up to 1000000000000`},
		{"a negative amount over the limit", inLog(name + "\n" + `<int key="AMOUNT_REQ" value="-1000000000001"/>`), `line 4: AMOUNT_REQ "-1000000000001" is not a whole number up to 1000000000000`},
		{"an amount without end", inLog(name + "\n" + `<float key="AMOUNT_REQ" value="9e99"/>`), `line 4: AMOUNT_REQ "9e99" is not a whole number up to 1000000000000`},
		{"10 MB in one attribute", attribute(strings.Repeat("x", 10<<20)), "line 4: an attribute, text or comment is longer than 1048576 bytes"},
		{"10 MB of comment", inLog("<!--" + strings.Repeat("x", 10<<20) + "-->"), "line 3: an attribute, text or comment is longer than 1048576 bytes"},
		{"100 kB of activity", inLog(name + "\n" + event(strings.Repeat("x", 100_000), noon, "")), "line 4: concept:name is 100000 bytes long, the limit is 32768"},
		{"nested too deep", inLog(name + "\n" + nested), "line 4: elements are nested deeper than 100"},
	} {
		t.Run(c.what, func(t *testing.T) {
			for _, source := range [][]byte{[]byte(c.log), zipped(c.log)} {
				_, err := readAll(bytes.NewReader(source))
				var fault *xes.Error
				if !errors.As(err, &fault) || err.Error() != c.want {
					t.Errorf("got  %v\nwant %s", err, c.want)
				}
			}
		})
	}
}

func TestRead_DamagedGzipIsSaid(t *testing.T) {
	whole := zipped(inLog(name + event("a", noon, "")))
	broken := bytes.Clone(whole)
	broken[len(broken)-6] ^= 1 // in the checksum
	for what, source := range map[string][]byte{
		"the log ends in the middle of its gzip data": whole[:len(whole)-9],
		"damaged gzip data":                           broken,
	} {
		if _, err := readAll(bytes.NewReader(source)); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("got %v, want %s", err, what)
		}
	}
}

func TestRead_EveryPrefixOfALogIsAnError(t *testing.T) {
	log := strings.TrimSpace(inLog(name + event("a", noon, "")))
	for cut := range log {
		if _, err := readAll(strings.NewReader(log[:cut])); err == nil {
			t.Errorf("no error after %d of %d bytes", cut, len(log))
		}
	}
	if _, err := readAll(strings.NewReader(log)); err != nil {
		t.Error(err)
	}
}

func TestRead_KeepsWhatBelongsToTheEventAndSkipsTheRest(t *testing.T) {
	const log = "\ufeff<?xml version=\"1.0\" encoding=\"utf-8\"?>\n" + `<!DOCTYPE log SYSTEM "http://example.com/xes.dtd">
<x:log xmlns:x="http://www.xes-standard.org/" xmlns:y="urn:other">
<x:extension name="Concept" prefix="concept" uri="http://www.xes-standard.org/concept.xesext"/>
<x:global scope="event"><x:string key="concept:name" value="UNKNOWN"/></x:global>
<x:global scope="trace"><x:string key="AMOUNT_REQ" value="UNKNOWN"/></x:global>
<x:classifier name="c" keys="concept:name"/>
<x:string key="concept:name" value="the log"><x:string key="author" value="x"/></x:string>
<x:trace>
	<x:event>
		<x:list key="people"><x:values><x:string key="concept:name" value="wrong"/></x:values></x:list>
		<x:string key="concept:name" y:key="org:resource" y:value="wrong" value="A &quot;quoted&quot; &lt;step&gt; \u0000 🐟"><x:string key="concept:name" value="wrong"/></x:string>
		<x:date key="time:timestamp" value="2024-01-01T01:00:00.5+01:00"><x:date key="time:timestamp" value="wrong"/></x:date>
		<x:container key="c"><x:event><x:string key="concept:name" value="wrong"/></x:event></x:container>
	</x:event>
	<x:string key="concept:name" value="late name"/>
	<x:float key="AMOUNT_REQ" value="20000.0"/>
	<x:event>
		<x:string key="lifecycle:transition" value="START"/>
		<x:date key="time:timestamp" value="2024-01-01T00:00:01"/>
		<x:string key="concept:name" value="b"/>
		<x:string key="org:resource" value="Ada"/>
	</x:event>
</x:trace>
<x:trace><x:string key="concept:name" value="no events"/><x:string key="AMOUNT_REQ" value="UNKNOWN"/></x:trace>
</x:log>
<!-- the end -->
`
	traces, err := readAll(strings.NewReader(log))
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprintf("%v %v", describe(traces[0]), describe(traces[1]))
	want := `late name:20000:9[A "quoted" <step> \u0000 🐟||| 2024-01-01T00:00:00.5Z:10 b|START|Ada| 2024-01-01T00:00:01Z:18] no events:none:25[]`
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func describe(t xes.Trace) string {
	amount := "none"
	if t.AmountReq != nil {
		amount = fmt.Sprint(*t.AmountReq)
	}
	var events []string
	for _, e := range t.Events {
		events = append(events, fmt.Sprintf("%s|%s|%s| %s:%d", e.Activity, e.Transition, e.Resource, e.Time.Format(time.RFC3339Nano), e.Line))
	}
	return fmt.Sprintf("%s:%s:%d%v", t.Name, amount, t.Line, events)
}

// endless is a log whose one attribute never ends.
type endless struct{ begun bool }

func (e *endless) Read(p []byte) (int, error) {
	if !e.begun {
		e.begun = true
		return copy(p, `<log><trace><string key="note" value="`), nil
	}
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

func TestRead_AnEndlessAttributeTakesNoMemory(t *testing.T) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := readAll(&endless{})
	runtime.ReadMemStats(&after)
	if err == nil || !strings.Contains(err.Error(), "longer than 1048576 bytes") {
		t.Errorf("got %v", err)
	}
	if took := after.TotalAlloc - before.TotalAlloc; took > 8<<20 {
		t.Errorf("took %d bytes", took)
	}
}

func TestRead_TheCallerMayStop(t *testing.T) {
	for trace, err := range xes.Read(&endlessTraces{}) {
		if err != nil || trace.Name != "c1" {
			t.Fatal(trace, err)
		}
		break
	}
}

// endlessTraces is a log whose traces never end.
type endlessTraces struct{ rest string }

func (e *endlessTraces) Read(p []byte) (int, error) {
	if e.rest == "" {
		e.rest = "<trace>" + name + "</trace>"
		return copy(p, "<log>"), nil
	}
	return copy(p, e.rest), nil
}

func TestRead_AReaderThatFailsIsSaid(t *testing.T) {
	broken := errors.New("disk on fire")
	_, err := readAll(io.MultiReader(strings.NewReader("<log>\n<trace>"), failing{broken}))
	if !errors.Is(err, broken) || !strings.HasPrefix(err.Error(), "line 2: ") {
		t.Errorf("got %v", err)
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// TestRead_RealLog reads the log of a real process where it is at hand: it is somebody
// else's to publish, so the project does not have it.
func TestRead_RealLog(t *testing.T) {
	source, err := os.Open("../../../../shared/data/receipt.xes.gz")
	if errors.Is(err, os.ErrNotExist) {
		t.Skip("needs the real log receipt.xes.gz in ../shared/data beside the project")
	}
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	if got, want := summarise(t, source), [4]int{1434, 8577, 0, 0}; got != want {
		t.Errorf("cases, events, amount, equal times: got %v, want %v", got, want)
	}
}

func summarise(t *testing.T, source io.Reader) (sum [4]int) {
	for trace, err := range xes.Read(source) {
		if err != nil {
			t.Fatal(err)
		}
		sum[0]++
		sum[1] += len(trace.Events)
		if trace.AmountReq != nil {
			sum[2] += int(*trace.AmountReq)
		}
		for i := 1; i < len(trace.Events); i++ {
			if trace.Events[i].Time.Equal(trace.Events[i-1].Time) {
				sum[3]++
			}
		}
	}
	return sum
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(inLog(name + event("a", noon, ""))))
	f.Add(zipped(inLog(name + event("a", noon, ""))))
	f.Add([]byte("<log><trace><event></event></trace></log>"))
	f.Fuzz(func(t *testing.T, data []byte) {
		traces, err := readAll(bytes.NewReader(data))
		var fault *xes.Error
		if err != nil && (!errors.As(err, &fault) || fault.Line < 1) {
			t.Errorf("not an error with a line: %v", err)
		}
		for _, trace := range traces {
			if trace.Name == "" {
				t.Error("a trace without a name")
			}
		}
	})
}
