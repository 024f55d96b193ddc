package transport

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/devserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// impatience is how long a lost connection waits before it comes back.
const impatience = 5 * time.Millisecond

// patience is how long a test waits for what must happen.
const patience = 30 * time.Second

func testContext(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

func startServer(t testing.TB) *devserver.NATS {
	t.Helper()
	server, err := devserver.StartNATS(testContext(t), devserver.NATSConfig{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	return server
}

func connect(t testing.TB, server *devserver.NATS, config Config) *Conn {
	t.Helper()
	config.URL, config.reconnectWait = server.URL(), impatience
	if config.Namespace == "" {
		config.Namespace = "t"
	}
	if config.Shards == 0 {
		config.Shards = 4
	}
	c, err := Connect(testContext(t), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// declared is a server with one declared connection.
func declared(t testing.TB, config Config) (*devserver.NATS, *Conn) {
	t.Helper()
	server := startServer(t)
	c := connect(t, server, config)
	must(t, c.Declare(testContext(t)))
	return server, c
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func message(stream weir.StreamID, n int) weir.Message {
	return weir.Message{ID: weir.NewID(), Stream: stream, Type: "test.happened", Data: fmt.Appendf(nil, `{"n":%d}`, n)}
}

// receiving is a Receive that runs in the background.
type receiving struct {
	t      testing.TB
	got    chan *Delivery
	result chan error
	stop   context.CancelFunc
}

func receive(t testing.TB, c *Conn, shard weir.Shard) *receiving {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	r := &receiving{t, make(chan *Delivery, 100_000), make(chan error, 1), stop}
	go func() { r.result <- c.Receive(ctx, shard, func(d *Delivery) { r.got <- d }) }()
	t.Cleanup(stop)
	return r
}

func (r *receiving) next() *Delivery {
	r.t.Helper()
	select {
	case d := <-r.got:
		return d
	case err := <-r.result:
		r.t.Fatalf("Receive returned: %v", err)
	case <-time.After(patience):
		r.t.Fatal("nothing was delivered")
	}
	return nil
}

// end stops the Receive and returns its error.
func (r *receiving) end() error {
	r.t.Helper()
	r.stop()
	return r.wait()
}

func (r *receiving) wait() error {
	r.t.Helper()
	select {
	case err := <-r.result:
		return err
	case <-time.After(patience):
		r.t.Fatal("Receive did not return")
	}
	return nil
}

// eventually waits until ok holds.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(patience)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("never: %s", what)
		}
	}
}

// receiveAll receives every shard, acks at once and counts.
func receiveAll(t testing.TB, c *Conn) (acked func() int) {
	t.Helper()
	var count atomic.Int64
	ctx, stop := context.WithCancel(context.Background())
	var group sync.WaitGroup
	for shard := range c.config.Shards {
		group.Go(func() {
			err := c.Receive(ctx, weir.Shard(shard), func(d *Delivery) {
				count.Add(1)
				_ = d.Ack()
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(func() { stop(); group.Wait() })
	return func() int { return int(count.Load()) }
}
