package projection

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/eventstore"
)

// Handler runs the user's SQL for each event, once, in the transaction of its
// checkpoint. It runs shard by shard; within a batch events come in the order of
// ids.
type Handler struct {
	// Name is 1 to 48 of a-z, 0-9 and _.
	Name string
	// Types limits the handler to these event types. Default: every type that
	// the application registered.
	Types []string
	// Unknown is what to do with events of types that are not registered.
	// Default Skip.
	Unknown Unknown
	// WholeLog gives the handler all events in the order of the log, under one
	// lease, instead of shard by shard.
	WholeLog bool
	// Handle is given the event and its Go value, once per value where an upcast
	// makes several of one event. What it does through tx is
	// committed with the checkpoint or not at all; it must not commit or roll
	// back tx, and whatever it does elsewhere may happen again.
	Handle func(ctx context.Context, tx pgx.Tx, event weir.Event, value any) error
	// Setup creates what Handle needs, such as a table. May be nil. Must be
	// safe to repeat.
	Setup func(ctx context.Context, s *eventstore.Store) error
}

// ProjectionName returns Name.
func (h Handler) ProjectionName() string { return h.Name }

// FollowsWholeLog returns WholeLog.
func (h Handler) FollowsWholeLog() bool { return h.WholeLog }

func (h Handler) wants() (typeSet, Unknown) { return h.Types, h.Unknown }

// Prepare checks the definition and runs Setup.
func (h Handler) Prepare(ctx context.Context, s *eventstore.Store) error {
	if err := checkName(h.Name); err != nil {
		return err
	}
	if h.Handle == nil {
		return errors.New("handler " + h.Name + " has no Handle")
	}
	if h.Setup == nil {
		return nil
	}
	if err := h.Setup(ctx, s); err != nil {
		return fmt.Errorf("set up handler %s: %w", h.Name, err)
	}
	return nil
}

// handlerStep hands one batch to a handler.
type handlerStep struct {
	handler Handler
	items   []item
}

func (h Handler) begin(_ *job, items []item) step { return &handlerStep{h, items} }

func (s *handlerStep) queueReads(*pgx.Batch) {}

func (s *handlerStep) hooked() bool { return true } // its checkpoint is compared before the commit

func (s *handlerStep) after(context.Context, pgx.Tx) error { return nil }

func (s *handlerStep) finish(ctx context.Context, tx pgx.Tx, _ *pgx.Batch) error {
	for _, i := range s.items {
		if !i.handled {
			continue
		}
		if err := s.handle(ctx, tx, i); err != nil {
			return err
		}
	}
	return nil
}

func (s *handlerStep) handle(ctx context.Context, tx pgx.Tx, i item) (err error) {
	if i.err != nil {
		return &eventError{i.Event, i.err}
	}
	defer func() {
		if p := recover(); p != nil {
			err = &eventError{i.Event, fmt.Errorf("the handler panicked: %v", p)}
		}
	}()
	for _, value := range i.values {
		err := s.handler.Handle(ctx, tx, i.Event, value)
		switch {
		case err != nil && tx.Conn().IsClosed():
			return err // it is not the event's fault
		case err != nil:
			return &eventError{i.Event, err}
		}
	}
	return nil
}
