package main

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/transport"
)

// publishOurs sends facts with transport.Publisher, at most 4000 unanswered, one
// per event stream, until the broker has answered for each.
func publishOurs(ctx context.Context, t *trial) error {
	conn, end, err := t.declare(ctx)
	if err != nil {
		return err
	}
	defer end()
	messages := facts(t.n, streamsOf(t.n))
	if err := t.measure(func() error { return sendAll(ctx, conn.Conn, messages) }); err != nil {
		return err
	}
	return t.expectMessages(ctx, conn.stream)
}

func sendAll(ctx context.Context, conn *transport.Conn, messages []weir.Message) error {
	p := conn.Publisher()
	for _, m := range messages {
		if err := p.Send(ctx, m); err != nil {
			return err
		}
	}
	return p.Flush(ctx)
}

// publishTwin is the pipeline of nats.go with as many unanswered: the same
// headers and payload, a subject per event stream, into a stream with the same
// storage and duplicate window but one wildcard and no consumers. It is the least
// because nothing is checked, nothing is sent twice, and two messages of one
// event stream may be under way at once, so a failure can reorder them.
func publishTwin(ctx context.Context, t *trial) error {
	b, err := t.broker()
	if err != nil {
		return err
	}
	name := t.name()
	_, err = b.js.CreateStream(ctx, jetstream.StreamConfig{Name: name, Subjects: []string{name + ".>"}, Duplicates: 2 * time.Minute})
	if err != nil {
		return err
	}
	defer b.remove(ctx, name)
	nc, err := nats.Connect(b.url)
	if err != nil {
		return err
	}
	defer nc.Close()
	messages := facts(t.n, streamsOf(t.n))
	if err := t.measure(func() error { return pipeline(ctx, nc, name+".", messages) }); err != nil {
		return err
	}
	return t.expectMessages(ctx, name)
}

// pipeline publishes messages and waits for all answers.
func pipeline(ctx context.Context, nc *nats.Conn, prefix string, messages []weir.Message) error {
	var failed atomic.Int64
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(transport.DefaultPending),
		jetstream.WithPublishAsyncErrHandler(func(jetstream.JetStream, *nats.Msg, error) { failed.Add(1) }))
	if err != nil {
		return err
	}
	for _, m := range messages {
		msg := nats.Msg{Subject: prefix + string(m.Stream), Data: m.Data, Header: nats.Header{
			"Nats-Msg-Id": {m.ID.String()}, "Weir-Type": {m.Type}, "Weir-Producer": {m.Metadata.Producer}}}
		if _, err := js.PublishMsgAsync(&msg, jetstream.WithStallWait(time.Minute)); err != nil {
			return err
		}
	}
	select {
	case <-js.PublishAsyncComplete():
	case <-ctx.Done():
		return ctx.Err()
	}
	if failed.Load() > 0 {
		return errors.New("some messages were refused")
	}
	return nil
}

// declared is a connection and the names of what it declared.
type declared struct {
	*transport.Conn
	namespace, stream string
}

// declare makes an ingest stream of its own for a trial, with its consumers.
func (l *lab) declare(ctx context.Context) (d declared, end func(), err error) {
	b, err := l.broker()
	if err != nil {
		return d, nil, err
	}
	d.namespace = l.name()
	d.stream = "WEIR_" + strings.ToUpper(d.namespace) + "_INGEST"
	if d.Conn, err = transport.Connect(ctx, transport.Config{URL: b.url, Namespace: d.namespace}); err != nil {
		return d, nil, err
	}
	end = func() { d.Close(); b.remove(ctx, d.stream) }
	if err := d.Declare(ctx); err != nil {
		end()
		return d, nil, err
	}
	return d, end, nil
}

// remove deletes a stream; what cannot be deleted goes with the server.
func (b *broker) remove(ctx context.Context, stream string) {
	_ = b.js.DeleteStream(context.WithoutCancel(ctx), stream)
}

// expectMessages counts what a stream holds.
func (t *trial) expectMessages(ctx context.Context, stream string) error {
	b, err := t.broker()
	if err != nil {
		return err
	}
	s, err := b.js.Stream(ctx, stream)
	if err != nil {
		return err
	}
	return t.expect("messages in the stream", int(s.CachedInfo().State.Msgs), t.n)
}
