package projection_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/eventstore"
	"github.com/weir-es/weir/internal/testkit"
)

// replays counts the statements that read parts of streams for a rewind and for nothing
// else.
type replays struct{ atomic.Int64 }

func (r *replays) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if strings.HasPrefix(data.SQL, "-- Events of several streams") {
		r.Add(1)
	}
	return ctx
}

func (r *replays) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// TestP5_AShortRewindReadsAlongWithItsRows, and one that is long, or one of many, when it
// is known to be needed; the rows are the same.
func TestP5_AShortRewindReadsAlongWithItsRows(t *testing.T) {
	t.Parallel()
	var r replays
	pc, err := pgxpool.ParseConfig(testkit.Database(t))
	must(t, err)
	pc.ConnConfig.Tracer = &r
	pool, err := pgxpool.NewWithConfig(testkit.Context(t), pc)
	must(t, err)
	t.Cleanup(pool.Close)
	registry, err := weir.NewRegistry(types)
	must(t, err)
	s := testkit.Store(t, eventstore.Config{Pool: pool, Types: registry})
	w, _ := start(t, s, lists)
	for name, c := range map[string]struct {
		streams, events, late int // each stream has events, of which one comes when all others are there
		replays               bool
	}{
		"one stream":                  {1, 20, 10, false},
		"the first event":             {1, 20, 0, false},
		"from a snapshot":             {3, 300, 290, false},
		"many streams":                {40, 3, 1, true},
		"more events than come along": {1, 300, 5, true},
	} {
		var first, tardy []weir.Message
		for n := range c.streams {
			for i := range c.events {
				m := add(weir.Stream(strings.ReplaceAll(name, " ", ""), fmt.Sprint(n)), i)
				if i == c.late {
					tardy = append(tardy, m)
				} else {
					first = append(first, m)
				}
			}
		}
		ingest(t, s, first...)
		settle(t, s, w)
		r.Store(0)
		before := w.Progress().Rewinds
		ingest(t, s, tardy...)
		settle(t, s, w)
		if n := r.Load(); n > 0 != c.replays {
			t.Errorf("%s: %d statements replayed", name, n)
		}
		if n := w.Progress().Rewinds - before; n != int64(c.streams) {
			t.Errorf("%s: %d rewinds, want %d", name, n, c.streams)
		}
		for _, m := range tardy {
			var all []int
			for i := range c.events {
				all = append(all, i)
			}
			want(t, s, string(m.Stream), all...)
		}
	}
}
