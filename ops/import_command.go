package ops

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/weir-es/weir/eventstore"
)

type importCommand struct {
	File    string `arg:"" optional:"" default:"-" help:"The file to read, gzipped or not; - for standard input, which is the default."`
	Name    string `placeholder:"NAME" help:"Make ids for lines that have a time and no id. The same name gives the same lines the same ids again."`
	Batch   int    `placeholder:"N" help:"The most events of one transaction. Default 10000."`
	MaxLine int    `placeholder:"BYTES" help:"The longest line. Default 16 MiB."`
}

func (c *importCommand) run(ctx context.Context, s *session) error {
	in, size, err := s.input(ctx, c.File)
	if err != nil {
		return &unableError{fmt.Errorf("import: %w", err)}
	}
	defer in.Close()
	return s.withStore(ctx, func(store *eventstore.Store) error {
		p := newProgress(s.Stderr)
		r, err := Import(ctx, store, in, ImportOptions{Name: c.Name, MaxLine: c.MaxLine, Batch: c.Batch,
			Progress: func(r ImportResult) { p.say(r.sentence(size)) }})
		p.end()
		if err != nil && r.Events > 0 {
			fmt.Fprintf(s.Stderr, "%s; run it again to go on\n", r.sentence(0))
		}
		if err != nil {
			return err
		}
		return s.out.print(r)
	})
}

// input opens a file and says how large it is, 0 when nobody knows.
func (s *session) input(ctx context.Context, name string) (io.ReadCloser, int64, error) {
	if name == "-" {
		return io.NopCloser(&interruptible{ctx: ctx, r: s.Stdin}), 0, nil
	}
	file, err := os.Open(name)
	if err != nil {
		return nil, 0, err
	}
	info, err := file.Stat()
	if err != nil || info.IsDir() {
		return nil, 0, errors.Join(err, file.Close(), fmt.Errorf("%s is no file", name))
	}
	return file, info.Size(), nil
}

func (r ImportResult) sentence(size int64) string {
	text := fmt.Sprintf("%d events stored, %d were there", r.Stored, r.Duplicates)
	if size > 0 {
		text += fmt.Sprintf(", %d %% read", 100*r.Bytes/size)
	}
	return text
}
