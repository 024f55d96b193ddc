package testkit

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Guillotine ends the life of a pool at one of its statements: that one and all after
// it are not sent, as if the process had died before.
type Guillotine struct {
	// Fell is closed when it has.
	Fell chan struct{}
	left atomic.Int64
	dead atomic.Bool
}

// Mortal is a pool to a database, and what can end it.
func Mortal(t testing.TB, url string) (*pgxpool.Pool, *Guillotine) {
	t.Helper()
	g := &Guillotine{Fell: make(chan struct{})}
	g.left.Store(-1)
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = 16
	config.ConnConfig.Tracer = g
	pool, err := pgxpool.NewWithConfig(Context(t), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool, g
}

// At has it fall at the nth statement from now; never, if n is below zero.
func (g *Guillotine) At(n int64) { g.left.Store(n) }

func (g *Guillotine) next(ctx context.Context) context.Context {
	if g.left.Add(-1) == 0 && g.dead.CompareAndSwap(false, true) {
		close(g.Fell)
	}
	if !g.dead.Load() {
		return ctx
	}
	over, cancel := context.WithCancel(ctx)
	cancel()
	return over
}

// TraceQueryStart is called by pgx, as are the following.
func (g *Guillotine) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return g.next(ctx)
}

func (g *Guillotine) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (g *Guillotine) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return g.next(ctx)
}

func (g *Guillotine) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

func (g *Guillotine) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}
