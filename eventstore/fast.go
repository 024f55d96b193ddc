package eventstore

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/weir-es/weir/internal/crash"
)

// guess is the plan of a group from the heads that are remembered instead of read, so
// that one round trip is enough: the statements lock the streams, compare, and store
// nothing unless all are where they are believed to be.
type guess struct {
	*writer
	believed []any // ids, versions and last orders of the streams, sorted by name
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
	g.believed = believedArguments(heads)
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
	b.Queue(g.s.sql.HoldHeads, append(g.believed, g.s.lock, g.s.table)...).QueryRow(func(row pgx.Row) error {
		return row.Scan(&held, &g.recorded, nil, nil, nil, nil)
	})
	b.Queue(g.s.sql.InsertHeld, append(insertArguments(g.plan.rows), advanceArguments(g.plan.heads)...)...).Query(func(rows pgx.Rows) error {
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

func believedArguments(heads []head) []any {
	ids, versions, lasts := make([]int64, len(heads)), make([]int64, len(heads)), make([][16]byte, len(heads))
	for i, h := range heads {
		ids[i], versions[i], lasts[i] = h.id, int64(h.version), h.last
	}
	return []any{ids, versions, lasts}
}
