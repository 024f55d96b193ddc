package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/eventstore"
	"github.com/weir-es/weir/projection"
)

var (
	//go:embed sql/read_sorted.sql
	readSorted string
	//go:embed sql/upsert_row.sql
	upsertRow string
	//go:embed sql/snapshot_size.sql
	snapshotSize string
)

// late is an event that comes after so many others of its stream that it belongs
// before.
type late struct {
	length int // of the stream
	places int
}

// rewindsOf is how many late events a full round has.
const rewindsOf = 20

// scaled is the same on a smaller scale, for rounds that are not full.
func (l late) scaled(n int) late {
	if n >= rewindsOf {
		return l
	}
	return late{max(l.length/20, 20), max(l.places/20, 10)}
}

// stream is a store with one long stream.
func (l late) stream() template {
	return template{fmt.Sprint("stream", l.length), func(ctx context.Context, url string) error {
		events := make([]weir.Message, l.length)
		for i := range events {
			events[i] = fact(0)
		}
		return prepare(ctx, url, events, createTwinView)
	}}
}

// ours lets a worker that is up to date apply one late event after the other, each
// from the moment it may read it until it is in the view. The twin begins when it knows
// what to fold, too; how long an event is on its way to the worker is what the
// benchmark of latency is for.
func (l late) ours(ctx context.Context, t *trial) error {
	l = l.scaled(t.n)
	s, end, err := t.quietStore(ctx, l.stream())
	if err != nil {
		return err
	}
	defer end()
	w, err := worker(ctx, s)
	if err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	var wait sync.WaitGroup
	var runErr error
	wait.Go(func() { runErr = w.Run(running) })
	defer func() { stop(); wait.Wait() }()
	if err := settle(ctx, s, w); err != nil {
		return err
	}
	for range t.n {
		if err := l.once(ctx, t, s, w); err != nil {
			return err
		}
	}
	if err := t.expect("rewinds", int(w.Progress().Rewinds), t.n); err != nil {
		return errors.Join(err, runErr)
	}
	return s.Pool().QueryRow(ctx, snapshotSize).Scan(&t.note)
}

func (l late) once(ctx context.Context, t *trial, s *eventstore.Store, w *projection.Worker) error {
	tardy, on := l.fact(s, ctx)
	if _, err := s.Ingest(ctx, false, on...); err != nil {
		return err
	}
	if err := settle(ctx, s, w); err != nil {
		return err
	}
	if _, err := s.Ingest(ctx, false, tardy); err != nil {
		return err
	}
	_, head, err := s.ReadHorizon(ctx)
	if err != nil {
		return err
	}
	return t.add(func() error { return w.Wait(ctx, head) })
}

// fact is a late event, and those that come before it where there are few: as many
// as it is late. One that is late by a part of the stream gets an id from the past.
func (l late) fact(s *eventstore.Store, ctx context.Context) (tardy weir.Message, on []weir.Message) {
	tardy = fact(0)
	if l.places <= 10 {
		for range l.places {
			on = append(on, fact(0))
		}
		return tardy, on
	}
	for e, err := range s.ReadStream(ctx, tardy.Stream, eventstore.Read{Backward: true, Limit: l.places}) {
		if err == nil {
			tardy.ID = weir.Derive(e.Order(), 0, fmt.Sprint(weir.NewID()))
		}
	}
	return tardy, nil
}

// settle waits until the worker has applied everything.
func settle(ctx context.Context, s *eventstore.Store, w *projection.Worker) error {
	_, head, err := s.ReadHorizon(ctx)
	if err != nil {
		return err
	}
	return w.Wait(ctx, head)
}

// twin folds the whole stream again for each late event: it reads it in order with one
// query, decodes, folds and writes the row. It is the least because it looks for
// nothing, keeps no ledger and notes no progress.
func (l late) twin(ctx context.Context, t *trial) error {
	l = l.scaled(t.n)
	conn, end, err := t.connection(ctx, l.stream())
	if err != nil {
		return err
	}
	defer end()
	for range t.n {
		if err := t.add(func() error { return replayAll(ctx, conn) }); err != nil {
			return err
		}
	}
	var streams, payments, amount int
	if err := conn.QueryRow(ctx, countTwinView).Scan(&streams, &payments, &amount); err != nil {
		return err
	}
	return t.expect("payments in the row", payments, l.length)
}

func replayAll(ctx context.Context, conn *pgx.Conn) error {
	rows, err := conn.Query(ctx, readSorted, string(streamName(0)))
	if err != nil {
		return err
	}
	var state account
	var p payment
	var version, position int64
	var id [16]byte
	_, err = pgx.ForEachRow(rows, []any{&position, &version, &id, &p}, func() error {
		state = state.Evolve(p)
		return nil
	})
	if err != nil {
		return err
	}
	text, err := json.Marshal(state)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, upsertRow, string(streamName(0)), string(text), version, id, position)
	return err
}
