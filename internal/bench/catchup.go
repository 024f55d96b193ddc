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
	//go:embed sql/create_twin_view.sql
	createTwinView string
	//go:embed sql/stream_names.sql
	streamNames string
	//go:embed sql/read_page.sql
	readPage string
	//go:embed sql/upsert_rows.sql
	upsertRows string
	//go:embed sql/move_checkpoint.sql
	moveCheckpoint string
	//go:embed sql/count_view.sql
	countView string
	//go:embed sql/count_twin_view.sql
	countTwinView string
)

// account is the state that both sides fold payments into.
type account struct {
	Payments int    `json:"payments"`
	Amount   int    `json:"amount"`
	Last     string `json:"last"`
}

// Evolve counts and adds up.
func (a account) Evolve(event any) account {
	p := event.(payment)
	return account{a.Payments + 1, a.Amount + p.Amount, p.Account}
}

var accounts = projection.View[account]{Name: "accounts"}

// catchUpOurs lets a worker fold everything in the store into a view, one row per
// stream, from its start until its checkpoint is at the end.
func catchUpOurs(ctx context.Context, t *trial) error {
	s, end, err := t.store(ctx, history(t.n))
	if err != nil {
		return err
	}
	defer end()
	w, err := worker(ctx, s)
	if err != nil {
		return err
	}
	head, err := complete(ctx, s)
	if err != nil {
		return err
	}
	if err := t.measure(func() error { return catchUp(ctx, w, head) }); err != nil {
		return err
	}
	if applied := w.Progress().Applied; applied != int64(t.n) {
		return fmt.Errorf("the worker applied %d events of %d", applied, t.n)
	}
	return t.expectPayments(ctx, s.Pool().QueryRow(ctx, countView))
}

// worker owns all shards of the store.
func worker(ctx context.Context, s *eventstore.Store) (*projection.Worker, error) {
	instance := s.Join("bench")
	defer instance.Disconnect(ctx)
	if _, err := instance.Heartbeat(ctx); err != nil {
		return nil, err
	}
	var shards []weir.Shard
	for i := range s.Shards() {
		shards = append(shards, weir.Shard(i))
	}
	leases, err := instance.Claim(ctx, "bench", shards)
	if err != nil {
		return nil, err
	}
	return &projection.Worker{Store: s, Projection: accounts, Fence: instance.Guard("bench", leases)}, nil
}

// complete waits until the horizon is at the last event and returns where.
func complete(ctx context.Context, s *eventstore.Store) (weir.Position, error) {
	_, head, err := s.ReadHorizon(ctx)
	if err != nil {
		return 0, err
	}
	return s.WaitHorizon(ctx, head-1)
}

func catchUp(ctx context.Context, w *projection.Worker, head weir.Position) (err error) {
	run, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	var runErr error
	running.Go(func() { runErr = w.Run(run) })
	err = w.Wait(ctx, head)
	stop()
	running.Wait()
	return errors.Join(err, runErr)
}

// expectPayments sums up the rows of a view.
func (t *trial) expectPayments(ctx context.Context, row pgx.Row) error {
	var streams, payments, amount int
	if err := row.Scan(&streams, &payments, &amount); err != nil {
		return err
	}
	if amount != 7*t.n {
		return fmt.Errorf("payments come to %d, want %d", amount, 7*t.n)
	}
	return t.expect("payments in the view", payments, t.n)
}

// catchUpTwin reads the log in pages of a thousand over one connection, decodes,
// folds into a map and, per page, upserts the rows that changed and moves the
// checkpoint, in one transaction and one round trip. It is the least because all
// rows stay in memory and are never read, so it cannot go on after a restart; it
// sorts nothing, notices nothing late, missing or repeated, holds no lease, and
// does not ask which positions are still to appear.
func catchUpTwin(ctx context.Context, t *trial) error {
	conn, end, err := t.connection(ctx, history(t.n))
	if err != nil {
		return err
	}
	defer end()
	if err := t.measure(func() error { return foldLog(ctx, conn) }); err != nil {
		return err
	}
	return t.expectPayments(ctx, conn.QueryRow(ctx, countTwinView))
}

// folded is a row of the twin's view.
type folded struct {
	name     string
	state    account
	version  int64
	last     [16]byte
	position int64
}

func foldLog(ctx context.Context, conn *pgx.Conn) error {
	names, err := readNames(ctx, conn)
	if err != nil {
		return err
	}
	all := map[int64]*folded{}
	for after := int64(0); ; {
		changed, last, err := foldPage(ctx, conn, after, names, all)
		if err != nil || len(changed) == 0 {
			return err
		}
		if err := writePage(ctx, conn, changed, last); err != nil {
			return err
		}
		after = last
	}
}

func readNames(ctx context.Context, conn *pgx.Conn) (map[int64]string, error) {
	names := map[int64]string{}
	var id int64
	var name string
	found, err := conn.Query(ctx, streamNames)
	if err != nil {
		return nil, err
	}
	_, err = pgx.ForEachRow(found, []any{&id, &name}, func() error {
		names[id] = name
		return nil
	})
	return names, err
}

// foldPage folds what comes after a position and returns the rows that changed.
func foldPage(ctx context.Context, conn *pgx.Conn, after int64, names map[int64]string, all map[int64]*folded) (changed map[int64]*folded, last int64, err error) {
	changed = map[int64]*folded{}
	found, err := conn.Query(ctx, readPage, after)
	if err != nil {
		return nil, 0, err
	}
	var position, stream, version int64
	var id [16]byte
	var p payment // pgx decodes the column into it, with encoding/json
	_, err = pgx.ForEachRow(found, []any{&position, &stream, &version, &id, &p}, func() error {
		row := all[stream]
		if row == nil {
			row = &folded{name: names[stream]}
			all[stream] = row
		}
		row.state, row.version, row.last, row.position = row.state.Evolve(p), version, id, position
		changed[stream], last = row, position
		return nil
	})
	return changed, last, err
}

// writePage is one transaction, since a batch without begin is one.
func writePage(ctx context.Context, conn *pgx.Conn, changed map[int64]*folded, last int64) error {
	var keys, states []string
	var versions, positions []int64
	var ids [][16]byte
	for _, row := range changed {
		state, err := json.Marshal(row.state)
		if err != nil {
			return err
		}
		keys, states = append(keys, row.name), append(states, string(state))
		versions, positions, ids = append(versions, row.version), append(positions, row.position), append(ids, row.last)
	}
	var b pgx.Batch
	b.Queue(upsertRows, keys, states, versions, ids, positions)
	b.Queue(moveCheckpoint, last)
	return conn.SendBatch(ctx, &b).Close()
}
