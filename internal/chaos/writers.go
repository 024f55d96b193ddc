package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"golang.org/x/sync/errgroup"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/eventstore"
)

// streams is how many streams the writers share, so that they meet now and then.
const streams = 64

// hand is one writer.
type hand struct {
	*stage
	store *eventstore.Store
	dice  *rand.Rand
}

// crew is how many writers write in one way.
type crew struct {
	name  string
	hands int
	write func(context.Context, *hand) error
}

var crews = []crew{
	{"plain", 3, plain},
	{"grouped", 2, grouped},
	{"pausing", 6, pausing},
	{"savepoints", 4, savepoints},
	{"prepared", 1, prepared},
}

// write lets all writers write until their time is over.
func (s *stage) write(ctx context.Context, processes []*eventstore.Store) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, c := range crews {
		for n := range c.hands {
			name := fmt.Sprintf("%s %d", c.name, n)
			h := &hand{s, processes[n%len(processes)], s.dice(name)}
			g.Go(func() error {
				if err := h.loop(ctx, c.write); err != nil {
					return fmt.Errorf("writer %s: %w", name, err)
				}
				return nil
			})
		}
	}
	return g.Wait()
}

// loop writes again and again: at a walk in the calm part, at a run in the rough one.
func (h *hand) loop(ctx context.Context, write func(context.Context, *hand) error) error {
	for now := time.Now(); now.Before(h.timeline.end()); now = time.Now() {
		if err := write(ctx, h); err != nil && !isKill(err) {
			return err
		}
		slow := 60 * time.Millisecond
		if h.part() == rough {
			slow = 4 * time.Millisecond
		}
		if !pause(ctx, between(h.dice, 0, slow)) {
			return ctx.Err()
		}
	}
	return nil
}

func (h *hand) part() part { return h.timeline.part(time.Now()) }

func message(stream weir.StreamID) weir.Message {
	return weir.Message{ID: weir.NewID(), Stream: stream, Type: "chaos.happened", Data: []byte("{}")}
}

// batch is one to four messages for a random stream at or after place from, and the
// place after it: a transaction that appends more than once goes in the order of
// names.
func (h *hand) batch(from int) (a eventstore.Append, next int) {
	place := from + h.dice.IntN(streams-from)
	a = eventstore.Append{Stream: weir.Stream("chaos", fmt.Sprintf("%02d", place)), Expected: weir.AnyVersion}
	for range 1 + h.dice.IntN(4) {
		a.Messages = append(a.Messages, message(a.Stream))
	}
	return a, place + 1
}

// plain appends and waits for the answer. The store itself repeats what a kill
// left unknown.
func plain(ctx context.Context, h *hand) error {
	a, _ := h.batch(0)
	_, err := h.store.AppendAll(ctx, a)
	if err == nil {
		h.ledger.ack(a.Messages...)
	}
	return err
}

// grouped appends from many goroutines at once, which share transactions.
func grouped(ctx context.Context, h *hand) error {
	var all sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		one := &hand{h.stage, h.store, rand.New(rand.NewPCG(h.dice.Uint64(), 0))}
		all.Go(func() { errs[i] = plain(ctx, one) })
	}
	all.Wait()
	for _, err := range errs {
		if err != nil && !isKill(err) {
			return err
		}
	}
	return nil
}

// inTx runs act in a transaction of the caller's own, waits a little, and commits or,
// one time in ten, does not. It notes what came of the messages that act returns.
func (h *hand) inTx(ctx context.Context, act func(pgx.Tx) ([]weir.Message, error)) error {
	tx, err := h.store.Pool().Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback(context.WithoutCancel(ctx))
	messages, err := act(tx)
	if err != nil {
		h.ledger.lose(messages...)
		return err
	}
	pause(ctx, h.linger())
	if h.dice.IntN(10) == 0 {
		h.ledger.lose(messages...)
		return tx.Rollback(ctx)
	}
	if err := tx.Commit(ctx); err != nil {
		return err // the outcome is unknown
	}
	h.ledger.ack(messages...)
	return nil
}

// linger is how long a transaction stays open after it has appended: up to 5 ms, or
// now and then for long in the rough part.
func (h *hand) linger() time.Duration {
	if h.part() == rough && h.dice.IntN(8) == 0 {
		return between(h.dice, 0, h.timeline.long())
	}
	return between(h.dice, 0, 5*time.Millisecond)
}

// pausing appends in a transaction of its own.
func pausing(ctx context.Context, h *hand) error {
	a, _ := h.batch(0)
	return h.inTx(ctx, func(tx pgx.Tx) ([]weir.Message, error) {
		_, err := h.store.AppendTx(ctx, tx, a)
		return a.Messages, err
	})
}

// savepoints appends up to three times: in the transaction, in a savepoint that is
// rolled back, and in one that is released, in any number and order.
func savepoints(ctx context.Context, h *hand) error {
	return h.inTx(ctx, func(tx pgx.Tx) (kept []weir.Message, err error) {
		var a eventstore.Append
		for at := 0; at < streams && len(kept) < 12; {
			a, at = h.batch(at)
			keep := h.dice.IntN(3) > 0
			if err := h.savepoint(ctx, tx, a, keep); err != nil {
				return append(kept, a.Messages...), err
			}
			if keep {
				kept = append(kept, a.Messages...)
			}
			if h.dice.IntN(3) == 0 {
				return kept, nil
			}
		}
		return kept, nil
	})
}

func (h *hand) savepoint(ctx context.Context, tx pgx.Tx, a eventstore.Append, keep bool) error {
	if keep && h.dice.IntN(2) == 0 { // without a savepoint
		_, err := h.store.AppendTx(ctx, tx, a)
		return err
	}
	inner, err := tx.Begin(ctx)
	if err != nil {
		return err
	}
	if _, err := h.store.AppendTx(ctx, inner, a); err != nil {
		return err
	}
	if keep {
		return inner.Commit(ctx)
	}
	h.ledger.lose(a.Messages...)
	return inner.Rollback(ctx)
}

// prepared appends in a transaction that is prepared, and that another session ends
// after a while. In the calm part it only pauses: readers wait for it.
func prepared(ctx context.Context, h *hand) error {
	if h.part() != rough {
		return pausing(ctx, h)
	}
	a, _ := h.batch(0)
	name := weir.NewID().String()
	if err := h.prepare(ctx, a, name); err != nil {
		return err // nothing or a prepared transaction, which the stage rolls back in the end
	}
	pause(ctx, between(h.dice, 0, h.timeline.long()))
	if h.dice.IntN(10) == 0 {
		h.ledger.lose(a.Messages...)
		return h.endPrepared(ctx, "rollback prepared '"+name+"'")
	}
	if err := h.endPrepared(ctx, "commit prepared '"+name+"'"); err != nil {
		return err
	}
	h.ledger.ack(a.Messages...)
	return nil
}

func (h *hand) prepare(ctx context.Context, a eventstore.Append, name string) error {
	tx, err := h.store.Pool().Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback(context.WithoutCancel(ctx))
	if _, err := h.store.AppendTx(ctx, tx, a); err != nil {
		h.ledger.lose(a.Messages...)
		return err
	}
	_, err = tx.Exec(ctx, "prepare transaction '"+name+"'")
	return err
}

// endPrepared ends a prepared transaction, again when the answer was lost. One that
// is not there any more has been ended by an earlier try.
func (h *hand) endPrepared(ctx context.Context, sql string) error {
	for {
		_, err := h.store.Pool().Exec(ctx, sql)
		var pg *pgconn.PgError
		if errors.As(err, &pg) && pg.Code == "42704" {
			return nil
		}
		if err == nil || !isKill(err) || ctx.Err() != nil {
			return err
		}
	}
}
