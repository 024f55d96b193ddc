package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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

// RelayConsumer is the name under which the checkpoints of the relay are kept. No
// projection may have it.
const RelayConsumer = "relay"

const (
	// relayPage is how many events are under way at a time.
	relayPage = 1000
	// relayMark is how often the checkpoints move while events come: what was
	// published since is published again by the next owner, and is taken for the
	// duplicate that it is.
	relayMark = 200 * time.Millisecond
	// relayLook is how often an idle relay looks whether it was sent back.
	relayLook = 2 * time.Second
	// relayDeclare is how often an idle relay looks whether the stream is there, and
	// relayWait how long a publish goes unanswered before it does.
	relayDeclare = 15 * time.Second
	relayWait    = time.Second
	// relayAnswer is how long a server may take for one request.
	relayAnswer = 15 * time.Second
)

// relay publishes the committed events of some shards to the log stream: of each event
// stream in the order of versions, at least once.
type relay struct {
	store  *eventstore.Store
	broker *transport.Conn
	fence  eventstore.Fence
	hard   context.Context // once it has ended, nothing is noted any more
	log    *slog.Logger

	// Owned by run.
	marks    map[weir.Shard]weir.Position // the checkpoints, as we left them
	at       weir.Position                // everything of our shards at or below is published
	marked   time.Time
	looked   time.Time
	declared time.Time
	ahead    *leaf // the page after the one that was published, if it was read already
}

// leaf is a page of the log: the events above after, up to to.
type leaf struct {
	after, to weir.Position
	full      bool
	events    []weir.Event
}

// relay publishes what is committed in the shards of a fence until ctx ends; then it
// returns nil. It returns weir.ErrLeaseLost when another owner took over. Everything
// else is tried again.
func (r *run) relay(ctx context.Context, fence eventstore.Fence) error {
	l := &relay{store: r.Store, broker: r.broker, fence: fence, hard: r.hard, log: r.config.Logger}
	return l.run(ctx)
}

func (l *relay) run(ctx context.Context) error {
	err := l.retry(ctx, l.declare)
	if err == nil {
		err = l.retry(ctx, l.resume)
	}
	for err == nil {
		if err = l.cycle(ctx); errors.Is(err, errSentBack) {
			l.log.Info("the relay was sent to another position", "was", l.at)
			err = l.retry(ctx, l.resume)
		}
	}
	if ctx.Err() != nil && !errors.Is(err, weir.ErrLeaseLost) {
		l.leave(ctx)
		return nil
	}
	return fmt.Errorf("run relay: %w", err)
}

// errSentBack says that somebody else has moved a checkpoint: an operator, or we
// ourselves in a transaction whose answer was lost.
var errSentBack = errors.New("the checkpoint is somewhere else")

// retry repeats everything that time may mend.
func (l *relay) retry(ctx context.Context, act func(context.Context) error) error {
	wait := backoff.NewExponentialBackOff()
	for {
		err := act(ctx)
		if err == nil || ctx.Err() != nil || errors.Is(err, weir.ErrLeaseLost) || errors.Is(err, errSentBack) {
			return err
		}
		l.log.Warn("the relay has to wait", "position", l.at, "error", fmt.Sprintf("%.500s", err.Error()))
		if !sleep(ctx, wait.NextBackOff()) {
			return ctx.Err()
		}
	}
}

// leave notes how far the relay has come, for the next owner's sake.
func (l *relay) leave(ctx context.Context) {
	if l.marks == nil || l.hard != nil && l.hard.Err() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if err := l.mark(ctx); err != nil {
		l.log.Debug("checkpoint of the relay at stop", "error", err)
	}
}

// resume reads the checkpoints.
func (l *relay) resume(ctx context.Context) error {
	marks, err := l.checkpoints(ctx)
	if err != nil {
		return err
	}
	l.marks, l.at, l.ahead = marks, lowest(marks), nil
	l.marked, l.looked = time.Now(), time.Now()
	return nil
}

func (l *relay) checkpoints(ctx context.Context) (map[weir.Shard]weir.Position, error) {
	ctx, cancel := context.WithTimeout(ctx, relayAnswer)
	defer cancel()
	all, err := l.store.Checkpoints(ctx, RelayConsumer)
	ours := map[weir.Shard]weir.Position{}
	for shard := range l.fence.Epochs {
		ours[shard] = all[shard]
	}
	return ours, err
}

func lowest(marks map[weir.Shard]weir.Position) (at weir.Position) {
	first := true
	for _, mark := range marks {
		if first || mark < at {
			at, first = mark, false
		}
	}
	return at
}

// cycle waits for events and publishes a page of them.
func (l *relay) cycle(ctx context.Context) error {
	horizon, err := l.next(ctx)
	if err != nil {
		return err
	}
	if horizon <= l.at {
		return l.retry(ctx, l.rest)
	}
	p, err := l.fetch(ctx, horizon)
	if err != nil {
		return err
	}
	crash.At(crash.RelayRead)
	if err := l.pass(ctx, p, horizon); err != nil {
		return err
	}
	crash.At(crash.RelayPublished)
	l.at = p.to
	if l.broker.LogWentBack() {
		l.log.Error("the log stream has lost what it held: `weir relay --from` publishes it again", "position", p.after)
	}
	if time.Since(l.marked) < relayMark {
		return nil
	}
	return l.retry(ctx, l.mark)
}

// next is the horizon once it is above l.at, or l.at when there is something to do at
// rest.
func (l *relay) next(ctx context.Context) (weir.Position, error) {
	due := l.looked.Add(relayLook)
	if lowest(l.marks) < l.at {
		due = l.marked.Add(relayMark)
	}
	soon, cancel := context.WithDeadline(ctx, due)
	defer cancel()
	at, err := l.store.WaitHorizon(soon, l.at)
	if err != nil && ctx.Err() == nil {
		return l.at, nil
	}
	return at, err
}

// rest is what is done when no events come.
func (l *relay) rest(ctx context.Context) error {
	if err := l.mark(ctx); err != nil {
		return err
	}
	if time.Since(l.looked) < relayLook {
		return nil
	}
	if err := l.look(ctx); err != nil {
		return err
	}
	if time.Since(l.declared) < relayDeclare {
		return nil
	}
	return l.declare(ctx)
}

// look notices that somebody has moved a checkpoint.
func (l *relay) look(ctx context.Context) error {
	marks, err := l.checkpoints(ctx)
	if err != nil {
		return err
	}
	for shard, mark := range marks {
		if mark != l.marks[shard] {
			return errSentBack
		}
	}
	l.looked = time.Now()
	return nil
}

// declare makes sure of the stream. It belongs to us, so it is made again when it is
// gone; what it held is published again only when somebody wants that.
func (l *relay) declare(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, relayAnswer)
	defer cancel()
	created, err := l.broker.DeclareLog(ctx)
	if created && l.at > 0 {
		l.log.Warn("the log stream was gone and was made anew", "position", l.at)
	}
	l.declared = time.Now()
	return err
}

// fetch gives the page after l.at.
func (l *relay) fetch(ctx context.Context, horizon weir.Position) (p leaf, err error) {
	if next := l.ahead; next != nil && next.after == l.at {
		l.ahead = nil
		return *next, nil
	}
	err = l.retry(ctx, func(ctx context.Context) error {
		p, err = l.read(ctx, l.at, horizon)
		return err
	})
	return p, err
}

func (l *relay) read(ctx context.Context, after, horizon weir.Position) (leaf, error) {
	ctx, cancel := context.WithTimeout(ctx, relayAnswer)
	defer cancel()
	events, err := l.store.Page(ctx, after, horizon, l.shards(), relayPage)
	if err != nil {
		return leaf{}, err
	}
	p := leaf{after: after, to: horizon, full: len(events) == relayPage, events: events}
	if p.full {
		p.to = events[len(events)-1].Position
	}
	return p, nil
}

func (l *relay) shards() (shards []weir.Shard) {
	for shard := range l.fence.Epochs {
		shards = append(shards, shard)
	}
	return shards
}

// pass publishes a page, and reads the next one meanwhile if there is more.
func (l *relay) pass(ctx context.Context, p leaf, horizon weir.Position) error {
	var g errgroup.Group
	g.Go(func() error {
		return l.retry(ctx, func(ctx context.Context) error { return l.publish(ctx, l.unpublished(p.events)) })
	})
	if p.full && p.to < horizon {
		g.Go(func() error {
			if next, err := l.read(ctx, p.to, horizon); err == nil { // else it is read when it is needed
				l.ahead = &next
			}
			return nil
		})
	}
	return g.Wait()
}

// unpublished leaves out what an earlier owner has published of shards that were ahead
// of the others.
func (l *relay) unpublished(events []weir.Event) []weir.Event {
	var rest []weir.Event
	for _, e := range events {
		if e.Position > l.marks[e.Stream.Shard(l.store.Shards())] {
			rest = append(rest, e)
		}
	}
	return rest
}

// publish returns when the broker has all of them. While it does not answer, the reason
// may be that the stream is gone.
func (l *relay) publish(ctx context.Context, events []weir.Event) error {
	answer := make(chan error, 1)
	go func() { answer <- l.broker.PublishEvents(ctx, events...) }()
	tick := time.NewTicker(relayWait)
	defer tick.Stop()
	for {
		select {
		case err := <-answer:
			return err
		case <-tick.C:
		}
		if err := l.declare(ctx); err != nil && ctx.Err() == nil {
			l.log.Warn("cannot declare the log stream", "error", err)
		}
	}
}

// mark moves the checkpoints of our shards to where the relay is, if they are still
// where we left them and ours to move.
func (l *relay) mark(ctx context.Context) error {
	behind, shards := map[weir.Shard]weir.Position{}, []weir.Shard(nil)
	for shard, mark := range l.marks {
		if mark < l.at {
			behind[shard] = mark
			shards = append(shards, shard)
		}
	}
	if len(shards) == 0 {
		return nil
	}
	if err := l.move(ctx, shards, behind); err != nil {
		return err
	}
	crash.At(crash.RelayMarked)
	for shard := range behind {
		l.marks[shard] = l.at
	}
	l.marked = time.Now()
	return nil
}

func (l *relay) move(ctx context.Context, shards []weir.Shard, from map[weir.Shard]weir.Position) error {
	ctx, cancel := context.WithTimeout(ctx, relayAnswer)
	defer cancel()
	return pgx.BeginFunc(ctx, l.store.Pool(), func(tx pgx.Tx) error {
		var b pgx.Batch
		l.store.QueueFence(&b, l.fence, shards)
		moved := l.store.QueueAdvance(&b, RelayConsumer, from, l.at)
		moved.Exec(allOf(len(from)))
		defer crash.At(crash.RelayMarking)
		return tx.SendBatch(ctx, &b).Close()
	})
}

// allOf wants n rows to have changed.
func allOf(n int) func(pgconn.CommandTag) error {
	return func(tag pgconn.CommandTag) error {
		if tag.RowsAffected() != int64(n) {
			return errSentBack
		}
		return nil
	}
}
