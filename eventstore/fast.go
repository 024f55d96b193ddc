package eventstore

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/weir-es/weir/internal/crash"
)

// guess is the plan of a group from the heads that are remembered instead of read, so
// that one round trip is enough: the statements lock the streams, compare, and store
// nothing unless all are where they are believed to be.
type guess struct {
	*writer
	believed []head // of the streams, sorted by name
}

// runAtOnce stores the group by a guess and reports whether it did; if not, nothing
// has happened and run is the way.
func (w *writer) runAtOnce(ctx context.Context, q sender) (bool, error) {
	if w.careful {
		return false, nil
	}
	g := guess{writer: w}
	if !g.form() {
		return false, nil
	}
	return g.send(ctx, q)
}

// form plans from memory. It refuses what would end in a conflict or only compare: that
// needs to be known for certain.
func (g *guess) form() bool {
	streams := g.streams()
	heads, ok := g.s.existing.take(streams)
	if !ok {
		return false
	}
	g.believed = slices.Clone(heads)
	g.plan = newPlan(len(streams), g.requests)
	for i := range heads {
		g.plan.heads[streams[i]] = &heads[i]
	}
	for _, r := range g.requests {
		if r.err = g.plan.add(r); r.err != nil {
			return false
		}
	}
	return len(g.plan.rows) > 0
}

func (g *guess) send(ctx context.Context, q sender) (held bool, err error) {
	var b pgx.Batch
	b.Queue(beginSQL)
	g.queueHold(&b, &held)
	b.Queue(g.s.sql.InsertEvents, insertArguments(g.plan.rows)...).Query(func(rows pgx.Rows) error {
		if !held {
			return nil
		}
		return g.scanPositions(rows)
	})
	b.Queue(commitSQL)
	crash.At(crash.AppendPlanned)
	err = q.SendBatch(ctx, &b).Close()
	return held, err
}

// queueHold compares and moves the heads. For one stream that is one statement. Of
// several some may be where they should and others not, so they are locked first.
func (g *guess) queueHold(b *pgx.Batch, held *bool) {
	scan := func(row pgx.Row) error { return row.Scan(held, &g.recorded, nil, nil, nil, nil) }
	if len(g.believed) == 1 {
		b.Queue(g.s.sql.MoveHead, g.moveArguments()...).QueryRow(scan)
		return
	}
	b.Queue(g.s.sql.HoldHeads, g.holdArguments()...).QueryRow(scan)
	b.Queue(g.s.sql.AdvanceStreams, advanceArguments(g.plan.heads)...)
}

func (g *guess) moveArguments() []any {
	from, to := g.believed[0], g.plan.rows[0].head
	return []any{from.id, int64(from.version), [16]byte(from.last), int64(to.version), [16]byte(to.last), g.s.lock, g.s.table}
}

func (g *guess) holdArguments() []any {
	n := len(g.believed)
	ids, versions, lasts := make([]int64, n), make([]int64, n), make([][16]byte, n)
	for i, h := range g.believed {
		ids[i], versions[i], lasts[i] = h.id, int64(h.version), h.last
	}
	return []any{ids, versions, lasts, g.s.lock, g.s.table}
}
