package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/app"
	"github.com/weir-es/weir/eventstore"
	"github.com/weir-es/weir/projection"
)

// instanceTask is what an instance of the service is told.
type instanceTask struct {
	Name           string // unique to this start
	Seed           uint64
	Postgres, NATS string
	Ahead          time.Duration // of its clock
	Journal        string
	Writers        int
	MaxIngestBytes int64
	// Trap has the handler stop at facts of that author, until it is told to go on.
	Trap string
	// Relayed has it relay, and handle what is relayed. Late has it fold the view of
	// balances like any other, not inline.
	Relayed, Late bool
	// Death is where it kills itself.
	Death death
}

// instance is one start of one process of the service: an app with the read models of
// the load, and writers that move money.
type instance struct {
	instanceTask
	app     *app.App
	journal *journal
	ids     *weir.Generator
	types   *weir.Registry
	say     func(word)

	quiet chan struct{} // closed when the writers have to end
	goOn  chan struct{} // closed when the trap opens

	refusal atomic.Value // what the database said to the write after the trap
}

func instanceRole(ctx context.Context, task json.RawMessage, orders <-chan string, say func(word)) (err error) {
	i := &instance{say: say, quiet: make(chan struct{}), goOn: make(chan struct{})}
	if err := json.Unmarshal(task, &i.instanceTask); err != nil {
		return err
	}
	i.ids = clockAhead(i.Ahead)
	if i.types, err = weir.NewRegistry(loadTypes); err != nil {
		return err
	}
	if i.journal, err = openJournal(i.Journal); err != nil {
		return err
	}
	i.Death.arm(say)
	if i.app, err = app.New(ctx, i.config()); err != nil {
		return err
	}
	defer i.app.Close()
	say(word{Say: "ready"})
	go i.listen(ctx, orders)
	return i.app.Run(ctx)
}

func (i *instance) config() app.Config {
	balances := balances
	balances.Inline = !i.Late
	c := app.Config{Postgres: i.Postgres, NATS: i.NATS,
		Types: loadTypes, Projections: []projection.Projection{counts, ordered, balances, groups, entries(i.Name, i.trap)}, MaxIngestBytes: i.MaxIngestBytes,
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))}
	if i.Relayed {
		c.Relay, c.Handlers = true, []app.Handler{handled(i.Name)}
	}
	return c
}

// clockAhead issues ids by a clock that is wrong.
func clockAhead(by time.Duration) *weir.Generator {
	return &weir.Generator{Clock: func() time.Time { return time.Now().Add(by) }}
}

// listen has the writers write until it is told otherwise.
func (i *instance) listen(ctx context.Context, orders <-chan string) {
	ended := make(chan error, 1)
	go func() { ended <- i.write(ctx) }()
	for order := range orders {
		if obeyDeath(order, i.say) {
			continue
		}
		switch order {
		case "quiet":
			close(i.quiet)
			if err := <-ended; err != nil {
				fmt.Fprintln(os.Stderr, "writers:", err)
			}
			i.say(word{Say: "quiet"})
		case "go on":
			close(i.goOn)
		case "rebuild":
			go i.rebuild(ctx)
		case "stats":
			refusal, _ := i.refusal.Load().(string)
			i.say(word{Say: "stats", Text: refusal, Refused: i.app.Stats().Refused})
		}
	}
}

// trap holds the handler where it is told to stop, inside its transaction, and keeps
// what came of its write after that.
func (i *instance) trap(ctx context.Context, value any, write func() error) error {
	if s, ok := value.(remark); !ok || i.Trap == "" || s.By != i.Trap {
		return write()
	}
	i.say(word{Say: "trapped"})
	select {
	case <-i.goOn:
	case <-ctx.Done():
	}
	err := write()
	if err != nil {
		i.refusal.Store(err.Error())
	}
	return err
}

// write returns when all writers have ended. What a writer is at when it is told to
// end, it finishes.
func (i *instance) write(ctx context.Context) error {
	var g errgroup.Group
	for n := range i.Writers {
		d := dice(i.Seed, fmt.Sprint(i.Name, " ", n))
		g.Go(func() error {
			for number := 0; pauseUnless(ctx, i.quiet, between(d, 0, 100*time.Millisecond)); number++ {
				if err := i.writeOnce(ctx, d, fmt.Sprintf("%s/%d/%d", i.Name, n, number)); err != nil && ctx.Err() == nil {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}

// writeOnce moves money in one of two ways. What the database does not answer is tried
// again: with the same ids where that says the same.
func (i *instance) writeOnce(ctx context.Context, d *rand.Rand, name string) error {
	from, to, amount := d.IntN(accounts), d.IntN(accounts-1), 1+d.Int64N(200)
	if to >= from {
		to++
	}
	if d.IntN(3) == 0 {
		return i.turn(ctx, turnover{accountOf(from), amount, name})
	}
	return i.transfer(ctx, accountOf(from), accountOf(to), amount, name)
}

// turn executes a command. An unknown outcome stays unknown.
func (i *instance) turn(ctx context.Context, t turnover) error {
	events, err := eventstore.Execute(ctx, i.app.Store, t)
	switch {
	case err == nil:
		return i.journal.note("appended", idsOf(events)...)
	case errors.Is(err, errPoor), errors.Is(err, weir.ErrConflict), isOutage(err):
		return nil
	}
	return fmt.Errorf("execute %s: %w", t.name, err)
}

// transfer appends to two streams at once, the one from which money is taken at the
// version at which there was enough of it.
func (i *instance) transfer(ctx context.Context, from, to weir.StreamID, amount int64, name string) error {
	a, version, err := eventstore.Load[account](ctx, i.app.Store, from)
	if err != nil || a.Balance < amount {
		return unlessOutage(err)
	}
	take, give := i.message(from, moved{-amount, name}), i.message(to, moved{amount, name})
	appends := []eventstore.Append{
		{Stream: from, Expected: weir.Exactly(version), Messages: []weir.Message{take}},
		{Stream: to, Expected: weir.AnyVersion, Messages: []weir.Message{give}},
	}
	for {
		_, err = i.app.Store.AppendAll(ctx, appends...)
		switch {
		case err == nil:
			return i.journal.note("appended", take.ID, give.ID)
		case errors.Is(err, weir.ErrConflict):
			return i.journal.note("refused", take.ID, give.ID)
		case !isOutage(err) || !pause(ctx, 50*time.Millisecond):
			return fmt.Errorf("transfer %s: %w", name, err)
		}
	}
}

func (i *instance) message(stream weir.StreamID, value any) weir.Message {
	m, err := i.types.Encode(stream, value)
	if err != nil {
		panic(err) // all types of the load are registered
	}
	m.ID = i.ids.New()
	return m
}

func idsOf(events []weir.Event) (ids []weir.ID) {
	for _, e := range events {
		ids = append(ids, e.ID)
	}
	return ids
}

// isOutage says whether an error may come from a database or a link that is down.
func isOutage(err error) bool {
	return isKill(err) || errors.Is(err, context.DeadlineExceeded)
}

func unlessOutage(err error) error {
	if isOutage(err) {
		return nil
	}
	return err
}

// pauseUnless waits, and reports whether nothing has ended meanwhile.
func pauseUnless(ctx context.Context, over <-chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		select {
		case <-over:
			return false
		default:
			return ctx.Err() == nil
		}
	case <-over:
	case <-ctx.Done():
	}
	return false
}
