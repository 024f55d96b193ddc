package ops

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/eventstore"
	"github.com/weir-es/weir/projection"
)

// RebuiltRow says what became of a rebuild; see projection.Rebuilt.
type RebuiltRow struct {
	View    string  `json:"view"`
	Edition int64   `json:"edition"`
	Events  int64   `json:"events"`
	Rows    int64   `json:"rows"`
	Added   int64   `json:"added"`
	Removed int64   `json:"removed"`
	Changed int64   `json:"changed"`
	Seconds float64 `json:"seconds"`
}

// Rebuild folds the whole log into a new edition of a view, and puts it in the place
// of the one that serves; see projection.View.Rebuild for its errors and what may be
// repeated.
func Rebuild(ctx context.Context, s *eventstore.Store, m projection.Model, r projection.Rebuild) (RebuiltRow, error) {
	done, err := m.Rebuild(ctx, s, r)
	return RebuiltRow{m.ProjectionName(), done.Edition, done.Events, done.Rows, done.Added, done.Removed, done.Changed,
		float64(done.Took.Milliseconds()) / 1000}, err
}

type rebuildCommand struct {
	View    string  `arg:"" complete:"view" help:"The name of the view."`
	Key     *string `placeholder:"KEY" xor:"what" help:"Only this row, in its place."`
	Restart bool    `xor:"what" help:"Throw away what an interrupted rebuild has done, and begin again."`
	Cancel  bool    `xor:"what" help:"Stop a rebuild, wherever it runs, and throw away what it has done."`
	Yes     bool    `help:"Do not ask."`
}

func (c *rebuildCommand) run(ctx context.Context, s *session) error {
	m, err := s.model("rebuild", c.View)
	if err != nil {
		return err
	}
	return s.withStore(ctx, func(store *eventstore.Store) error {
		status, err := statusOfView(ctx, store, c.View)
		if err != nil {
			return err
		}
		r := rebuilding{c, s, store, m, status}
		switch {
		case c.Cancel:
			return r.cancel(ctx)
		case c.Key != nil:
			return r.key(ctx, *c.Key)
		}
		return r.all(ctx)
	})
}

// rebuilding is one run of the verb.
type rebuilding struct {
	*rebuildCommand
	*session
	store  *eventstore.Store
	model  projection.Model
	status projection.Status // before it
}

// all rebuilds the whole view.
func (r rebuilding) all(ctx context.Context) error {
	counts, err := r.store.Counts(ctx)
	if err != nil {
		return err
	}
	if err := r.consent(ctx, r.Yes, r.plan(counts.Events)); err != nil {
		return err
	}
	p := newProgress(r.Stderr)
	row, err := Rebuild(ctx, r.store, r.model, projection.Rebuild{Restart: r.Restart,
		Progress: func(at projection.Progressed) { p.say(sentence(at)) }})
	p.end()
	if err != nil {
		return r.advise(ctx, err)
	}
	return r.out.print(row)
}

// plan says what a rebuild will do.
func (r rebuilding) plan(events int64) string {
	under := r.status.Rebuilding
	switch {
	case under == nil:
		return fmt.Sprintf("rebuilding view %s reads all %d events again, while the edition that is there goes on", r.View, events)
	case r.Restart:
		return fmt.Sprintf("rebuilding view %s throws away a rebuild that has read %d events, and reads all %d again", r.View, under.Done, events)
	}
	return fmt.Sprintf("rebuilding view %s goes on where it was: %d of %d events are read", r.View, under.Done, max(events, under.Total))
}

func sentence(at projection.Progressed) string {
	if at.Total == 0 {
		return at.Phase
	}
	return fmt.Sprintf("%s: %d of %d events, %d %%", at.Phase, at.Done, at.Total, 100*at.Done/at.Total)
}

// advise adds to an error what to do about it.
func (r rebuilding) advise(ctx context.Context, err error) error {
	command := fmt.Sprintf("%s rebuild %s", r.Name, r.View)
	var event *projection.RebuildEventError
	var running *projection.RebuildRunningError
	var check *projection.CheckError
	switch {
	case errors.Is(err, projection.ErrRebuildCancelled):
		return err
	case ctx.Err() != nil:
		fmt.Fprintf(r.Stderr, "what is done is kept: `%s` goes on, and with --cancel throws it away\n", command)
		return ctx.Err()
	case errors.As(err, &running):
		return fmt.Errorf("%w\nit was last heard of %s ago; `%s --cancel` stops it, wherever it runs", err, time.Since(running.Alive).Round(time.Second), command)
	case errors.As(err, &event):
		return fmt.Errorf("%w\nwhat is done is kept: make the fold take the event, and `%s` goes on. `%s stream %s --from %d -n 1` shows it", err, command, r.Name, event.Stream, event.Version)
	case errors.As(err, &check):
		return fmt.Errorf("%w\nthe old edition still serves; a fold must depend on its events alone, not on time, chance or other tables. `%s --restart` begins again", err, command)
	}
	return err
}

// CancelledRow says what was thrown away.
type CancelledRow struct {
	View      string `json:"view"`
	Cancelled bool   `json:"cancelled"` // false: there was no rebuild
	Events    int64  `json:"events"`    // that it had read
}

func (r rebuilding) cancel(ctx context.Context) error {
	under := r.status.Rebuilding
	if under == nil {
		fmt.Fprintf(r.Stderr, "view %s is not being rebuilt\n", r.View)
		return r.out.print(CancelledRow{View: r.View})
	}
	plan := fmt.Sprintf("cancelling the rebuild of view %s throws away what it has read, %d of %d events", r.View, under.Done, under.Total)
	if err := r.consent(ctx, r.Yes, plan); err != nil {
		return err
	}
	if err := r.model.CancelRebuild(ctx, r.store); err != nil {
		return err
	}
	return r.out.print(CancelledRow{r.View, true, under.Done})
}

// RebuiltKeyRow says what became of the rebuild of one row.
type RebuiltKeyRow struct {
	View string `json:"view"`
	Key  string `json:"key"`
	// Found tells whether the log makes a row of that key, be it one that the fold
	// has deleted; if not, what was there is gone.
	Found bool `json:"found"`
}

// RebuildKey folds one row again, in its place. It ends with an error that is
// weir.ErrNotFound when there was no such row and is none. Safe to repeat.
func RebuildKey(ctx context.Context, s *eventstore.Store, m projection.Model, key string) (RebuiltKeyRow, error) {
	row := RebuiltKeyRow{View: m.ProjectionName(), Key: key}
	before, err := rowsOf(ctx, s, m, key)
	if err != nil {
		return row, err
	}
	if err := m.RebuildKey(ctx, s, key); err != nil {
		return row, err
	}
	after, err := rowsOf(ctx, s, m, key)
	if err == nil && before+after == 0 {
		err = noRow(m, key)
	}
	row.Found = after > 0
	return row, err
}

// rowsOf counts the rows of a key, which is one or none.
func rowsOf(ctx context.Context, s *eventstore.Store, m projection.Model, key string) (n int, err error) {
	const count = "select count(*) from weir.view_name where key = $1"
	return n, s.Pool().QueryRow(ctx, s.Qualify(strings.ReplaceAll(count, "view_name", "view_"+m.ProjectionName())), key).Scan(&n)
}

func (r rebuilding) key(ctx context.Context, key string) error {
	events, err := r.eventsOfKey(ctx, key)
	if err != nil {
		return err
	}
	plan := fmt.Sprintf("rebuilding row %q of view %s reads %d events again; whoever folds into the view waits meanwhile", key, r.View, events)
	if err := r.consent(ctx, r.Yes, plan); err != nil {
		return err
	}
	row, err := RebuildKey(ctx, r.store, r.model, key)
	if err != nil {
		return err
	}
	return r.out.print(row)
}

// eventsOfKey is how many events have to be read for one row.
func (r rebuilding) eventsOfKey(ctx context.Context, key string) (int64, error) {
	if r.model.FollowsWholeLog() {
		counts, err := r.store.Counts(ctx)
		return counts.Events, err
	}
	for e, err := range r.store.ReadStream(ctx, weir.StreamID(key), eventstore.Read{Backward: true, Limit: 1}) {
		return int64(e.Version), err
	}
	return 0, nil
}
