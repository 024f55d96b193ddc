package ops

import (
	"context"
	"encoding/json"
	"iter"
	"time"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/eventstore"
	"github.com/weir-es/weir/projection"
)

// Explain reads the events that made a row, in the order in which they were folded.
// It ends with an error that is weir.ErrNotFound when there is no such row.
func Explain(ctx context.Context, s *eventstore.Store, m projection.Model, key string) iter.Seq2[weir.Event, error] {
	return func(yield func(weir.Event, error) bool) {
		n := 0
		for e, err := range m.Explain(ctx, s, key) {
			if !yield(e, err) || err != nil {
				return
			}
			n++
		}
		if n == 0 {
			yield(weir.Event{}, noRow(m, key))
		}
	}
}

// explainedRow is an event as it is printed when it explains something: as JSON it
// is a line of an export.
type explainedRow weir.Event

func (r explainedRow) appendJSON(b []byte) []byte { return eventRow(r).appendJSON(b) }

// explainedCells are what a table has room for. Time is that of emission.
type explainedCells struct {
	Stream      weir.StreamID   `json:"stream"`
	Version     weir.Version    `json:"version"`
	Time        time.Time       `json:"time"`
	ID          weir.ID         `json:"id"`
	Type        string          `json:"type"`
	Causation   string          `json:"causation"`
	Correlation string          `json:"correlation"`
	Data        json.RawMessage `json:"data"`
}

func (r explainedRow) table() []any {
	m := r.Metadata
	return []any{explainedCells{r.Stream, r.Version, r.ID.Timestamp(), r.ID, r.Type, m.Causation, m.Correlation, shown(weir.Event(r))}}
}

type explainCommand struct {
	View string `arg:"" complete:"view" help:"The name of the view."`
	Key  string `arg:"" help:"The key of the row, such as seat-A1."`
}

func (c *explainCommand) run(ctx context.Context, s *session) error {
	m, err := s.model("explain", c.View)
	if err != nil {
		return err
	}
	return s.withStore(ctx, func(store *eventstore.Store) error {
		for e, err := range Explain(ctx, store, m, c.Key) {
			if err != nil {
				return err
			}
			if err := s.out.print(explainedRow(e)); err != nil {
				return err
			}
		}
		return nil
	})
}
