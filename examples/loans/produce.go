package main

import (
	"context"
	"fmt"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/weir-es/weir/transport"
)

// maxHeld is how many messages the producers hold back at once, all together.
const maxHeld = 10_000

// queued is how many messages wait for one producer besides those it holds.
const queued = 256

// sent counts what the broker took.
type sent struct{ first, again atomic.Int64 }

// produce lets three producers publish what feed hands them, each over its own
// connection, and returns when the broker has acknowledged everything.
func produce(ctx context.Context, feed *feed, config transport.Config, sent *sent) error {
	g, ctx := errgroup.WithContext(ctx)
	for i, system := range systems {
		feed.out[i] = make(chan item, queued)
		p := &producer{config: config, in: feed.out[i], sent: sent}
		p.config.Name = "loans " + system
		g.Go(func() error {
			if err := p.run(ctx); err != nil {
				return fmt.Errorf("publish %s: %w", system, err)
			}
			return nil
		})
	}
	g.Go(func() error { return feed.run(ctx) })
	return g.Wait()
}

// producer is one of the systems that write about cases.
type producer struct {
	config transport.Config
	in     <-chan item
	sent   *sent
}

func (p *producer) run(ctx context.Context) error {
	conn, err := transport.Connect(ctx, p.config)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.Declare(ctx); err != nil {
		return err
	}
	publisher := conn.Publisher()
	delay := delay{in: p.in, limit: maxHeld / len(systems), out: func(ctx context.Context, next item) error {
		if err := publisher.Send(ctx, next.message); err != nil {
			return err
		}
		p.count(next)
		return nil
	}}
	if err := delay.run(ctx); err != nil {
		return err
	}
	return publisher.Flush(ctx)
}

// count counts a message when it is on its way; once Flush has returned without
// an error, the broker has acknowledged every one.
func (p *producer) count(next item) {
	if next.again {
		p.sent.again.Add(1)
		return
	}
	p.sent.first.Add(1)
}
