package transport

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/weir-es/weir"
)

// PublishEvents hands committed events to the log stream and returns when the broker
// has stored each of them. Those of one event stream are stored in the order given;
// the message id is the event's, so that a repeat within two minutes changes nothing.
// Many streams are under way at once, and one event of each.
//
// An event that is larger than the broker takes goes without its payload, and its
// receivers get an *OmittedError. While the broker is away or full, or the stream is
// not declared, PublishEvents waits. A *RefusedError, joined with others, says that the
// broker does not take an event as things are, nor then what came behind it in its
// stream; the others are stored. When ctx ends first the error is that of ctx and also ErrUnknownOutcome.
// Repeating is always safe: until it has succeeded, repeat the same events in the same
// order.
func (c *Conn) PublishEvents(ctx context.Context, events ...weir.Event) error {
	letters := make([]*letter, len(events))
	for i := range events {
		l, err := c.eventLetter(&events[i])
		if err != nil {
			return fmt.Errorf("publish event %s: %w", events[i].ID, err)
		}
		letters[i] = l
	}
	return c.carry(ctx, c.relay, letters)
}

// LogWentBack reports, once each time, that the log stream is not what it was when this
// connection published to it before: it was deleted and made anew, or went back to an
// earlier state, as after a restore of older files. What it held has to be published
// again. It is noticed with the first event that is published afterwards.
func (c *Conn) LogWentBack() bool { return c.relay.wentBack() }

// eventLetter writes an event for the wire, as much of it as the broker takes.
func (c *Conn) eventLetter(e *weir.Event) (*letter, error) {
	subject, whole := c.outflow().place(e.Stream)
	header, err := encodeEvent(e, whole, "")
	if err == nil {
		err = c.fits(e.ID, header, e.Data)
	}
	data := e.Data
	if errors.As(err, new(*weir.TooLargeError)) {
		data = nil
		header, err = encodeEvent(bare(e), whole, err.Error())
	}
	if err != nil {
		return nil, err
	}
	return &letter{id: e.ID, msg: nats.Msg{Subject: subject, Header: header, Data: data}}, nil
}

// bare is an event without what may be large.
func bare(e *weir.Event) *weir.Event {
	b := *e
	b.Data, b.Metadata = nil, weir.Metadata{ContentType: e.Metadata.ContentType}
	if len(b.Metadata.ContentType) > weir.MaxTypeBytes {
		b.Metadata.ContentType = ""
	}
	return &b
}

// fits returns a *weir.TooLargeError where the server does not take a message.
func (c *Conn) fits(id weir.ID, header nats.Header, data []byte) error {
	if size, limit := headerBytes(header)+len(data), int(c.nats.MaxPayload()); size > limit && limit > 0 {
		return &weir.TooLargeError{ID: id, What: "payload with headers", Size: size, Limit: limit}
	}
	return nil
}

// readEvent makes sense of a message of a log stream.
func (n names) readEvent(m *nats.Msg, d *Delivery) {
	e, omitted, err := n.decodeEvent(m)
	switch {
	case err != nil:
		d.Err = &UnreadableError{m.Subject, m.Header, m.Data, err}
		return
	case omitted != "":
		d.Err = &OmittedError{e.ID, omitted}
	}
	d.Event, d.Message, d.Shard = e, e.Message, e.Stream.Shard(n.shards)
}
