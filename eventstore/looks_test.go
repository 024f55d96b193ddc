package eventstore_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weir-es/weir/eventstore"
	"github.com/weir-es/weir/internal/testkit"
)

// looks counts how often the horizon is asked for.
type looks struct{ atomic.Int64 }

func (l *looks) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if strings.HasPrefix(data.SQL, "-- The last position drawn.") {
		l.Add(1)
	}
	return ctx
}

func (l *looks) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// The horizon is read for those who wait for it: at once after an append, and not at all
// while nobody does.
func TestP6_HorizonIsReadForWhoWaits(t *testing.T) {
	t.Parallel()
	ctx := testkit.Context(t)
	var l looks
	config, err := pgxpool.ParseConfig(testkit.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	config.ConnConfig.Tracer = &l
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	s := testkit.Store(t, eventstore.Config{Pool: pool, Poll: time.Hour})
	running, stop := context.WithCancel(ctx)
	ended := make(chan error)
	go func() { ended <- s.Run(running) }()
	defer func() { stop(); <-ended }()

	first := appendOne(t, s, "a-1").Position
	if _, err := s.WaitHorizon(ctx, first-1); err != nil {
		t.Fatal(err)
	}
	before := l.Load()
	last := first
	for range 300 {
		last = appendOne(t, s, "a-1").Position
	}
	if n := l.Load() - before; n > 2 {
		t.Errorf("looked %d times for nobody", n)
	}
	if at, err := s.WaitHorizon(ctx, last-1); at < last || err != nil {
		t.Errorf("the horizon is at %d, want %d; %v", at, last, err)
	}
}
