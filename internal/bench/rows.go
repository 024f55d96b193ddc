package main

import (
	"context"
	_ "embed"

	"github.com/jackc/pgx/v5"

	"github.com/weir-es/weir"
)

var (
	//go:embed sql/insert_events.sql
	insertEvents string
	//go:embed sql/count_twin.sql
	countTwin string
)

// rows are events in the twin's table on their way there, one slice per column.
type rows struct {
	streams, versions []int64
	ids               [][16]byte
	shards            []int16
	types, data       []string
	metadata          []string
}

func (r *rows) add(stream, version int64, id weir.ID, shard int16, name string, data []byte, metadata string) {
	r.streams, r.versions = append(r.streams, stream), append(r.versions, version)
	r.ids, r.shards = append(r.ids, id), append(r.shards, shard)
	r.types, r.data = append(r.types, name), append(r.data, string(data))
	r.metadata = append(r.metadata, metadata)
}

// insert writes the rows in one statement, which is one transaction.
func (r *rows) insert(ctx context.Context, conn *pgx.Conn) error {
	_, err := conn.Exec(ctx, insertEvents, r.streams, r.versions, r.ids, r.shards, r.types, r.data, r.metadata)
	return err
}

// heads are the versions of streams as a twin remembers them: nobody else writes.
type heads map[int64]int64

func (h heads) next(stream int64) int64 {
	h[stream]++
	return h[stream]
}

// expectRows counts the twin's events; before is how many there were already.
func (t *trial) expectRows(ctx context.Context, conn *pgx.Conn, before int) error {
	var count int
	if err := conn.QueryRow(ctx, countTwin).Scan(&count); err != nil {
		return err
	}
	return t.expect("events stored", count-before, t.n)
}
