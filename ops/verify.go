package ops

import (
	"context"
	"errors"
	"fmt"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/eventstore"
	"github.com/weir-es/weir/projection"
)

// Verification says whether a view is what the log says.
type Verification struct {
	View string `json:"view"`
	OK   bool   `json:"ok"`
	// Rows were compared with Events, but not those of Behind streams, which are
	// parked or rewound at the moment.
	Rows   int64 `json:"rows"`
	Events int64 `json:"events"`
	Behind int64 `json:"behind"`
	// Wrong counts all rows that differ; Differences are the first thousand.
	Wrong       int64        `json:"wrong"`
	Differences []Difference `json:"differences,omitempty"`
	// Fault is why the comparison ended early: an event that cannot be folded.
	Fault string `json:"fault,omitempty"`
}

// Difference is a row that is not what the log says; see projection.Difference.
type Difference struct {
	Key  string       `json:"key"`
	What string       `json:"what"`
	Row  weir.Version `json:"row"` // the version of the row
	Log  weir.Version `json:"log"` // the version that the log makes
}

// Verify compares every row of a view with the log. It writes nothing. An event that
// cannot be folded is a finding and no error.
func Verify(ctx context.Context, s *eventstore.Store, m projection.Model) (Verification, error) {
	found, err := m.Verify(ctx, s)
	v := Verification{View: m.ProjectionName(), Rows: found.Rows, Events: found.Events, Behind: found.Behind, Wrong: found.Wrong}
	for _, d := range found.Differences {
		v.Differences = append(v.Differences, Difference(d))
	}
	var event *projection.RebuildEventError
	if errors.As(err, &event) {
		v.Fault, err = event.Error(), nil
	}
	v.OK = v.Wrong == 0 && v.Fault == ""
	return v, err
}

// verifyLine is a line of a verification as a table.
type verifyLine struct {
	View  string `json:"view"`
	State string `json:"state"`
	Found string `json:"found"`
}

func (v Verification) table() (lines []any) {
	add := func(text string, arguments ...any) {
		lines = append(lines, verifyLine{Found: fmt.Sprintf(text, arguments...)})
	}
	head := verifyLine{v.View, "ok", fmt.Sprintf("%d rows are what %d events make", v.Rows, v.Events)}
	switch {
	case v.Fault != "":
		head.State, head.Found = "PROBLEM", "the rows could not be compared with the log"
	case !v.OK:
		head.State, head.Found = "PROBLEM", fmt.Sprintf("%d of %d rows are not what %d events make", v.Wrong, v.Rows, v.Events)
	}
	lines = append(lines, head)
	if v.Fault != "" {
		add("- %s; after %d events", v.Fault, v.Events)
	}
	for _, d := range v.Differences {
		add("- %s", projection.Difference(d))
	}
	if more := v.Wrong - int64(len(v.Differences)); more > 0 {
		add("- and %d more", more)
	}
	if v.Behind > 0 {
		add("- %d streams are parked or being rewound, and were passed over", v.Behind)
	}
	switch {
	case v.Fault != "":
		add("to do: make the fold take the event")
	case !v.OK:
		add("to do: find out who writes to the table; then rebuild %s, or some rows of it with --key", v.View)
	}
	return lines
}

type verifyCommand struct {
	View string `arg:"" optional:"" complete:"view" help:"The name of the view. Default all views of this program."`
}

func (c *verifyCommand) run(ctx context.Context, s *session) error {
	models, err := s.someModels("verify", c.View)
	if err != nil {
		return err
	}
	return s.withStore(ctx, func(store *eventstore.Store) error {
		ok := true
		for _, m := range models {
			v, err := Verify(ctx, store, m)
			if err != nil {
				return err
			}
			if err := errors.Join(s.out.print(v), s.out.flush()); err != nil {
				return err
			}
			ok = ok && v.OK
		}
		if !ok {
			return errProblems
		}
		return nil
	})
}
