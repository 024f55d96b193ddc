package ops

import (
	"bytes"
	"context"
	"encoding/json"

	"github.com/weir-es/weir/eventstore"
	"github.com/weir-es/weir/projection"
)

// LookAt is the state of a row as it was at an earlier moment, as JSON. It writes
// nothing. There was none: weir.ErrNotFound.
func LookAt(ctx context.Context, s *eventstore.Store, m projection.Model, key string, when eventstore.Point) (json.RawMessage, error) {
	return m.LookAt(ctx, s, key, when)
}

// stateRow is the state of a row as it is printed: as JSON a line, for people some
// lines.
type stateRow json.RawMessage

func (r stateRow) appendJSON(b []byte) []byte { return append(append(b, r...), '\n') }

func (r stateRow) text() string {
	var b bytes.Buffer
	if json.Indent(&b, r, "", "  ") != nil {
		return string(r) + "\n"
	}
	return b.String() + "\n"
}

type rewindCommand struct {
	View string   `arg:"" complete:"view" help:"The name of the view."`
	Key  string   `arg:"" help:"The key of the row, such as seat-A1."`
	To   InStream `required:"" placeholder:"PLACE" help:"The moment: a version, id or time, or so long ago (15m)."`
}

func (c *rewindCommand) run(ctx context.Context, s *session) error {
	m, err := s.model("rewind", c.View)
	if err != nil {
		return err
	}
	return s.withStore(ctx, func(store *eventstore.Store) error {
		state, err := LookAt(ctx, store, m, c.Key, c.To.Point)
		if err != nil {
			return err
		}
		if s.out.asJSON {
			return s.out.print(stateRow(state))
		}
		_, err = s.out.w.WriteString(stateRow(state).text())
		return err
	})
}
