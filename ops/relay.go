package ops

import (
	"context"
	"fmt"
	"time"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/app"
	"github.com/weir-es/weir/eventstore"
)

// RelayRow says how far the relay has published the log.
type RelayRow struct {
	// Position: everything at or below it is published. 0 where it has not run.
	Position weir.Position `json:"position"`
	Head     weir.Position `json:"head"`
	// LagEvents are those above Position; of some of them it may be known already
	// that they are published.
	LagEvents int64 `json:"lag_events"`
}

// Relay says how far the relay is. It asks the store alone.
func Relay(ctx context.Context, s *eventstore.Store) (row RelayRow, err error) {
	marks, err := s.Checkpoints(ctx, app.RelayConsumer)
	if err != nil {
		return row, err
	}
	if _, row.Head, err = s.ReadHorizon(ctx); err != nil {
		return row, err
	}
	row.Position = row.Head
	for shard := range s.Shards() {
		row.Position = min(row.Position, marks[weir.Shard(shard)])
	}
	row.Position = max(row.Position, 0) // sent back before it ran
	row.LagEvents, err = s.CountRange(ctx, row.Position, row.Head, nil)
	return row, err
}

// RelayedAgainRow says what the relay was told to publish again.
type RelayedAgainRow struct {
	// After: every event above this position is published again.
	After  weir.Position `json:"after"`
	Events int64         `json:"events"`
	// Shards are those that had been published further.
	Shards int64 `json:"shards"`
}

// RelayAgain has the relay publish everything above a position again, where it has
// been. A relay that runs notices within seconds. What the log stream still knows,
// which it does for two minutes, it does not take twice. Safe to repeat.
func RelayAgain(ctx context.Context, s *eventstore.Store, after weir.Position) (row RelayedAgainRow, err error) {
	row.After = after
	if row.Events, err = relayed(ctx, s, after); err != nil {
		return row, err
	}
	row.Shards, err = s.RewindCheckpoints(ctx, app.RelayConsumer, after)
	return row, err
}

// relayed counts the events above a position that the relay may have published.
func relayed(ctx context.Context, s *eventstore.Store, after weir.Position) (int64, error) {
	marks, err := s.Checkpoints(ctx, app.RelayConsumer)
	if err != nil {
		return 0, err
	}
	highest := after
	for _, mark := range marks {
		highest = max(highest, mark)
	}
	return s.CountRange(ctx, after, highest, nil)
}

// Since is a place in the log, written as the position of its first event or as a
// time: when events were stored, not when they were emitted.
type Since struct {
	after weir.Position
	time  time.Time // if that is how it was written
}

// UnmarshalText reads a place.
func (p *Since) UnmarshalText(text []byte) error {
	if n := number(text); n > 0 {
		p.after = weir.Position(n - 1)
		return nil
	}
	if ago, err := time.ParseDuration(string(text)); err == nil && ago > 0 {
		p.time = time.Now().Add(-ago)
		return nil
	}
	for _, layout := range layouts {
		if t, err := time.Parse(layout, string(text)); err == nil {
			p.time = t
			return nil
		}
	}
	return fmt.Errorf("%.60q is no place: write a position from 1, a time such as 2026-01-31T12:00:00Z, or how long ago, such as 15m", text)
}

// position is the one below the place.
func (p *Since) position(ctx context.Context, s *eventstore.Store) (weir.Position, error) {
	if p.time.IsZero() {
		return p.after, nil
	}
	return s.PositionBefore(ctx, p.time)
}

type relayCommand struct {
	From *Since `placeholder:"PLACE" help:"Publish again from here: a position, a time when events were stored, or so long ago (15m)."`
	Yes  bool   `help:"Do not ask."`
}

func (c *relayCommand) run(ctx context.Context, s *session) error {
	return s.withStore(ctx, func(store *eventstore.Store) error {
		if c.From == nil {
			row, err := Relay(ctx, store)
			if err != nil {
				return err
			}
			return s.out.print(row)
		}
		return c.again(ctx, s, store)
	})
}

func (c *relayCommand) again(ctx context.Context, s *session, store *eventstore.Store) error {
	after, err := c.From.position(ctx, store)
	if err != nil {
		return err
	}
	events, err := relayed(ctx, store, after)
	if err != nil {
		return err
	}
	plan := fmt.Sprintf("the relay publishes %d events above position %d once more; handlers that remember them do nothing with them", events, after)
	if err := s.consent(ctx, c.Yes, plan); err != nil {
		return err
	}
	row, err := RelayAgain(ctx, store, after)
	if err != nil {
		return err
	}
	return s.out.print(row)
}
