package ops

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/eventstore"
)

type exportCommand struct {
	File     string        `arg:"" optional:"" default:"-" help:"The file to write; - for standard output, which is the default."`
	Yes      bool          `help:"Write over a file that is there."`
	Format   Format        `enum:"ndjson,cloudevents" default:"ndjson" help:"ndjson or cloudevents."`
	Source   string        `placeholder:"URI" help:"Where CloudEvents are said to come from. Default / and the name of the schema."`
	Stream   weir.StreamID `placeholder:"NAME" help:"Only this stream."`
	Category []string      `placeholder:"NAME" help:"Only events of streams of these categories."`
	Type     []string      `placeholder:"NAME" help:"Only events of these types."`
	From     InLog         `placeholder:"PLACE" help:"Begin at this position, id or time, or so long ago (15m)."`
	AsOf     InLog         `placeholder:"PLACE" help:"Leave out everything after this position, id or time."`
	Limit    int           `short:"n" help:"The most events to export; 0 for all."`
}

func (c *exportCommand) options() ExportOptions {
	return ExportOptions{Format: c.Format, Source: c.Source, Stream: c.Stream,
		Read: eventstore.Read{From: c.From.Point, AsOf: c.AsOf.Point, Types: c.Type, Categories: c.Category, Limit: c.Limit}}
}

func (c *exportCommand) run(ctx context.Context, s *session) error {
	return s.withStore(ctx, func(store *eventstore.Store) error {
		out, err := s.output(c.File, c.Yes)
		if err != nil {
			return fmt.Errorf("export: %w", err)
		}
		p := newProgress(s.Stderr)
		o := c.options()
		o.Progress = func(r ExportResult) { p.say(r.sentence()) }
		r, err := Export(ctx, store, out, o)
		p.end()
		if err = errors.Join(err, out.Close()); err == nil {
			fmt.Fprintln(s.Stderr, r.sentence())
		}
		return err
	})
}

func (r ExportResult) sentence() string {
	if r.Events == 0 {
		return "no events exported"
	}
	return fmt.Sprintf("%d events exported, the last at position %d", r.Events, r.Last)
}

// output creates a file, which must not be there unless it may be written over.
func (s *session) output(name string, over bool) (io.WriteCloser, error) {
	if name == "-" {
		return nopCloser{s.Stdout}, nil
	}
	flags := os.O_WRONLY | os.O_CREATE | os.O_EXCL
	if over {
		flags = os.O_WRONLY | os.O_CREATE | os.O_TRUNC
	}
	file, err := os.OpenFile(name, flags, 0o600)
	if errors.Is(err, os.ErrExist) {
		info, statErr := os.Stat(name)
		if statErr != nil {
			return nil, statErr
		}
		return nil, fmt.Errorf("%s is there and has %d bytes: --yes writes over it", name, info.Size())
	}
	if err != nil {
		return nil, &unableError{err}
	}
	return file, nil
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }
