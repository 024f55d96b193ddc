package ops

import (
	"context"
	"errors"
	"time"

	"github.com/weir-es/weir/eventstore"
)

// DoctorOptions say how closely to look.
type DoctorOptions struct {
	Full     bool          `help:"Read the whole log and every row, and not only the last 100,000 positions."`
	Patience time.Duration `default:"2s" help:"How long appends may be open before somebody is said to hold the horizon."`
}

// Checkup is what the doctor found.
type Checkup struct {
	OK     bool                 `json:"ok"`
	Checks []eventstore.Finding `json:"checks"`
}

// Doctor looks whether a store is in order. With an error it could not look at
// everything.
func Doctor(ctx context.Context, s *eventstore.Store, o DoctorOptions) (Checkup, error) {
	findings, err := s.Doctor(ctx, eventstore.Checkup{Full: o.Full, Patience: o.Patience})
	c := Checkup{OK: true, Checks: findings}
	for _, f := range findings {
		c.OK = c.OK && f.OK
	}
	return c, err
}

// checkLine is a line of a checkup as a table: a finding, or what belongs to it.
type checkLine struct {
	Check string `json:"check"`
	State string `json:"state"`
	Found string `json:"found"`
}

func (c Checkup) table() (lines []any) {
	for _, f := range c.Checks {
		state := "ok"
		if !f.OK {
			state = "PROBLEM"
		}
		lines = append(lines, checkLine{f.Check, state, f.Found})
		for _, detail := range f.Details {
			lines = append(lines, checkLine{Found: "- " + detail})
		}
		if f.Todo != "" {
			lines = append(lines, checkLine{Found: "to do: " + f.Todo})
		}
	}
	return lines
}

func (o *DoctorOptions) run(ctx context.Context, s *session) error {
	c, err := s.examine(ctx, o)
	if c.Checks == nil {
		return err
	}
	if err := errors.Join(err, s.out.print(c)); err != nil {
		return &unableError{err}
	}
	if !c.OK {
		return errProblems
	}
	return nil
}

// examine opens the store and looks. A store that cannot be opened because its
// sequence is behind is a finding too.
func (s *session) examine(ctx context.Context, o *DoctorOptions) (Checkup, error) {
	store, err := s.open(ctx)
	var behind *eventstore.SequenceBehindError
	if errors.As(err, &behind) {
		return Checkup{Checks: []eventstore.Finding{{Check: "sequence", Found: behind.Error() + "; nothing else was looked at", Todo: behind.Mend()}}}, nil
	}
	if err != nil {
		return Checkup{}, err
	}
	defer store.Close()
	return Doctor(ctx, store, *o)
}
