package main

import (
	"context"
	_ "embed"
	"fmt"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/weir-es/weir"
)

//go:embed sql/append_event.sql
var appendEvent string

// callers is how many goroutines append at once, each to a stream of its own.
const callers = 16

// singles are the events of each caller.
func singles(n int) [callers][]weir.Message {
	var all [callers][]weir.Message
	for i := range n {
		all[i%callers] = append(all[i%callers], fact(i%callers))
	}
	return all
}

// singleOurs appends one event after the other from each caller, at the version
// that the caller expects; what comes together shares transactions.
func singleOurs(ctx context.Context, t *trial) error {
	s, end, err := t.store(ctx, grown(manyStreamsCount))
	if err != nil {
		return err
	}
	defer end()
	err = t.measureCallers(ctx, func(ctx context.Context, _ int, m weir.Message, at weir.Version) error {
		_, err := s.Append(ctx, m.Stream, weir.Exactly(at), m)
		return err
	})
	if err != nil {
		return err
	}
	return t.expectEvents(ctx, s, manyStreamsCount)
}

// measureCallers lets all callers append their events, in order.
func (t *trial) measureCallers(ctx context.Context, appendOne func(ctx context.Context, caller int, m weir.Message, at weir.Version) error) error {
	all := singles(t.n)
	return t.measure(func() error {
		g, ctx := errgroup.WithContext(ctx)
		for caller, messages := range all {
			g.Go(func() error {
				for i, m := range messages {
					if err := appendOne(ctx, caller, m, weir.Version(i+1)); err != nil {
						return err
					}
				}
				return nil
			})
		}
		return g.Wait()
	})
}

// singleTwin does what one would write by hand: every caller has a connection,
// and an append is one insert, checked against the version of the stream, in a
// transaction of its own and one round trip. It is the least because it keeps no
// streams and leaves it to the server which commits share a write to the disk.
func singleTwin(ctx context.Context, t *trial) error {
	conn, end, err := t.connection(ctx, grown(manyStreamsCount))
	if err != nil {
		return err
	}
	defer end()
	conns, hangUp, err := connections(ctx, conn.Config(), callers)
	if err != nil {
		return err
	}
	defer hangUp()
	err = t.measureCallers(ctx, func(ctx context.Context, caller int, m weir.Message, at weir.Version) error {
		return appendChecked(ctx, conns[caller], int64(caller+1), m, at)
	})
	if err != nil {
		return err
	}
	return t.expectRows(ctx, conn, manyStreamsCount)
}

func appendChecked(ctx context.Context, conn *pgx.Conn, stream int64, m weir.Message, at weir.Version) error {
	shard := int16(m.Stream.Shard(weir.DefaultShards))
	done, err := conn.Exec(ctx, appendEvent, stream, int64(at), [16]byte(m.ID), shard, m.Type, string(m.Data), metadata)
	if err == nil && done.RowsAffected() != 1 {
		err = fmt.Errorf("stream %d is not at version %d", stream, at)
	}
	return err
}

// connections opens n connections.
func connections(ctx context.Context, config *pgx.ConnConfig, n int) (conns []*pgx.Conn, hangUp func(), err error) {
	hangUp = func() {
		for _, conn := range conns {
			conn.Close(context.WithoutCancel(ctx))
		}
	}
	for range n {
		conn, err := pgx.ConnectConfig(ctx, config)
		if err != nil {
			hangUp()
			return nil, nil, err
		}
		conns = append(conns, conn)
	}
	return conns, hangUp, nil
}
