package ops

import (
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/oklog/ulid/v2"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/eventstore"
)

// AppendOptions say what to append, and to what.
type AppendOptions struct {
	Stream weir.StreamID
	Type   string
	// Data is the payload, JSON.
	Data []byte
	// Expected is the version the stream must be at.
	Expected weir.ExpectedVersion
	// ID makes a repeat change nothing. Default a new one.
	ID weir.ID
	// Producer is who appends, for the metadata. Default nobody.
	Producer string
}

// Append appends one event and returns it. The errors are those of the store.
func Append(ctx context.Context, s *eventstore.Store, o AppendOptions) (weir.Event, error) {
	// An id from the future would draw all later ones of its stream along.
	if err := weir.Observe(o.ID); err != nil {
		return weir.Event{}, fmt.Errorf("append to %s: %w", o.Stream, err)
	}
	m := weir.Message{ID: o.ID, Type: o.Type, Data: o.Data, Metadata: weir.Metadata{Producer: o.Producer}}
	events, err := s.Append(ctx, o.Stream, o.Expected, m)
	if err != nil {
		return weir.Event{}, err
	}
	return events[0], nil
}

type appendCommand struct {
	Stream   weir.StreamID `arg:"" help:"The name of the stream, such as seat-A1."`
	Type     string        `arg:"" help:"The name of the type, such as seat.held."`
	Data     string        `default:"{}" placeholder:"JSON" help:"The payload: JSON, @file to read a file, - to read standard input. Default {}."`
	Expected expected      `required:"" placeholder:"VERSION" help:"The version the stream must be at: new, a number, or any to append whatever it is."`
	ID       id            `name:"id" placeholder:"ULID" help:"The id of the event: the same again changes nothing. Default a new one."`
}

func (c *appendCommand) run(ctx context.Context, s *session) error {
	data, err := payload(c.Data, s.Stdin)
	if err != nil {
		return &unableError{err}
	}
	return s.withStore(ctx, func(store *eventstore.Store) error {
		e, err := Append(ctx, store, AppendOptions{Stream: c.Stream, Type: c.Type, Data: data,
			Expected: c.Expected.version, ID: weir.ID(c.ID), Producer: s.Name})
		if err != nil {
			return err
		}
		return s.out.print(eventRow(e))
	})
}

// payload reads what the flag names. It reads no more than some payload may have,
// and the store says what is too much.
func payload(data string, stdin io.Reader) ([]byte, error) {
	const most = 64 << 20
	switch {
	case data == "-":
		return io.ReadAll(io.LimitReader(stdin, most))
	case strings.HasPrefix(data, "@"):
		file, err := os.Open(data[1:])
		if err != nil {
			return nil, fmt.Errorf("read the payload: %w", err)
		}
		defer file.Close()
		return io.ReadAll(io.LimitReader(file, most))
	}
	return []byte(data), nil
}

// expected is an expected version as it is written.
type expected struct{ version weir.ExpectedVersion }

func (e *expected) UnmarshalText(text []byte) error {
	switch string(text) {
	case "any":
		e.version = weir.AnyVersion
		return nil
	case "new":
		e.version = weir.NewStream
		return nil
	}
	n, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil || n < 0 {
		return fmt.Errorf("%.60q is no expected version: write any, new, or a number", text)
	}
	e.version = weir.ExpectedVersion(n)
	return nil
}

// id is an id as it is written.
type id weir.ID

func (i *id) UnmarshalText(text []byte) error {
	parsed, err := ulid.ParseStrict(string(text))
	if err != nil {
		return fmt.Errorf("%.60q is no id: it has 26 characters, such as %s", text, weir.NewID())
	}
	*i = id(parsed)
	return nil
}
