package eventstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-es/weir"
)

// Checkup says how closely Doctor looks. The zero value takes seconds, however
// large the store is.
type Checkup struct {
	// Full reads the whole log and every row, in pieces, at some hundred
	// thousand events a second. Default the last 100,000 positions, and as
	// many streams and rows.
	Full bool
	// Patience is how long to wait for the horizon to pass what is in flight.
	// Default 2 s. Longer where appends in the application's own transactions
	// are slow by design.
	Patience time.Duration
}

// Finding is what one check of Doctor found.
type Finding struct {
	Check string `json:"check"`
	OK    bool   `json:"ok"`
	// Found is what it saw, in a sentence.
	Found string `json:"found"`
	// Details name what is wrong, or who is meant: at most twenty.
	Details []string `json:"details,omitempty"`
	// Todo is what to do about it. Empty if it is OK.
	Todo string `json:"todo,omitempty"`
}

// Limits of a look.
const (
	doctorSpan    = 100_000 // positions, streams or rows of one statement
	doctorDetails = 20
)

// Doctor looks whether what must be true of a store is true, and who is in the
// way. It changes nothing, needs the right to read only, and may run beside
// anything. It returns what it found in a fixed order; when it could not look at
// something the error says so, and the finding too.
func (s *Store) Doctor(ctx context.Context, c Checkup) ([]Finding, error) {
	d := &doctor{Store: s, full: c.Full, patience: orDefault(c.Patience, 2*time.Second)}
	if err := d.pool.QueryRow(ctx, d.sql.Horizon, d.lock, int64(0)).Scan(nil, &d.head); err != nil {
		return nil, fmt.Errorf("examine schema %q: %w", s.config.Schema, err)
	}
	var findings []Finding
	var failed []error
	for _, c := range d.checks() {
		f, err := c.look(ctx)
		if ctx.Err() != nil {
			return nil, fmt.Errorf("examine %s: %w", c.name, ctx.Err())
		}
		var back *WentBackError
		switch {
		case errors.As(err, &back):
			f = Finding{Found: err.Error(), Todo: "start this process again, and look which backup the database was restored from"}
		case err != nil:
			f = Finding{Found: "could not look: " + err.Error(), Todo: "see to it that the role of this look may read the tables, and look again"}
			failed = append(failed, fmt.Errorf("examine %s: %w", c.name, err))
		}
		f.Check, f.OK = c.name, f.Todo == ""
		findings = append(findings, f)
	}
	return findings, errors.Join(failed...)
}

// doctor is one look.
type doctor struct {
	*Store
	full     bool
	patience time.Duration
	head     weir.Position // when the look began
	drawn    weir.Position // set by checkSequence
}

// check is OK if the finding says nothing that is to be done.
type check struct {
	name string
	look func(context.Context) (Finding, error)
}

func (d *doctor) checks() []check {
	return []check{
		{"schema", d.checkGuards},
		{"sequence", d.checkSequence},
		{"streams", d.checkStreams},
		{"ids", d.checkIDs},
		{"horizon", d.checkHorizon},
		{"checkpoints", d.checkCheckpoints},
		{"views", d.checkViews},
		{"parked", d.checkParked},
		{"dead_letters", d.checkDeadLetters},
		{"instances", d.checkInstances},
		{"leases", d.checkLeases},
	}
}

// spans calls look with the parts of the log to look at, the oldest first, until
// it has seen enough.
func (d *doctor) spans(look func(after, to weir.Position) (more bool, err error)) error {
	after := max(0, d.head-doctorSpan)
	if d.full {
		after = 0
	}
	for after < d.head {
		to := min(after+doctorSpan, d.head)
		if more, err := look(after, to); err != nil || !more {
			return err
		}
		after = to
	}
	return nil
}

// where says what was looked at.
func (d *doctor) where() string {
	if d.full || d.head <= doctorSpan {
		return fmt.Sprintf("the whole log up to position %d", d.head)
	}
	return fmt.Sprintf("the log from position %d to %d", d.head-doctorSpan+1, d.head)
}

// rest is how many more details are wanted.
func (f *Finding) rest() int { return doctorDetails - len(f.Details) }

func (f *Finding) add(format string, args ...any) {
	if f.rest() > 0 {
		f.Details = append(f.Details, fmt.Sprintf(format, args...))
	}
}

// blame makes a finding of its details: fine if there are none.
func (f *Finding) blame(fine, wrong, todo string) {
	switch n := len(f.Details); {
	case n == 0:
		f.Found = fine
		return
	case n == doctorDetails:
		wrong += ", and perhaps more"
	}
	f.Found, f.Todo = wrong, todo
}

// each reads rows into targets.
func (d *doctor) each(ctx context.Context, sql string, args, targets []any, act func()) error {
	rows, err := d.pool.Query(ctx, sql, args...)
	if err != nil {
		return err
	}
	_, err = pgx.ForEachRow(rows, targets, func() error { act(); return nil })
	return err
}
