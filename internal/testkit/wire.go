package testkit

import (
	"context"
	"io"
	"net"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Wire is a pool of connections that can break at the worst moment: after the
// server has ended a transaction and before the client hears of it.
type Wire struct {
	Pool *pgxpool.Pool
	cuts atomic.Int32
	lost atomic.Int32
}

// NewWire connects to a server without TLS.
func NewWire(t testing.TB, url string) *Wire {
	t.Helper()
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = 16
	w := &Wire{}
	dial := config.ConnConfig.DialFunc
	config.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &wireConn{Conn: conn, wire: w}, nil
	}
	if w.Pool, err = pgxpool.NewWithConfig(Context(t), config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Pool.Close)
	return w
}

// Cut breaks the connections of the next n transactions, after their end.
func (w *Wire) Cut(n int) { w.cuts.Store(int32(n)) }

// Lost is how many transactions ended without the client hearing of it.
func (w *Wire) Lost() int { return int(w.lost.Load()) }

type wireConn struct {
	net.Conn
	wire *Wire

	// Owned by whoever reads.
	tail []byte
}

// Read passes on what comes, but for the message that says that a transaction is
// over.
func (c *wireConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.tail = append(c.tail, b[:n]...)
	c.tail = c.tail[max(0, len(c.tail)-len(committed)):]
	if string(c.tail) == committed && c.wire.cuts.Add(-1) >= 0 {
		c.wire.lost.Add(1)
		c.Conn.Close()
		return 0, io.ErrUnexpectedEOF
	}
	return n, err
}

// committed is the end of the answer to a commit, however many statements were sent
// with it: its name, and that the server is ready and idle.
const committed = "COMMIT\x00Z\x00\x00\x00\x05I"
