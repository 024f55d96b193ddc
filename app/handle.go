package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"golang.org/x/sync/errgroup"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/eventstore"
	"github.com/weir-es/weir/internal/crash"
	"github.com/weir-es/weir/transport"
)

const (
	// maxHandled is how often an event may fail before it is put away.
	maxHandled = 5
	// handleLimit is how long a handler may take for one event.
	handleLimit = time.Minute
	// rememberFor is how long an event is known to have been handled.
	rememberFor = 30 * 24 * time.Hour
	// complainEvery is how often at most it is logged that nothing can be handled.
	complainEvery = 10 * time.Second
	// forgetEvery is how often what is older is forgotten.
	forgetEvery = 10 * time.Minute
)

// Handler deals with the committed events of another service, or of this one, each
// once: what Handle does through tx is committed together with the note that the
// event was handled, or not at all.
//
// Events of one stream come one after the other in the order of versions, those of
// different streams at the same time. One that fails is tried again with pauses; after
// five failures, or at once where it cannot be decoded, it is kept whole as a dead
// letter, and what is behind it goes on.
type Handler struct {
	// Name is 1 to 48 of a-z, 0-9 and _. What was handled is known under it: under
	// another name everything that the log stream still holds is handled once more.
	Name string
	// From is the namespace of the service whose events they are. Default our own.
	From string
	// Categories leaves out the streams of all others; the broker does not send
	// them. Default nothing is left out.
	Categories []string
	// Types leaves out all other events. They must be registered. Default every
	// type that is.
	Types []string
	// Handle is given the event and its Go value, once per value where an upcast
	// makes several of one event. It must not commit or roll back tx, has a minute,
	// and whatever it does elsewhere may happen again. What it appends gets ids that
	// are derived from the event's, so that they are the same each time:
	//
	//	m, err := types.Encode(weir.Stream("invoice", order), Invoiced{order})
	//	m.ID = weir.Derive(event.ID, 0, "billing")
	//	m.Metadata.Causation = event.ID.String()
	//	_, err = store.AppendTx(ctx, tx, eventstore.Append{Stream: m.Stream, Expected: weir.AnyVersion, Messages: []weir.Message{m}})
	Handle func(ctx context.Context, tx pgx.Tx, event weir.Event, value any) error
	// Workers is how many events are handled at once. Default 8.
	Workers int
	// Remember is for how long an event is known to have been handled. Default 30
	// days. It must be longer than the log stream keeps events, and than the
	// furthest that its service may be told to publish again.
	Remember time.Duration
}

// check returns an error if the definition cannot be used.
func (h Handler) check(types *weir.Registry) error {
	switch {
	case len(h.Name) < 1 || len(h.Name) > 48 || strings.Trim(h.Name, "abcdefghijklmnopqrstuvwxyz0123456789_") != "":
		return fmt.Errorf("handler %.60q: a name is 1 to 48 of a-z, 0-9 and _", h.Name)
	case h.Handle == nil:
		return errors.New("handler " + h.Name + " has no Handle")
	}
	for _, name := range h.Types {
		if !types.Knows(name) {
			return fmt.Errorf("handler %s: type %q: %w", h.Name, name, weir.ErrUnknownType)
		}
	}
	return nil
}

// handler is a Handler at work.
type handler struct {
	Handler
	store *eventstore.Store
	types *weir.Registry
	count *counts
	log   *slog.Logger

	mu         sync.Mutex
	failures   map[weir.ID]int // of the events that are under way
	complained time.Time
}

// handle deals with the events that a handler is for until ctx ends; then it returns
// nil. What is wrong with the definition is returned, everything else is tried again.
// One instance at a time: events of one stream would overtake each other, though each
// were still handled once.
func (r *run) handle(ctx context.Context, h Handler) error {
	if err := h.check(r.types); err != nil {
		return err
	}
	h.Remember = cmp.Or(h.Remember, rememberFor)
	k := &handler{Handler: h, store: r.Store, types: r.types, count: &r.count, log: r.config.Logger, failures: map[weir.ID]int{}}
	var g errgroup.Group
	g.Go(func() error { return k.receive(ctx, r.broker, r.config.Namespace+"_"+h.Name) })
	g.Go(func() error { return k.forget(ctx) })
	return g.Wait()
}

// receive subscribes, again and again if need be.
func (k *handler) receive(ctx context.Context, broker *transport.Conn, durable string) error {
	subscription := transport.Subscription{Namespace: k.From, Name: durable, Categories: k.Categories, Workers: k.Workers}
	wait := backoff.NewExponentialBackOff()
	for {
		err := broker.Subscribe(ctx, subscription, k.deal)
		if ctx.Err() != nil {
			return nil
		}
		k.log.Warn("a handler has to wait", "handler", k.Name, "error", err)
		if !sleep(ctx, wait.NextBackOff()) {
			return nil
		}
	}
}

// forget keeps the table of what was handled bounded.
func (k *handler) forget(ctx context.Context) error {
	for sleep(ctx, forgetEvery) {
		if _, err := k.store.ForgetProcessed(ctx, k.Name, time.Now().Add(-k.Remember)); err != nil && ctx.Err() == nil {
			k.log.Warn("cannot forget what was handled", "handler", k.Name, "error", err)
		}
	}
	return nil
}

// deal handles an event or puts it away; then it may be acknowledged.
func (k *handler) deal(ctx context.Context, d *transport.Delivery) error {
	if d.Err != nil && !k.isOurs(d) {
		return nil
	}
	if d.Err != nil {
		return k.bury(ctx, d, d.Err)
	}
	if !k.wants(d.Event.Type) {
		return nil
	}
	_ = weir.Observe(d.Event.ID) // what follows from it sorts after it, unless its id is absurd
	values, err := k.decode(d.Event)
	if err != nil {
		return k.bury(ctx, d, err)
	}
	err = k.once(ctx, d.Event, values)
	if err == nil || ctx.Err() != nil {
		return err
	}
	if !isFault(err) {
		k.complain(err)
		return err
	}
	if k.failed(d.Event.ID) >= maxHandled {
		return k.bury(ctx, d, err)
	}
	k.log.Warn("an event was not handled, will be tried again", "handler", k.Name, "stream", d.Event.Stream,
		"version", d.Event.Version, "event", d.Event.ID, "error", err)
	return err
}

// complain logs once in a while that nothing can be handled at present.
func (k *handler) complain(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if time.Since(k.complained) > complainEvery {
		k.complained = time.Now()
		k.log.Warn("events cannot be handled now, will be tried again", "handler", k.Name, "error", err)
	}
}

// isOurs: an event that came without its payload may be of a type that is left out.
func (k *handler) isOurs(d *transport.Delivery) bool {
	return d.Event.Type == "" || k.wants(d.Event.Type)
}

func (k *handler) wants(name string) bool {
	if len(k.Types) > 0 {
		return slices.Contains(k.Types, name)
	}
	return k.types.Knows(name)
}

// decode calls the user's code; a panic is that event's failure.
func (k *handler) decode(e weir.Event) (values []any, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("decoding panicked: %v", p)
		}
	}()
	return k.types.DecodeAll(e.Message)
}

// once handles an event in one transaction with the note that it was handled, unless
// there is such a note.
func (k *handler) once(ctx context.Context, e weir.Event, values []any) error {
	ctx, cancel := context.WithTimeout(ctx, handleLimit)
	defer cancel()
	counter := &k.count.repeated
	err := pgx.BeginFunc(ctx, k.store.Pool(), func(tx pgx.Tx) error {
		first, err := k.store.Processed(ctx, tx, k.Name, e.ID)
		if err != nil || !first {
			return err
		}
		counter = &k.count.handled
		crash.At(crash.HandleNoted)
		e.IsNew = true
		defer crash.At(crash.HandleActed)
		return k.each(ctx, tx, e, values)
	})
	if err == nil {
		counter.Add(1)
		crash.At(crash.HandleCommitted)
		k.succeeded(e.ID)
	}
	return err
}

// handlerError is what went wrong in Handle.
type handlerError struct{ err error }

func (e *handlerError) Error() string { return e.err.Error() }
func (e *handlerError) Unwrap() error { return e.err }

// each hands over the values of an event.
func (k *handler) each(ctx context.Context, tx pgx.Tx, e weir.Event, values []any) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &handlerError{fmt.Errorf("the handler panicked: %v", p)}
		}
	}()
	for _, value := range values {
		err := k.Handle(ctx, tx, e, value)
		switch {
		case err != nil && tx.Conn().IsClosed() && ctx.Err() == nil:
			return err // it is not the event's fault
		case err != nil:
			return &handlerError{err}
		}
	}
	return nil
}

// failed counts a failure of an event, and returns how many there are.
func (k *handler) failed(id weir.ID) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.failures[id]++
	return k.failures[id]
}

func (k *handler) succeeded(id weir.ID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.failures, id)
}

// isFault tells a failure of the event from everything that is not its doing, such as
// a database that is away. A statement that takes too long is the handler's own.
func isFault(err error) bool {
	const timedOut = "57014"
	var own *handlerError
	var pg *pgconn.PgError
	switch {
	case errors.As(err, &pg) && pg.Code != timedOut && eventstore.IsTransient(pg):
		return false
	case errors.As(err, &own):
		return true
	}
	return eventstore.IsRefused(err)
}

// bury keeps an event that cannot be handled, whole.
func (k *handler) bury(ctx context.Context, d *transport.Delivery, why error) error {
	header := fmt.Appendf(headerBytes(d), "%s: %s\r\n", transport.HeaderHandler, k.Name)
	letter := eventstore.DeadLetter{Reason: unhandled(why), Error: "handler " + k.Name + ": " + why.Error(),
		Subject: d.Subject, Header: header, Data: d.Data}
	if err := k.store.KeepDeadLetter(ctx, letter); err != nil {
		return err
	}
	k.succeeded(d.Event.ID)
	k.count.deadLetters.Add(1)
	k.log.Error("an event cannot be handled, kept as a dead letter", "handler", k.Name, "subject", d.Subject,
		"event", d.Event.ID, "error", why)
	return nil
}

// unhandled is the word of the closed set for why an event was put away.
func unhandled(err error) string {
	var omitted *transport.OmittedError
	var own *handlerError
	switch {
	case errors.As(err, &omitted):
		return "too_large"
	case errors.As(err, &own), eventstore.IsRefused(err):
		return "max_attempts"
	}
	return "serialization"
}
