package main

import (
	"context"
	"net"
	"net/url"
	"testing"
	"time"

	"github.com/weir-es/weir/devserver"
)

// ownPostgres is a PostgreSQL that the test may stop.
func ownPostgres(t *testing.T) *devserver.Postgres {
	t.Helper()
	p, err := devserver.StartPostgres(t.Context(), devserver.PostgresConfig{Durable: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// background runs do and lets the test fail with it, at the latest at the end.
func background(t *testing.T, do func() error) {
	done := make(chan error, 1)
	go func() { done <- do() }()
	t.Cleanup(func() {
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestLoans_PostgresComesLater(t *testing.T) {
	postgres := ownPostgres(t)
	if err := postgres.Stop(t.Context(), "fast"); err != nil {
		t.Fatal(err)
	}
	r, seen := testRun(t, smallLog(t, 20, 50), options{seed: 20})
	r.postgres = postgres.URL()
	ctx := within(t, time.Minute)
	asked := seen.on("waiting for PostgreSQL")
	background(t, func() error {
		if err := await(ctx, asked); err != nil {
			return err
		}
		return postgres.Resume(ctx)
	})
	finish(t, r)
}

func TestLoans_NATSComesLater(t *testing.T) {
	broker := startNATS(t)
	broker.Stop()
	r, _ := testRun(t, smallLog(t, 21, 50), options{seed: 21})
	r.nats = broker.URL()
	ctx := within(t, time.Minute)
	knock := listenFor(t, broker.URL())
	background(t, func() error {
		if err := await(ctx, knock); err != nil {
			return err
		}
		return broker.Resume(ctx)
	})
	finish(t, r)
}

// listenFor listens in the place of a server that is away, until the first client
// knocks.
func listenFor(t *testing.T, server string) <-chan struct{} {
	t.Helper()
	u, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	door, err := net.Listen("tcp", u.Host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { door.Close() })
	knock := make(chan struct{})
	go func() {
		defer close(knock)
		defer door.Close()
		if conn, err := door.Accept(); err == nil {
			conn.Close()
		}
	}()
	return knock
}

// whenStored runs do when a part of the log is stored.
func whenStored(ctx context.Context, t *testing.T, r *run, do func() error) {
	half := make(chan struct{})
	stopWhen(ctx, t, func() { close(half) }, func() bool { return r.progress().stored > 0 })
	background(t, func() error {
		if err := await(ctx, half); err != nil {
			return err
		}
		if stored := r.progress().stored; stored >= r.found.Events {
			t.Errorf("all %d events were stored before the outage", stored)
		}
		return do()
	})
}

func TestLoans_PostgresCrashesInTheMiddle(t *testing.T) {
	postgres := ownPostgres(t)
	r, _ := testRun(t, smallLog(t, 22, 300), options{seed: 22, jitter: 2 * time.Second, duplicate: 0.05})
	r.postgres = postgres.URL()
	ctx := within(t, time.Minute)
	whenStored(ctx, t, r, func() error { return postgres.Restart(ctx, "immediate") })
	finish(t, r)
}

func TestLoans_NATSRestartsInTheMiddle(t *testing.T) {
	r, _ := testRun(t, smallLog(t, 23, 300), options{seed: 23, jitter: 2 * time.Second, duplicate: 0.05})
	broker := startNATS(t)
	r.nats = broker.URL()
	ctx := within(t, time.Minute)
	whenStored(ctx, t, r, func() error { return broker.Restart(ctx) })
	finish(t, r)
}
