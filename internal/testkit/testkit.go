// Package testkit gives the tests of this module real servers: one PostgreSQL
// and one NATS per test binary, a database per test. It is for tests only.
package testkit

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/weir-es/weir/devserver"
	"github.com/weir-es/weir/eventstore"
)

var (
	postgres = sync.OnceValues(func() (*devserver.Postgres, error) {
		return devserver.StartPostgres(context.Background(), devserver.PostgresConfig{
			Settings: map[string]string{"max_prepared_transactions": "10"}})
	})
	nats = sync.OnceValues(func() (*devserver.NATS, error) {
		return devserver.StartNATS(context.Background(), devserver.NATSConfig{})
	})
	mu     sync.Mutex
	closes []func() error
)

// Main runs the tests and stops the servers that they started. Call it from
// TestMain.
func Main(m *testing.M) {
	code := m.Run()
	mu.Lock()
	for _, stop := range closes {
		if err := stop(); err != nil {
			fmt.Fprintln(os.Stderr, "stop a test server:", err)
			code = max(code, 1)
		}
	}
	os.Exit(code)
}

func atExit(stop func() error) {
	mu.Lock()
	defer mu.Unlock()
	closes = append(closes, stop)
}

var noteOnce, natsOnce sync.Once

// Postgres is the server that the tests of this binary share.
func Postgres(t testing.TB) *devserver.Postgres {
	t.Helper()
	server, err := postgres()
	if err != nil {
		t.Fatal(err)
	}
	noteOnce.Do(func() { atExit(server.Close) })
	return server
}

// NATS is the URL of the server that the tests of this binary share.
func NATS(t testing.TB) string {
	t.Helper()
	server, err := nats()
	if err != nil {
		t.Fatal(err)
	}
	natsOnce.Do(func() { atExit(server.Close) })
	return server.URL()
}

// Database is the URL of a new database with the schema "weir" in it.
func Database(t testing.TB) string {
	t.Helper()
	url, err := Postgres(t).CloneDatabase(Context(t), "weir", func(ctx context.Context, url string) error {
		s, err := eventstore.Open(ctx, eventstore.Config{URL: url})
		if err == nil {
			s.Close()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return url
}

// Empty is the URL of a new database with nothing in it.
func Empty(t testing.TB) string {
	t.Helper()
	url, err := Postgres(t).NewDatabase(Context(t))
	if err != nil {
		t.Fatal(err)
	}
	return url
}

// Store opens a store in a new database, unless config names one, and keeps its
// horizon up to date until the test ends.
func Store(t testing.TB, config eventstore.Config) *eventstore.Store {
	t.Helper()
	if config.URL == "" {
		config.URL = Database(t)
	}
	s, err := eventstore.Open(Context(t), config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		s.Close()
	})
	return s
}

// Context ends with the test, or after two minutes, so that no test hangs.
func Context(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}
