package ops

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/eventstore"
)

// ImportOptions say how lines are imported. The zero value works.
type ImportOptions struct {
	// Name makes ids for lines that have a time and no id: of the name, the time,
	// and the place among the lines of the same millisecond, so that the same
	// lines get the same ids again. Another log must have another name. Default
	// each line must have an id.
	Name string
	// MaxLine is the longest line in bytes. Default 16 MiB. Wider: larger
	// payloads; each takes as much memory.
	MaxLine int
	// Batch is the most events of one transaction, as in eventstore.ImportOptions.
	Batch int
	// Progress is told after each batch. Default nobody is told.
	Progress func(ImportResult)
}

// ImportResult says how far an import came.
type ImportResult struct {
	// Lines and Bytes were read; of what was compressed the compressed ones. Up to
	// a batch of it may not be stored yet.
	Lines int64 `json:"lines"`
	Bytes int64 `json:"bytes"`
	// Events, Stored, Duplicates and Last are those of eventstore.ImportResult.
	Events     int64         `json:"events"`
	Stored     int64         `json:"stored"`
	Duplicates int64         `json:"duplicates"`
	Last       weir.Position `json:"last"`
}

// LineError names the line that ended an import. Nothing of its batch is stored;
// what came in earlier batches is.
type LineError struct {
	// Line counts from 1, blank lines too.
	Line int64
	Err  error
}

func (e *LineError) Error() string { return fmt.Sprintf("line %d: %v", e.Line, e.Err) }

func (e *LineError) Unwrap() error { return e.Err }

// Import stores the events of lines, as Export writes them or as others do: objects
// of either Format, also mixed, gzipped or not. Blank lines are passed over. Ids
// and order ids are kept, and so is the order of what has positions; positions and
// times of recording are new. Safe to repeat, also after it was interrupted: what
// is stored is passed over.
//
// Errors: *LineError with what is wrong with a line, such as a *LongLineError or what
// weir.Message.Validate says; those of eventstore.ImportEvents. The result holds what was done also when there is an
// error.
func Import(ctx context.Context, s *eventstore.Store, r io.Reader, o ImportOptions) (ImportResult, error) {
	i := &importing{options: o, in: &countingReader{r: r}, numbers: make([]int64, 2*cmp.Or(o.Batch, eventstore.MaxBatch)+1)}
	i.options.MaxLine = cmp.Or(o.MaxLine, 16<<20)
	if o.Name != "" {
		i.reader.importer = weir.Import(o.Name)
	}
	done, err := s.ImportEvents(ctx, i.events(), eventstore.ImportOptions{Batch: o.Batch, Progress: i.report})
	if err != nil {
		err = fmt.Errorf("import: %w", i.named(err))
	}
	return i.result(done), err
}

// importing is an import while it goes on.
type importing struct {
	options ImportOptions
	in      *countingReader
	reader  lineReader
	line    int64   // the last one read
	ordinal int64   // of the event in it
	numbers []int64 // of the lines of the last events: the ordinal says where
}

func (i *importing) result(r eventstore.ImportResult) ImportResult {
	return ImportResult{Lines: i.line, Bytes: i.in.n, Events: r.Read, Stored: r.Stored, Duplicates: r.Duplicates, Last: r.Last}
}

func (i *importing) report(r eventstore.ImportResult) {
	if i.options.Progress != nil {
		i.options.Progress(i.result(r))
	}
}

// named is an error with the line in the place of the ordinal.
func (i *importing) named(err error) error {
	if line := (*LineError)(nil); errors.As(err, &line) {
		return line
	}
	if wrong := (*eventstore.ImportError)(nil); errors.As(err, &wrong) {
		return &LineError{i.numbers[wrong.Ordinal%int64(len(i.numbers))], wrong.Err}
	}
	return err
}

// events reads the lines one by one.
func (i *importing) events() iter.Seq2[weir.Event, error] {
	return func(yield func(weir.Event, error) bool) {
		lines, err := newLineSource(i.in, i.options.MaxLine)
		if err != nil {
			yield(weir.Event{}, err)
			return
		}
		for err == nil {
			var e weir.Event
			if e, err = i.next(lines); err == io.EOF {
				return
			}
			i.ordinal++
			i.numbers[i.ordinal%int64(len(i.numbers))] = i.line
			if !yield(e, err) {
				return
			}
		}
	}
}

// next is the event of the next line that is not blank; io.EOF when there is none.
func (i *importing) next(lines *lineSource) (e weir.Event, err error) {
	for {
		line, err := lines.next()
		if err == io.EOF {
			return e, err
		}
		if i.line++; err != nil {
			return e, &LineError{i.line, err}
		}
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		if e, err = i.reader.read(line); err != nil {
			return e, &LineError{i.line, err}
		}
		return e, nil
	}
}
