package main

import (
	"context"
	_ "embed"
	"fmt"
	"iter"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-es/weir"
)

var (
	//go:embed sql/read_log.sql
	readLog string
	//go:embed sql/read_stream.sql
	readStream string
)

// longEvents is how many events the stream has that is read as a whole.
const longEvents = 10_000

// streamOurs reads a long stream again and again with Store.Stream.
func streamOurs(ctx context.Context, t *trial) error {
	s, end, err := t.store(ctx, long)
	if err != nil {
		return err
	}
	defer end()
	return t.expectRead(func() (read int, err error) {
		for range t.n / longEvents {
			n, err := drain(s.Stream(ctx, streamName(0), 0))
			if read += n; err != nil {
				return read, err
			}
		}
		return read, nil
	})
}

// streamTwin reads the same with one query for the whole stream. It is the least
// because it keeps the connection while it reads and makes no events of the rows.
func streamTwin(ctx context.Context, t *trial) error {
	conn, end, err := t.connection(ctx, long)
	if err != nil {
		return err
	}
	defer end()
	return t.expectRead(func() (read int, err error) {
		for range t.n / longEvents {
			n, _, err := scan(ctx, conn, readStream, string(streamName(0)))
			if read += n; err != nil {
				return read, err
			}
		}
		return read, nil
	})
}

// logOurs reads everything with Store.Log.
func logOurs(ctx context.Context, t *trial) error {
	s, end, err := t.store(ctx, history(t.n))
	if err != nil {
		return err
	}
	defer end()
	if _, err := complete(ctx, s); err != nil {
		return err
	}
	return t.expectRead(func() (int, error) { return drain(s.Log(ctx, 0)) })
}

// logTwin reads everything in pages of a thousand, by position. It is the least
// because it makes no events of the rows and does not ask which positions are
// still to appear.
func logTwin(ctx context.Context, t *trial) error {
	conn, end, err := t.connection(ctx, history(t.n))
	if err != nil {
		return err
	}
	defer end()
	return t.expectRead(func() (read int, err error) {
		for after := int64(0); ; {
			n, last, err := scan(ctx, conn, readLog, after)
			if err != nil || n == 0 {
				return read, err
			}
			read, after = read+n, last
		}
	})
}

// expectRead measures a read and expects it to find all.
func (t *trial) expectRead(all func() (int, error)) error {
	var read int
	err := t.measure(func() (err error) { read, err = all(); return err })
	if err != nil {
		return err
	}
	return t.expect("events read", read, t.n)
}

// drain counts events, each of which must be a whole one, after the one before it.
func drain(events iter.Seq2[weir.Event, error]) (read int, err error) {
	var last weir.Position
	for e, err := range events {
		if err != nil {
			return read, err
		}
		if len(e.Data) != factBytes || e.Metadata.Producer != producer || e.Position <= last {
			return read, fmt.Errorf("event %s at position %d after %d is not one that was stored", e.ID, e.Position, last)
		}
		read, last = read+1, e.Position
	}
	return read, nil
}

// scan reads rows with the columns of an event, counts them and returns the last
// position.
func scan(ctx context.Context, conn *pgx.Conn, query string, argument any) (read int, last int64, err error) {
	var position, version, stream int64
	var name, kind string
	var id [16]byte
	var order *[16]byte
	var data, bytes, about []byte
	var content *string
	var recorded time.Time
	var shard int16
	found, err := conn.Query(ctx, query, argument)
	if err != nil {
		return 0, 0, err
	}
	defer found.Close()
	for found.Next() {
		err := found.Scan(&position, &name, &version, &id, &order, &kind, &data, &bytes, &content, &about, &recorded, &stream, &shard)
		if err != nil {
			return read, last, err
		}
		if len(data) != factBytes || position <= last {
			return read, last, fmt.Errorf("row at position %d after %d is not one that was stored", position, last)
		}
		read, last = read+1, position
	}
	return read, last, found.Err()
}
