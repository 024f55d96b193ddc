package transport

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/nats-io/nats.go"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/internal/crash"
)

// Publisher hands messages to the broker. It is cheap: take one per producer,
// since Flush speaks of what this publisher has sent. Safe for concurrent use.
type Publisher struct {
	conn   *Conn
	closed atomic.Bool

	// Guarded by courier.mu.
	now  *tally   // of what Send takes
	past []*tally // sealed by Flush, not reported yet
}

// Publisher makes a publisher.
func (c *Conn) Publisher() *Publisher { return &Publisher{conn: c, now: newTally()} }

// Publish sends messages and returns when the broker has stored each of them.
// Messages of one event stream are stored in the order of their ids, whatever order
// they are given in; about those of other calls see Send.
//
// All are validated first; when one is invalid its typed error is returned and
// nothing is sent. A *RefusedError, joined with others, says that the broker will
// never take a message; the others are stored. While the broker is away, full or
// not declared, Publish waits. When ctx ends first the error is that of ctx and
// also ErrUnknownOutcome: repeat with the same ids. Repeating is always safe.
func (p *Publisher) Publish(ctx context.Context, messages ...weir.Message) error {
	letters, err := p.conn.letters(ctx, messages)
	if err != nil {
		return err
	}
	if p.closed.Load() {
		return ErrClosed
	}
	slices.SortStableFunc(letters, compareLetters)
	crash.At(crash.PublishChecked)
	return p.conn.carry(ctx, p.conn.courier, letters)
}

// carry posts letters and waits for the answers.
func (c *Conn) carry(ctx context.Context, k *courier, letters []*letter) error {
	t := newTally()
	posted, err := c.postAll(ctx, k, letters, t)
	k.seal(t)
	if err != nil {
		return k.giveUp(letters[:posted], len(letters), err)
	}
	crash.At(crash.PublishSent)
	select {
	case <-t.done:
		crash.At(crash.PublishAnswered)
		return t.err()
	case <-ctx.Done():
		return errors.Join(k.giveUp(letters, len(letters), ctx.Err()), k.errorsOf(t))
	}
}

// postAll posts letters one after the other and says how many were taken.
func (c *Conn) postAll(ctx context.Context, k *courier, letters []*letter, t *tally) (int, error) {
	for i, l := range letters {
		if err := c.post(ctx, k, l, &t); err != nil {
			return i, err
		}
	}
	return len(letters), nil
}

// post waits for a slot and hands a letter to a courier.
func (c *Conn) post(ctx context.Context, k *courier, l *letter, t **tally) error {
	select {
	case k.slots <- struct{}{}:
	default:
		select {
		case k.slots <- struct{}{}:
		case <-c.life.Done():
			return ErrClosed
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return k.post(l, t)
}

// giveUp reports a Publish that could not wait for every answer.
func (k *courier) giveUp(posted []*letter, of int, err error) error {
	unanswered, reason := k.drop(posted)
	if unanswered += of - len(posted); unanswered == 0 {
		return nil
	}
	err = fmt.Errorf("publish %d of %d messages: %w: %w", unanswered, of, err, ErrUnknownOutcome)
	if reason != nil {
		return fmt.Errorf("%w (last: %w)", err, reason)
	}
	return err
}

// Send hands over one message and returns without waiting for the broker; it
// waits only while Config.Pending publishes are unanswered. One message of an event
// stream is under way at a time; those that wait for it are sent in the order of
// their ids, whoever sent them first. An invalid message is refused at once
// with its typed error; the outcome of the others is reported by Flush.
func (p *Publisher) Send(ctx context.Context, message weir.Message) error {
	l, err := p.conn.letter(ctx, message)
	if err != nil {
		return err
	}
	if p.closed.Load() {
		return ErrClosed
	}
	return p.conn.post(ctx, p.conn.courier, l, &p.now)
}

// Flush waits until everything sent so far has a definite answer and returns
// what was refused, each error once. When ctx ends first the error is that of ctx
// and also ErrUnknownOutcome; the messages are still followed, and the next Flush
// waits for them again.
func (p *Publisher) Flush(ctx context.Context) error {
	for _, t := range p.seal() {
		select {
		case <-t.done:
		case <-ctx.Done():
			return fmt.Errorf("flush: %w: %w", ctx.Err(), ErrUnknownOutcome)
		}
	}
	return p.collect()
}

// seal begins a new tally and returns those before it.
func (p *Publisher) seal() []*tally {
	k := p.conn.courier
	k.mu.Lock()
	defer k.mu.Unlock()
	p.now.seal()
	p.past = append(p.past, p.now)
	p.now = newTally()
	return slices.Clone(p.past)
}

// collect takes the errors of the tallies that are done.
func (p *Publisher) collect() error {
	k := p.conn.courier
	k.mu.Lock()
	defer k.mu.Unlock()
	var errs []error
	p.past = slices.DeleteFunc(p.past, func(t *tally) bool {
		if t.isDone() {
			errs = append(errs, t.err())
		}
		return t.isDone()
	})
	return errors.Join(errs...)
}

// Close takes no more messages and flushes. The connection stays open. Safe to
// repeat.
func (p *Publisher) Close(ctx context.Context) error {
	p.closed.Store(true)
	return p.Flush(ctx)
}

func (c *Conn) letters(ctx context.Context, messages []weir.Message) ([]*letter, error) {
	letters := make([]*letter, len(messages))
	for i := range messages {
		l, err := c.letter(ctx, messages[i])
		if err != nil {
			return nil, err
		}
		letters[i] = l
	}
	return letters, nil
}

// letter checks a message and writes it for the wire.
func (c *Conn) letter(ctx context.Context, m weir.Message) (*letter, error) {
	if err := m.Validate(c.config.MaxDataBytes); err != nil {
		return nil, err
	}
	Inject(ctx, &m.Metadata)
	subject, err := c.names.subject(m.Stream.Resolve(m.ID))
	if err != nil {
		return nil, err
	}
	header, err := encode(&m)
	if err != nil {
		return nil, err
	}
	if err := c.fits(m.ID, header, m.Data); err != nil {
		return nil, err
	}
	return &letter{id: m.ID, msg: nats.Msg{Subject: subject, Header: header, Data: m.Data}}, nil
}
