package app

import (
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/batching"
	"github.com/weir-es/weir/projection"
)

// Config describes a service. Only the two addresses (or Pool and Conn) must be
// given.
type Config struct {
	// Name of the service, 1 to 40 of a-z, 0-9 and _. It is the schema in
	// PostgreSQL and the namespace in NATS unless these are given. Default
	// "weir".
	Name string
	// Postgres and NATS are URLs. The pool of Postgres has 16 connections, and one for
	// each projection and handler, unless the URL sets pool_max_conns.
	Postgres, NATS string
	// Pool and Conn are used instead, and never closed by the app.
	Pool *pgxpool.Pool
	Conn *nats.Conn
	// Schema and Namespace default to Name. All that run on one schema must have the
	// same name, types and projections: whoever holds a shard does all its work.
	Schema, Namespace string

	// Types names the application's messages.
	Types weir.Types
	// Projections are the read models to keep.
	Projections []projection.Projection

	// Relay publishes committed events to the log stream of the namespace, for
	// the handlers of other services. Default no. See docs/relay.md.
	Relay bool
	// Handlers handle the events that other services publish, each once.
	Handlers []Handler

	// Shards is how many groups of streams there are; fixed when the schema is
	// created. Default 32.
	Shards int
	// Inbox is how long facts wait for company before they are stored, per
	// stream. Default batching.Adaptive(batching.Inbox): as long as late facts of
	// the category have needed of late, between 2 ms and 300 ms quiet, 3 s old,
	// 1000 items. batching.Fixed(batching.Inbox) waits the 300 ms whatever comes:
	// fewer late events; batching.Off waits for nothing.
	Inbox batching.Policy
	// MaxDataBytes is the largest payload. Default 1 MiB.
	MaxDataBytes int
	// Replicas of the JetStream streams. Default 1; 3 for a cluster.
	Replicas int
	// MaxIngestBytes is how much the broker holds before producers have to
	// wait; that much is reserved. Default 1 GiB.
	MaxIngestBytes int64

	// LogAge is how long the log stream keeps an event. Default 24 h: a service
	// that is away for longer has to be sent it again.
	LogAge time.Duration
	// LogBytes is how much the log stream holds at most. Default no limit.
	LogBytes int64

	// ConnectTimeout is how long New waits for servers that are not there yet.
	// Default 30 s.
	ConnectTimeout time.Duration
	// StopTimeout is how long a graceful stop may take before it becomes an
	// abrupt one, which loses nothing either but leaves more to do again.
	// Default 20 s.
	StopTimeout time.Duration
	// Logger is told what an operator should know. Default slog.Default.
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	c.Name = orDefault(c.Name, "weir")
	c.Schema = orDefault(c.Schema, c.Name)
	c.Namespace = orDefault(c.Namespace, c.Name)
	c.Shards = orDefault(c.Shards, weir.DefaultShards)
	c.Inbox = orDefault(c.Inbox, batching.Adaptive(batching.Inbox))
	c.StopTimeout = orDefault(c.StopTimeout, 20*time.Second)
	c.Logger = orDefault(c.Logger, slog.Default())
	return c
}

func orDefault[T comparable](value, otherwise T) T {
	if value == *new(T) {
		return otherwise
	}
	return value
}
