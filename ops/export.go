package ops

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/url"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/eventstore"
)

// ExportOptions say which events to export, and how. The zero value is the whole
// log as Lines.
type ExportOptions struct {
	// Format is how an event is written. Default Lines.
	Format Format
	// Stream leaves out all other streams. Default nothing is left out.
	Stream weir.StreamID
	// Read says which events. It must not read backward: what is imported is
	// stored in the order of its lines.
	Read eventstore.Read
	// Source is where CloudEvents are said to come from, a URI or a part of one.
	// Default "/" and the name of the schema.
	Source string
	// Progress is told after each thousand events. Default nobody is told.
	Progress func(ExportResult)
}

// ExportResult says how much was exported.
type ExportResult struct {
	Events int64 `json:"events"`
	// Bytes that were written, as lines.
	Bytes int64 `json:"bytes"`
	// Last is the position of the last event; an export that goes on begins
	// behind it.
	Last weir.Position `json:"last"`
}

// exportProgress is how many events lie between two reports.
const exportProgress = 1000

// Export writes events as lines, one line an event, in the order of the log or of
// the stream; the log no further than its horizon at the moment of the call. It
// holds a page of a thousand events in memory. After an error whole lines were
// written, but for an error of w itself; the result says how far.
func Export(ctx context.Context, s *eventstore.Store, w io.Writer, o ExportOptions) (ExportResult, error) {
	events, err := o.events(ctx, s)
	if err != nil {
		return ExportResult{}, fmt.Errorf("export: %w", err)
	}
	x := &exporting{options: o, out: bufio.NewWriterSize(w, 64<<10)}
	if o.Source == "" {
		x.options.Source = "/" + url.PathEscape(s.Schema())
	}
	err = x.all(events)
	if err = errors.Join(err, x.out.Flush()); err != nil {
		return x.result, fmt.Errorf("export after %d events: %w", x.result.Events, err)
	}
	return x.result, nil
}

func (o ExportOptions) events(ctx context.Context, s *eventstore.Store) (iter.Seq2[weir.Event, error], error) {
	switch {
	case o.Format != "" && o.Format != Lines && o.Format != CloudEvents:
		return nil, fmt.Errorf("there is no format %.40q: choose %s or %s", o.Format, Lines, CloudEvents)
	case o.Read.Backward:
		return nil, errors.New("events are exported oldest first, since they are imported in the order of their lines")
	case o.Stream != "":
		return s.ReadStream(ctx, o.Stream, o.Read), nil
	}
	return s.ReadLog(ctx, o.Read), nil
}

// exporting is an export while it goes on.
type exporting struct {
	options ExportOptions
	out     *bufio.Writer
	line    []byte
	result  ExportResult
}

func (x *exporting) all(events iter.Seq2[weir.Event, error]) error {
	for e, err := range events {
		if err != nil {
			return err
		}
		x.line = x.options.Format.appendLine(x.line[:0], e, x.options.Source)
		if _, err := x.out.Write(x.line); err != nil {
			return err
		}
		x.result.Events++
		x.result.Bytes += int64(len(x.line))
		x.result.Last = e.Position
		if x.options.Progress != nil && x.result.Events%exportProgress == 0 {
			x.options.Progress(x.result)
		}
	}
	return nil
}
