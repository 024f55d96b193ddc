package app_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/app"
	"github.com/weir-es/weir/devserver"
	"github.com/weir-es/weir/internal/testkit"
)

// ownPostgres is a server that the test may stop.
func ownPostgres(t *testing.T) *devserver.Postgres {
	t.Helper()
	server, err := devserver.StartPostgres(testkit.Context(t), devserver.PostgresConfig{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	return server
}

// ownNATS is a broker that the test may stop.
func ownNATS(t *testing.T) *devserver.NATS {
	t.Helper()
	server, err := devserver.StartNATS(testkit.Context(t), devserver.NATSConfig{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	return server
}

// broker is the broker as an outsider sees it.
type broker struct {
	*nats.Conn
	js   jetstream.JetStream
	name string // of the ingest stream
	base string // of its subjects
}

func outsider(t *testing.T, config app.Config) broker {
	t.Helper()
	nc, err := nats.Connect(config.NATS)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return broker{nc, js, "WEIR_" + strings.ToUpper(config.Name) + "_INGEST", "weir." + config.Name + ".ingest."}
}

// state is how many messages no receiver was given, and how many were given and
// not acked.
func (b broker) state(t *testing.T) (waiting, unacked int) {
	t.Helper()
	stream, err := b.js.Stream(testkit.Context(t), b.name)
	if err != nil {
		t.Fatal(err)
	}
	for info := range stream.ListConsumers(testkit.Context(t)).Info() {
		waiting += int(info.NumPending)
		unacked += info.NumAckPending
	}
	return waiting, unacked
}

// logs collects what a service says.
type logs struct {
	mu    sync.Mutex
	lines strings.Builder
}

func (l *logs) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lines.Write(b)
}

func (l *logs) has(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.lines.String(), text)
}

func (l *logs) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// crowd are facts about some seats, as they were emitted.
type crowd struct {
	facts map[weir.StreamID][]weir.Message
	sent  []weir.Message // in the order of sending
}

// newCrowd makes facts whose order of sending differs from the order of their ids.
func newCrowd(t *testing.T, a *app.App, facts, streams int) *crowd {
	t.Helper()
	c := &crowd{facts: map[weir.StreamID][]weir.Message{}}
	for n := range facts {
		stream := weir.Stream("seat", fmt.Sprint(n%streams))
		m, err := a.Message(stream, held{fmt.Sprint(n)})
		if err != nil {
			t.Fatal(err)
		}
		c.facts[stream] = append(c.facts[stream], m)
		c.sent = append(c.sent, m)
	}
	dice := rand.New(rand.NewPCG(1, 2))
	for i := range c.sent { // neighbours overtake each other
		j := min(i+dice.IntN(3*streams), len(c.sent)-1)
		c.sent[i], c.sent[j] = c.sent[j], c.sent[i]
	}
	return c
}

// send publishes all of them, some twice.
func (c *crowd) send(ctx context.Context, a *app.App) error {
	for n, m := range c.sent {
		for range 1 + n%10/9 {
			if err := a.Publisher().Send(ctx, m); err != nil {
				return err
			}
		}
	}
	return a.Publisher().Flush(ctx)
}

// check compares the store and both views with what was emitted.
func (c *crowd) check(t *testing.T, a *app.App) {
	t.Helper()
	ctx := testkit.Context(t)
	counts, err := a.Store.Counts(ctx)
	if err != nil || counts.Events != int64(len(c.sent)) {
		t.Errorf("%d events are stored, want %d; %v", counts.Events, len(c.sent), err)
	}
	for stream, facts := range c.facts {
		var want []string
		for _, m := range facts {
			var n int
			fmt.Sscanf(string(m.Data), `{"Guest":"%d"}`, &n)
			want = append(want, fmt.Sprint(n))
		}
		got, err := seats.Get(ctx, a.Store, string(stream))
		if err != nil || !slices.Equal(got.Guests, want) {
			t.Errorf("%s: %v, %v, want %v", stream, got.Guests, err, want)
		}
	}
	sum := 0
	for row, err := range guests.All(ctx, a.Store) {
		if err != nil || row.State.Seats != 1 {
			t.Errorf("guest %s was counted %d times, %v", row.Key, row.State.Seats, err)
		}
		sum++
	}
	if sum != len(c.sent) {
		t.Errorf("%d guests, want %d", sum, len(c.sent))
	}
}

// settle waits until a running app is up to date.
func settle(t *testing.T, a *app.App, limit time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(testkit.Context(t), limit)
	defer cancel()
	if err := a.Settle(ctx); err != nil {
		t.Fatalf("not settled after %s: %v; health: %+v; %+v", limit, err, a.Health(testkit.Context(t)), a.Stats())
	}
}

// expire makes every instance look dead to those who come after it.
func expire(t *testing.T, a *app.App) {
	t.Helper()
	alter(t, a, "update weir.instances set heartbeat_at = heartbeat_at - interval '1 minute'")
}
