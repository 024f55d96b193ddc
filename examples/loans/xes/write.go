package xes

import (
	"bufio"
	"encoding/xml"
	"fmt"
	"io"
	"iter"
	"time"
)

const (
	head = xml.Header + `<log xes.version="1.0" xes.features="nested-attributes" xmlns="http://www.xes-standard.org/">
	<extension name="Concept" prefix="concept" uri="http://www.xes-standard.org/concept.xesext"/>
	<extension name="Lifecycle" prefix="lifecycle" uri="http://www.xes-standard.org/lifecycle.xesext"/>
	<extension name="Time" prefix="time" uri="http://www.xes-standard.org/time.xesext"/>
	<extension name="Organizational" prefix="org" uri="http://www.xes-standard.org/org.xesext"/>
`
	foot       = "</log>\n"
	timeLayout = "2006-01-02T15:04:05.000Z07:00"
)

// Write writes a log. Times are written in milliseconds; characters that XML
// cannot hold are replaced with U+FFFD.
func Write(w io.Writer, traces iter.Seq[Trace]) error {
	out := &writer{Writer: bufio.NewWriter(w)}
	out.WriteString(head)
	for trace := range traces {
		out.trace(trace)
	}
	out.WriteString(foot)
	return out.Flush()
}

// writer keeps its first error until Flush, as bufio does.
type writer struct{ *bufio.Writer }

func (w *writer) trace(t Trace) {
	w.WriteString("\t<trace>\n")
	w.attribute("\t\t", "string", keyName, t.Name)
	if t.AmountReq != nil {
		w.attribute("\t\t", "int", keyAmount, fmt.Sprint(*t.AmountReq))
	}
	for _, event := range t.Events {
		w.event(event)
	}
	w.WriteString("\t</trace>\n")
}

func (w *writer) event(e Event) {
	w.WriteString("\t\t<event>\n")
	w.attribute("\t\t\t", "string", keyName, e.Activity)
	w.attribute("\t\t\t", "date", keyTime, e.Time.In(time.UTC).Format(timeLayout))
	if e.Transition != "" {
		w.attribute("\t\t\t", "string", keyTransition, e.Transition)
	}
	if e.Resource != "" {
		w.attribute("\t\t\t", "string", keyResource, e.Resource)
	}
	w.WriteString("\t\t</event>\n")
}

func (w *writer) attribute(indent, kind, key, value string) {
	fmt.Fprintf(w, `%s<%s key="%s" value="`, indent, kind, key)
	xml.EscapeText(w, []byte(value))
	w.WriteString("\"/>\n")
}
