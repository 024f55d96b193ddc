package app_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/internal/testkit"
	"github.com/weir-es/weir/transport"
)

// roles is a broker with the users of deploy/nats-permissions.conf.
type roles struct {
	address string
	refused atomic.Value // what the broker forbade last
}

func newRoles(t *testing.T) *roles {
	t.Helper()
	for _, role := range []string{"PROVISION", "PRODUCER", "APP", "SUBSCRIBER"} {
		t.Setenv("WEIR_"+role+"_PASSWORD", "secret")
	}
	options := &server.Options{}
	if err := options.ProcessConfigFile("../deploy/nats-permissions.conf"); err != nil {
		t.Fatal(err)
	}
	options.Host, options.Port, options.NoSigs, options.NoLog = "127.0.0.1", server.RANDOM_PORT, true, true
	options.JetStream, options.StoreDir = true, t.TempDir()
	s, err := server.NewServer(options)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(10 * time.Second) {
		t.Fatal("the broker is not ready")
	}
	return &roles{address: s.Addr().String()}
}

func (r *roles) conn(t *testing.T, role string) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(fmt.Sprintf("nats://%s:secret@%s", role, r.address), nats.CustomInboxPrefix("_INBOX_"+role),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { r.refused.Store(role + ": " + err.Error()) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

func (r *roles) broker(t *testing.T, role string) *transport.Conn {
	t.Helper()
	c, err := transport.Connect(testkit.Context(t), transport.Config{Conn: r.conn(t, role), MaxBytes: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// TestEachRoleMayDoItsWork and is refused nothing meanwhile: a producer publishes, an app
// stores, shows, purges and relays, and another service is given what was committed.
func TestEachRoleMayDoItsWork(t *testing.T) {
	r, ctx := newRoles(t), testkit.Context(t)
	provision := r.broker(t, "provision")
	if err := provision.Declare(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := provision.DeclareLog(ctx); err != nil {
		t.Fatal(err)
	}
	config := service(t)
	config.Name, config.NATS, config.Conn, config.Inbox, config.Relay = "weir", "", r.conn(t, "app"), soon, true
	a := open(t, config)
	stop := begin(t, a)
	m, err := a.Message("seat-1", held{"Ada"})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.broker(t, "producer").Publisher().Publish(ctx, m); err != nil {
		t.Fatal(err)
	}
	awaitGuests(t, a, "seat-1", 1, 20*time.Second)
	handling, handled := context.WithCancel(ctx)
	var got weir.Event
	err = r.broker(t, "subscriber").Subscribe(handling, transport.Subscription{Name: "books_billing"}, func(_ context.Context, d *transport.Delivery) error {
		got = d.Event
		handled()
		return d.Err
	})
	if err != nil || got.ID != m.ID {
		t.Errorf("the subscriber was given %+v, %v", got, err)
	}
	settle(t, a, 10*time.Second)
	if err := stop(); err != nil {
		t.Error(err)
	}
	if what := r.refused.Load(); what != nil {
		t.Errorf("refused: %v", what)
	}
}
