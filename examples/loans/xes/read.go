package xes

import (
	"bufio"
	"compress/flate"
	"compress/gzip"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"iter"
)

// Read yields the traces of a log, gzipped or plain, in file order, each when it
// is complete. It holds one trace in memory.
//
// The last pair may carry an error, which is an *Error where the log is at fault;
// the traces before it were good. Everything is read, to the end of the file, so
// that a log which ends without an error is whole.
func Read(source io.Reader) iter.Seq2[Trace, error] {
	return func(yield func(Trace, error) bool) {
		r, err := newReader(source)
		if err == nil {
			err = r.file(func(t Trace) bool { return yield(t, nil) })
		}
		if err != nil && !errors.Is(err, errStopped) {
			yield(Trace{}, err)
		}
	}
}

var errStopped = errors.New("the caller has seen enough")

// reader walks down the elements of one log. Every method that is called at the
// start of an element returns after its end.
type reader struct {
	input   *meter
	decoder *xml.Decoder
	depth   int
	// line is where the last token begins.
	line int
}

func newReader(source io.Reader) (*reader, error) {
	buffer := bufio.NewReaderSize(source, 64<<10)
	if magic, _ := buffer.Peek(2); string(magic) == "\x1f\x8b" {
		unzipped, err := gzip.NewReader(buffer)
		if err != nil {
			return nil, explain(1, err)
		}
		buffer = bufio.NewReaderSize(unzipped, 64<<10)
	}
	input := &meter{source: buffer}
	return &reader{input: input, decoder: xml.NewDecoder(input), line: 1}, nil
}

// file reads one log and then makes sure that nothing follows it.
func (r *reader) file(yield func(Trace) bool) error {
	found := false
	for {
		token, err := r.next()
		switch {
		case err == io.EOF && !found:
			return r.fault("there is no log in it")
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		}
		start, ok := token.(xml.StartElement)
		if !ok {
			continue
		}
		if found || start.Name.Local != "log" {
			return r.fault("not an XES log: unexpected element <%.60s>", start.Name.Local)
		}
		found = true
		if err := r.log(yield); err != nil {
			return err
		}
	}
}

func (r *reader) log(yield func(Trace) bool) error {
	return r.children(func(start xml.StartElement) error {
		if start.Name.Local != "trace" {
			return r.skip()
		}
		trace, err := r.trace()
		if err == nil && !yield(trace) {
			return errStopped
		}
		return err
	})
}

func (r *reader) trace() (Trace, error) {
	trace := Trace{Line: r.line}
	seen := seen{}
	err := r.children(func(start xml.StartElement) error {
		if start.Name.Local == "event" {
			return r.appendEvent(&trace)
		}
		return r.attribute(start, &seen, trace.set)
	})
	if err == nil && trace.Name == "" {
		err = &Error{Line: trace.Line, Reason: "the trace has no name (concept:name)"}
	}
	return trace, err
}

func (r *reader) appendEvent(trace *Trace) error {
	if len(trace.Events) == MaxTraceEvents {
		return r.fault("the trace has more than %d events", MaxTraceEvents)
	}
	event, err := r.event()
	trace.Events = append(trace.Events, event)
	return err
}

func (r *reader) event() (Event, error) {
	event := Event{Line: r.line}
	seen := seen{}
	err := r.children(func(start xml.StartElement) error {
		return r.attribute(start, &seen, event.set)
	})
	switch {
	case err != nil:
	case event.Activity == "":
		err = &Error{Line: event.Line, Reason: "the event has no activity (concept:name)"}
	case event.Time.IsZero():
		err = &Error{Line: event.Line, Reason: "the event has no time (time:timestamp)"}
	}
	return event, err
}

// attribute hands key and value of one attribute to set and skips what is nested
// in it: nested attributes speak of their attribute, not of the event.
func (r *reader) attribute(start xml.StartElement, seen *seen, set func(key, value string) error) error {
	var key, value string
	for _, a := range start.Attr {
		switch {
		case a.Name.Space != "":
		case a.Name.Local == "key":
			key = a.Value
		case a.Name.Local == "value":
			value = a.Value
		}
	}
	if kept(key) {
		if err := seen.once(key); err != nil {
			return r.fault("%w", err)
		}
		if err := set(key, value); err != nil {
			return r.fault("%w", err)
		}
	}
	return r.skip()
}

// children calls do at the start of every element inside the current one.
func (r *reader) children(do func(xml.StartElement) error) error {
	for {
		token, err := r.next()
		if err != nil {
			return err
		}
		switch token := token.(type) {
		case xml.EndElement:
			return nil
		case xml.StartElement:
			if err := do(token); err != nil {
				return err
			}
		}
	}
}

// skip reads on to the end of the current element.
func (r *reader) skip() error {
	for outside := r.depth - 1; r.depth > outside; {
		if _, err := r.next(); err != nil {
			return err
		}
	}
	return nil
}

// next is the next token, or io.EOF after the last one of a well-formed file.
func (r *reader) next() (xml.Token, error) {
	r.input.left = MaxTokenBytes
	r.line, _ = r.decoder.InputPos()
	token, err := r.decoder.Token()
	if err == io.EOF {
		return nil, err
	}
	if err != nil {
		return nil, explain(r.line, err)
	}
	switch token.(type) {
	case xml.StartElement:
		r.depth++
	case xml.EndElement:
		r.depth--
	}
	if r.depth > maxDepth {
		return nil, r.fault("elements are nested deeper than %d", maxDepth)
	}
	return token, nil
}

func (r *reader) fault(format string, args ...any) error {
	return &Error{Line: r.line, Reason: fmt.Errorf(format, args...).Error()}
}

// explain turns what the decoders say into what is wrong with the log.
func explain(line int, err error) error {
	var syntax *xml.SyntaxError
	var corrupt flate.CorruptInputError
	switch {
	case errors.As(err, &syntax) && syntax.Msg == "unexpected EOF":
		return &Error{Line: syntax.Line, Reason: "the log ends in the middle"}
	case errors.Is(err, io.ErrUnexpectedEOF):
		return &Error{Line: line, Reason: "the log ends in the middle of its gzip data"}
	case errors.As(err, &syntax):
		return &Error{Line: syntax.Line, Reason: "malformed XML: " + syntax.Msg}
	case errors.As(err, &corrupt), errors.Is(err, gzip.ErrChecksum), errors.Is(err, gzip.ErrHeader):
		return &Error{Line: line, Reason: "damaged gzip data", Err: err}
	case errors.Is(err, errTooLong):
		return &Error{Line: line, Reason: fmt.Sprintf("an attribute, text or comment is longer than %d bytes", MaxTokenBytes)}
	}
	return &Error{Line: line, Reason: "cannot read on", Err: err}
}
