package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/oklog/ulid/v2"
	"golang.org/x/sync/errgroup"

	"github.com/weir-es/weir/app"
	"github.com/weir-es/weir/transport"
)

// ingestOurs lets an app without projections store what lies in its ingest
// stream, with the windows that apps have by default, from the start of Run until
// the last fact is stored. So it pays for the leases at the start and for the
// last window's quiet time at the end.
func ingestOurs(ctx context.Context, t *trial) error {
	d, end, err := t.fill(ctx)
	if err != nil {
		return err
	}
	defer end()
	url, drop, err := t.database(ctx, fresh)
	if err != nil {
		return err
	}
	defer drop()
	b, err := t.broker()
	if err != nil {
		return err
	}
	a, err := app.New(ctx, app.Config{Name: d.namespace, Schema: "weir", Postgres: url, NATS: b.url,
		Logger: warnings})
	if err != nil {
		return err
	}
	defer a.Close()
	stored := func() bool { return a.Stats().Stored >= int64(t.n) }
	err = a.Run(ctx, func(ctx context.Context) error {
		return t.measure(func() error { return until(ctx, stored) })
	})
	if err != nil {
		return err
	}
	if err := acked(ctx, func() bool { return isDone(ctx, d) }); err != nil {
		return err
	}
	return t.expectEvents(ctx, a.Store, 0)
}

func isDone(ctx context.Context, d declared) bool {
	backlog, err := d.Backlog(ctx)
	return err == nil && backlog.IsDone()
}

// warnings hears of what makes a service wait, on the side of the results.
var warnings = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))

// fill makes an ingest stream with a round's facts in it, the same for both sides.
func (t *trial) fill(ctx context.Context) (d declared, end func(), err error) {
	d, end, err = t.declare(ctx)
	if err != nil {
		return d, nil, err
	}
	if err := sendAll(ctx, d.Conn, facts(t.n, streamsOf(t.n))); err != nil {
		end()
		return d, nil, err
	}
	return d, end, nil
}

// acked waits until the broker has counted every ack.
func acked(ctx context.Context, done func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	if err := until(ctx, done); err != nil {
		return fmt.Errorf("some messages were not acknowledged: %w", err)
	}
	return nil
}

// until looks every millisecond.
func until(ctx context.Context, done func() bool) error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

const (
	fetchSize = 1000
	// fetchWriters is how many pages the twin writes at once, as many as the
	// store does.
	fetchWriters = 2
)

// ingestTwin fetches pages of a thousand messages with one pull consumer, numbers
// the streams and their versions out of a map, and gives each page to one of two
// connections: one insert of arrays that is its own transaction, then the acks.
// It is the least because it gathers nothing and sorts nothing, keeps no streams
// in the database, and believes the versions that it remembers: it could neither
// start in the middle nor meet a message twice.
func ingestTwin(ctx context.Context, t *trial) error {
	d, end, err := t.fill(ctx)
	if err != nil {
		return err
	}
	defer end()
	conn, hangUp, err := t.connection(ctx, fresh)
	if err != nil {
		return err
	}
	defer hangUp()
	conns, closeAll, err := connections(ctx, conn.Config(), fetchWriters)
	if err != nil {
		return err
	}
	defer closeAll()
	consumer, disconnect, err := t.consumer(ctx, d.stream)
	if err != nil {
		return err
	}
	defer disconnect()
	if err := t.measure(func() error { return fetchAll(ctx, consumer, conns, t.n) }); err != nil {
		return err
	}
	if err := acked(ctx, func() bool { return isEmpty(ctx, consumer) }); err != nil {
		return err
	}
	return t.expectRows(ctx, conn, 0)
}

// consumer makes a pull consumer of everything in a stream, on a connection of
// its own.
func (t *trial) consumer(ctx context.Context, stream string) (c jetstream.Consumer, end func(), err error) {
	b, err := t.broker()
	if err != nil {
		return nil, nil, err
	}
	nc, err := nats.Connect(b.url)
	if err != nil {
		return nil, nil, err
	}
	js, err := jetstream.New(nc)
	if err == nil {
		c, err = js.CreateConsumer(ctx, stream, jetstream.ConsumerConfig{
			AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: transport.DefaultMaxAckPending})
	}
	if err != nil {
		nc.Close()
		return nil, nil, err
	}
	return c, nc.Close, nil
}

func isEmpty(ctx context.Context, c jetstream.Consumer) bool {
	info, err := c.Info(ctx)
	return err == nil && info.NumPending == 0 && info.NumAckPending == 0
}

// page is what one fetch brought.
type page struct {
	rows
	messages []jetstream.Msg
}

// fetchAll fetches n messages and writes them.
func fetchAll(ctx context.Context, consumer jetstream.Consumer, conns []*pgx.Conn, n int) error {
	pages := make(chan *page, len(conns))
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		defer close(pages)
		return fetchPages(ctx, consumer, n, pages)
	})
	for _, conn := range conns {
		g.Go(func() error { return writePages(ctx, conn, pages) })
	}
	return g.Wait()
}

func fetchPages(ctx context.Context, consumer jetstream.Consumer, n int, pages chan<- *page) error {
	known := map[string]int64{}
	h := heads{}
	for n > 0 {
		batch, err := consumer.Fetch(min(n, fetchSize), jetstream.FetchMaxWait(10*time.Second))
		if err != nil {
			return err
		}
		p := &page{}
		for m := range batch.Messages() {
			if err := p.take(m, known, h); err != nil {
				return err
			}
		}
		if batch.Error() != nil {
			return batch.Error()
		}
		n -= len(p.messages)
		select {
		case pages <- p:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// take makes a row of a message. Its subject ends in shard, category and key.
func (p *page) take(m jetstream.Msg, known map[string]int64, h heads) error {
	tokens := strings.Split(m.Subject(), ".")
	key := tokens[len(tokens)-1]
	stream, ok := known[key]
	if !ok {
		stream = int64(len(known) + 1)
		known[key] = stream
	}
	shard, err := strconv.ParseInt(tokens[len(tokens)-3], 10, 16)
	if err != nil {
		return err
	}
	header := m.Headers()
	id, err := ulid.ParseStrict(header.Get("Nats-Msg-Id"))
	if err != nil {
		return err
	}
	p.add(stream, h.next(stream), id, int16(shard), header.Get("Weir-Type"), m.Data(), `{"producer":`+strconv.Quote(header.Get("Weir-Producer"))+`}`)
	p.messages = append(p.messages, m)
	return nil
}

func writePages(ctx context.Context, conn *pgx.Conn, pages <-chan *page) error {
	for p := range pages {
		if err := p.insert(ctx, conn); err != nil {
			return err
		}
		for _, m := range p.messages {
			if err := m.Ack(); err != nil {
				return err
			}
		}
	}
	return nil
}
