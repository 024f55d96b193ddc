package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-es/weir/devserver"
	"github.com/weir-es/weir/eventstore"
)

// lab has the servers that both sides of all benchmarks share. They start when
// they are first needed.
type lab struct {
	postgres func() (*devserver.Postgres, error)
	broker   func() (*broker, error)
	closes   []func() error
	names    atomic.Int64
}

// broker is a NATS server and a connection for looking after it.
type broker struct {
	url string
	js  jetstream.JetStream
}

// newLab makes a lab. Durable ones wait for the disk, as in production; the
// others are for tests.
func newLab(ctx context.Context, durable bool) *lab {
	l := &lab{}
	l.postgres = sync.OnceValues(func() (*devserver.Postgres, error) {
		p, err := devserver.StartPostgres(ctx, devserver.PostgresConfig{Durable: durable})
		if err == nil {
			l.closes = append(l.closes, p.Close)
		}
		return p, err
	})
	l.broker = sync.OnceValues(func() (*broker, error) { return l.startBroker(ctx) })
	return l
}

func (l *lab) startBroker(ctx context.Context) (*broker, error) {
	server, err := devserver.StartNATS(ctx, devserver.NATSConfig{})
	if err != nil {
		return nil, err
	}
	l.closes = append(l.closes, server.Close)
	nc, err := nats.Connect(server.URL())
	if err != nil {
		return nil, err
	}
	l.closes = append(l.closes, func() error { nc.Close(); return nil })
	js, err := jetstream.New(nc)
	return &broker{server.URL(), js}, err
}

// close ends what was started, the last first.
func (l *lab) close() (err error) {
	for i := len(l.closes) - 1; i >= 0; i-- {
		err = errors.Join(err, l.closes[i]())
	}
	l.closes = nil
	return err
}

// name is one that nothing else in the lab has.
func (l *lab) name() string { return fmt.Sprintf("bench%d", l.names.Add(1)) }

// template is a database to copy: every trial begins with one of its own, so
// that none meets what another wrote.
type template struct {
	name    string
	prepare func(ctx context.Context, url string) error
}

// database copies a template. drop removes the copy; the checkpoint that comes
// with it keeps one trial's dirty pages out of the next one's time.
func (l *lab) database(ctx context.Context, from template) (url string, drop func(), err error) {
	server, err := l.postgres()
	if err != nil {
		return "", nil, err
	}
	url, err = server.CloneDatabase(ctx, from.name, from.prepare)
	if err != nil {
		return "", nil, err
	}
	return url, func() { _ = dropDatabase(context.WithoutCancel(ctx), server.URL(), url) }, nil
}

func dropDatabase(ctx context.Context, admin, url string) error {
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, admin)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, "drop database "+pgx.Identifier{config.Database}.Sanitize()+" with (force)")
	return err
}

// store opens a store on a copy of a template, with its horizon kept up to date
// as in a service.
func (l *lab) store(ctx context.Context, from template) (s *eventstore.Store, end func(), err error) {
	s, shut, err := l.quietStore(ctx, from)
	if err != nil {
		return nil, nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { _ = s.Run(ctx) }) // it ends with ctx and with nothing else
	return s, func() { stop(); running.Wait(); shut() }, nil
}

// quietStore opens a store whose horizon moves when it is asked for and not before.
func (l *lab) quietStore(ctx context.Context, from template) (s *eventstore.Store, end func(), err error) {
	url, drop, err := l.database(ctx, from)
	if err != nil {
		return nil, nil, err
	}
	s, err = eventstore.Open(ctx, eventstore.Config{URL: url, Types: registry})
	if err != nil {
		drop()
		return nil, nil, err
	}
	return s, func() { s.Close(); drop() }, nil
}

// connection opens one connection to a copy of a template.
func (l *lab) connection(ctx context.Context, from template) (conn *pgx.Conn, end func(), err error) {
	url, drop, err := l.database(ctx, from)
	if err != nil {
		return nil, nil, err
	}
	conn, err = pgx.Connect(ctx, url)
	if err != nil {
		drop()
		return nil, nil, err
	}
	return conn, func() { conn.Close(context.WithoutCancel(ctx)); drop() }, nil
}
