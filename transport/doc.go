// Package transport carries messages through NATS JetStream: it connects,
// declares the ingest stream with one durable consumer per shard, publishes
// without losing order and receives without losing messages. It knows nothing of
// PostgreSQL; what is stored, and when a message may be acknowledged, is decided
// by its callers. Facts go one way, to be stored; committed events the other, through
// the log stream, to other services.
//
//	conn, err := transport.Connect(ctx, transport.Config{URL: "nats://127.0.0.1:4222"})
//	defer conn.Close()
//	err = conn.Declare(ctx)
//	err = conn.Publisher().Publish(ctx, message)
//	err = conn.Receive(ctx, shard, func(d *transport.Delivery) { window <- d }) // d.Ack() after the commit
//
//	_, err = conn.DeclareLog(ctx)
//	err = conn.PublishEvents(ctx, events...)
//	err = conn.Subscribe(ctx, transport.Subscription{Namespace: "shop", Name: "billing"}, handle)
//
// Publishing keeps the order of each event stream: at most one publish of a
// stream is unanswered, and it is repeated with the same id until the broker
// gives a definite answer. Receiving keeps the order of each shard: whoever
// begins to receive, or comes back after a lost connection, first resets the
// consumer to its ack floor.
package transport
