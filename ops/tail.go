package ops

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/eventstore"
)

// TailOptions say which events of the log to show.
type TailOptions struct {
	Category []string `placeholder:"NAME" help:"Only events of streams of these categories."`
	Type     []string `placeholder:"NAME" help:"Only events of these types."`
	Since    InLog    `placeholder:"PLACE" help:"Begin at this position, id or time, or so long ago (15m), and not with the last events."`
	Last     int      `short:"n" default:"10" help:"How many of the last events to begin with; 0 for none."`
	Follow   bool     `short:"f" help:"Go on with what is appended, until Ctrl-C."`
}

// Tail reads the end of the log in its order, no further than the horizon. When it
// follows it ends only with ctx, which is no error, or with one that time does not
// mend; a database that is away is waited for, and nothing is left out or shown
// twice.
func Tail(ctx context.Context, s *eventstore.Store, o TailOptions) iter.Seq2[weir.Event, error] {
	return func(yield func(weir.Event, error) bool) {
		t := &tail{Store: s, o: o, yield: yield}
		err := t.begin(ctx)
		if err == nil && o.Follow {
			err = t.follow(ctx)
		}
		stopped := o.Follow && ctx.Err() != nil
		if err != nil && !stopped && !t.done {
			yield(weir.Event{}, fmt.Errorf("tail: %w", err))
		}
	}
}

// tail is one reading of the end of the log.
type tail struct {
	*eventstore.Store
	o     TailOptions
	yield func(weir.Event, error) bool
	done  bool          // the reader has enough
	at    weir.Position // everything at or below was shown
}

// errEnough ends a tail whose reader has enough.
var errEnough = fmt.Errorf("the reader has enough")

func (t *tail) show(e weir.Event) error {
	if !t.yield(e, nil) {
		t.done = true
		return errEnough
	}
	t.at = e.Position
	return nil
}

// begin shows what is there.
func (t *tail) begin(ctx context.Context) error {
	horizon, _, err := t.ReadHorizon(ctx)
	if err != nil {
		return err
	}
	switch {
	case horizon == 0:
	case t.o.Since.Point != eventstore.Point{}:
		err = t.read(ctx, t.o.Since.Point, horizon)
	case t.o.Last > 0:
		err = t.last(ctx, horizon)
	}
	t.at = max(horizon, t.o.Since.Position-1)
	return err
}

func (t *tail) read(ctx context.Context, from eventstore.Point, to weir.Position) error {
	r := eventstore.Read{From: from, AsOf: eventstore.AtPosition(to), Types: t.o.Type, Categories: t.o.Category}
	for e, err := range t.ReadLog(ctx, r) {
		if err != nil {
			return err
		}
		if err := t.show(e); err != nil {
			return err
		}
	}
	return nil
}

// last shows the last events, which are read backward.
func (t *tail) last(ctx context.Context, to weir.Position) error {
	var events []weir.Event
	r := eventstore.Read{Backward: true, AsOf: eventstore.AtPosition(to), Types: t.o.Type, Categories: t.o.Category, Limit: t.o.Last}
	for e, err := range t.ReadLog(ctx, r) {
		if err != nil {
			return err
		}
		events = append(events, e)
	}
	for _, e := range slices.Backward(events) {
		if err := t.show(e); err != nil {
			return err
		}
	}
	return nil
}

// How often to look for more, and for a database that is away.
const (
	tailPoll  = 100 * time.Millisecond
	tailRetry = time.Second
)

// follow shows what comes.
func (t *tail) follow(ctx context.Context) error {
	away := false
	for {
		err := t.next(ctx)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil && !eventstore.IsTransient(err):
			return err
		case err != nil && !away:
			t.Logger().Warn("the database is away, trying again until it is back", "error", err)
		case err == nil && away:
			t.Logger().Warn("the database is back")
		}
		away = err != nil
		wait(ctx, map[bool]time.Duration{false: tailPoll, true: tailRetry}[away])
	}
}

func (t *tail) next(ctx context.Context) error {
	looking, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	horizon, _, err := t.ReadHorizon(looking)
	if err != nil || horizon <= t.at {
		return err
	}
	if err := t.read(ctx, eventstore.AtPosition(t.at+1), horizon); err != nil {
		return err
	}
	t.at = horizon
	return nil
}

// wait returns after d, or when ctx ends.
func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

func (o *TailOptions) run(ctx context.Context, s *session) error {
	return s.withStore(ctx, func(store *eventstore.Store) error {
		for e, err := range Tail(ctx, store, *o) {
			if err == nil {
				err = s.out.print(eventRow(e))
			}
			if err == nil && o.Follow {
				err = s.out.flush()
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}
