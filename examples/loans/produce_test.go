package main

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-es/weir/devserver"
	"github.com/weir-es/weir/transport"
)

func startNATS(t *testing.T) *devserver.NATS {
	t.Helper()
	broker, err := devserver.StartNATS(t.Context(), devserver.NATSConfig{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { broker.Close() })
	return broker
}

// TestProduce_TheBrokerHasEveryEventOnce publishes a log with copies and jitter
// from three producers, twice, and looks at what the broker holds.
func TestProduce_TheBrokerHasEveryEventOnce(t *testing.T) {
	broker := startNATS(t)
	log, err := generatedSource(1, 100)
	if err != nil {
		t.Fatal(err)
	}
	found, err := log.check(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		var sent sent
		feed := newFeed(log, found)
		feed.share, feed.jitter = 0.5, 20*time.Millisecond
		config := transport.Config{URL: broker.URL(), Namespace: "loans", Logger: slog.New(slog.DiscardHandler)}
		if err := produce(t.Context(), feed, config, &sent); err != nil {
			t.Fatal(err)
		}
		if first, again := sent.first.Load(), sent.again.Load(); first != found.Events || again < first/3 || again > first*2/3 {
			t.Errorf("published %d of %d, and %d twice", first, found.Events, again)
		}
		if subjects, messages := held(t.Context(), t, broker.URL()); subjects != uint64(found.Cases) || messages != uint64(found.Events) {
			t.Errorf("the broker holds %d messages on %d subjects, the log %d events of %d cases", messages, subjects, found.Events, found.Cases)
		}
	}
}

func newFeed(log source, found survey) *feed {
	return &feed{source: log, mapper: newMapper(found.ID), kills: newKills(0, found.Events, nil), random: rand.New(rand.NewPCG(1, 1))}
}

// held is how many subjects and messages the broker holds in all.
func held(ctx context.Context, t *testing.T, url string) (subjects, messages uint64) {
	t.Helper()
	conn, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	for info := range js.ListStreams(ctx).Info() {
		subjects += info.State.NumSubjects
		messages += info.State.Msgs
	}
	return subjects, messages
}

func TestProduce_AwkwardNamesReachTheBroker(t *testing.T) {
	broker := startNATS(t)
	log := namesSource(awkward)
	found, err := log.check(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	config := transport.Config{URL: broker.URL(), Namespace: "loans_0123456789", Logger: slog.New(slog.DiscardHandler)}
	if err := produce(t.Context(), newFeed(log, found), config, &sent{}); err != nil {
		t.Fatal(err)
	}
	if subjects, _ := held(t.Context(), t, broker.URL()); subjects != uint64(found.Cases) {
		t.Errorf("%d subjects, %d cases", subjects, found.Cases)
	}
}

func TestProduce_ABadLogAndAnAbsentBrokerAreErrors(t *testing.T) {
	broker := startNATS(t)
	for _, c := range []struct {
		what, url, want string
		log             source
	}{
		{"bad log", broker.URL(), "line 1: the log ends in the middle", textSource("<log><trace>")},
		{"absent broker", "nats://127.0.0.1:1", "connect to nats at nats://127.0.0.1:1", textSource(twoTraces)},
	} {
		t.Run(c.what, func(t *testing.T) {
			config := transport.Config{URL: c.url, Namespace: "loans", ConnectTimeout: 200 * time.Millisecond, Logger: slog.New(slog.DiscardHandler)}
			err := produce(t.Context(), newFeed(c.log, survey{Events: 1}), config, &sent{})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// TestProduce_IsNotDoneBeforeTheBrokerHasEverything publishes to a broker that is
// full after some messages, and stays so.
func TestProduce_IsNotDoneBeforeTheBrokerHasEverything(t *testing.T) {
	log, err := generatedSource(2, 50)
	if err != nil {
		t.Fatal(err)
	}
	found, err := log.check(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	config := transport.Config{URL: startNATS(t).URL(), Namespace: "loans", MaxBytes: 64 << 10, Logger: slog.New(slog.DiscardHandler)}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := produce(ctx, newFeed(log, found), config, &sent{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}
