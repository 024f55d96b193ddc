package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"golang.org/x/sync/errgroup"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/eventstore"
)

var (
	//go:embed sql/append_event.sql
	appendEvent string
	//go:embed sql/append_next.sql
	appendNext string
)

// crowd are goroutines that append one event after the other at the same time.
type crowd struct {
	callers int
	shared  bool // all to one stream, instead of each to its own
}

// single is one of the events that a crowd appends.
type single struct {
	weir.Message
	number int64        // of the stream, as the twin knows it
	at     weir.Version // of the stream before it, when nobody else writes to it
}

// singles are the events of each caller, of streams of grown templates.
func (c crowd) singles(n int) [][]single {
	all := make([][]single, c.callers)
	for i := range n {
		caller, stream := i%c.callers, 0
		if !c.shared {
			stream = caller
		}
		all[caller] = append(all[caller], single{fact(stream), int64(stream + 1), weir.Version(len(all[caller]) + 1)})
	}
	return all
}

// measure lets all callers append their events, in order.
func (c crowd) measure(ctx context.Context, t *trial, appendOne func(ctx context.Context, caller int, one single) error) error {
	all := c.singles(t.n)
	return t.measure(func() error {
		g, ctx := errgroup.WithContext(ctx)
		for caller, events := range all {
			g.Go(func() error {
				for _, one := range events {
					if err := appendOne(ctx, caller, one); err != nil {
						return err
					}
				}
				return nil
			})
		}
		return g.Wait()
	})
}

// ours appends with a call of the store; what comes together shares transactions.
func (c crowd) ours(appendOne func(ctx context.Context, s *eventstore.Store, one single) error) side {
	return func(ctx context.Context, t *trial) error {
		s, end, err := t.store(ctx, grown(manyStreamsCount))
		if err != nil {
			return err
		}
		defer end()
		err = c.measure(ctx, t, func(ctx context.Context, _ int, one single) error { return appendOne(ctx, s, one) })
		if err != nil {
			return err
		}
		return t.expectEvents(ctx, s, manyStreamsCount)
	}
}

// twin does what one would write by hand: every caller has a connection, and an
// append is one insert in a transaction of its own. It is the least because it
// keeps no streams and leaves it to the server which commits share a write to the
// disk.
func (c crowd) twin(appendOne func(ctx context.Context, conn *pgx.Conn, one single) error) side {
	return func(ctx context.Context, t *trial) error {
		conn, end, err := t.connection(ctx, grown(manyStreamsCount))
		if err != nil {
			return err
		}
		defer end()
		conns, hangUp, err := connections(ctx, conn.Config(), c.callers)
		if err != nil {
			return err
		}
		defer hangUp()
		err = c.measure(ctx, t, func(ctx context.Context, caller int, one single) error { return appendOne(ctx, conns[caller], one) })
		if err != nil {
			return err
		}
		return t.expectRows(ctx, conn, manyStreamsCount)
	}
}

// appendExactly appends at the version that the caller expects.
func appendExactly(ctx context.Context, s *eventstore.Store, one single) error {
	_, err := s.Append(ctx, one.Stream, weir.Exactly(one.at), one.Message)
	return err
}

// appendAny appends wherever the stream is.
func appendAny(ctx context.Context, s *eventstore.Store, one single) error {
	_, err := s.Append(ctx, one.Stream, weir.AnyVersion, one.Message)
	return err
}

// appendInTx appends in a transaction of the caller's, with nothing else in it.
func appendInTx(ctx context.Context, s *eventstore.Store, one single) error {
	return pgx.BeginFunc(ctx, s.Pool(), func(tx pgx.Tx) error {
		_, err := s.AppendTx(ctx, tx, eventstore.Append{Stream: one.Stream, Expected: weir.Exactly(one.at), Messages: []weir.Message{one.Message}})
		return err
	})
}

// insertExactly checks the version in the insert: one round trip.
func insertExactly(ctx context.Context, conn *pgx.Conn, one single) error {
	done, err := conn.Exec(ctx, appendEvent, one.number, int64(one.at), [16]byte(one.ID), one.shard(), one.Type, string(one.Data), metadata)
	if err == nil && done.RowsAffected() != 1 {
		err = fmt.Errorf("stream %d is not at version %d", one.number, one.at)
	}
	return err
}

// insertInTx is insertExactly with begin and commit around it.
func insertInTx(ctx context.Context, conn *pgx.Conn, one single) error {
	return pgx.BeginFunc(ctx, conn, func(pgx.Tx) error { return insertExactly(ctx, conn, one) })
}

// insertNext takes the next version that it sees, again when somebody else had it.
func insertNext(ctx context.Context, conn *pgx.Conn, one single) error {
	for {
		_, err := conn.Exec(ctx, appendNext, one.number, [16]byte(one.ID), one.shard(), one.Type, string(one.Data), metadata)
		if !isTaken(err) {
			return err
		}
	}
}

func isTaken(err error) bool {
	var refused *pgconn.PgError
	return errors.As(err, &refused) && refused.Code == "23505"
}

func (s single) shard() int16 { return int16(s.Stream.Shard(weir.DefaultShards)) }

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
