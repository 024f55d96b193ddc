package transport

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

func TestDeclareIsIdempotent(t *testing.T) {
	_, c := declared(t, Config{Shards: 32, MaxBytes: 1 << 20})
	stream, err := c.js.Stream(testContext(t), c.names.stream())
	must(t, err)
	consumer, err := stream.Consumer(testContext(t), c.names.consumer(31))
	must(t, err)
	publish(t, c, 1)
	must(t, c.Declare(testContext(t)))
	again, err := c.js.Stream(testContext(t), c.names.stream())
	must(t, err)
	sameConsumer, err := again.Consumer(testContext(t), c.names.consumer(31))
	must(t, err)
	if !again.CachedInfo().Created.Equal(stream.CachedInfo().Created) || !sameConsumer.CachedInfo().Created.Equal(consumer.CachedInfo().Created) {
		t.Error("declared anew")
	}

	got := stream.CachedInfo().Config
	if got.Retention != jetstream.LimitsPolicy || got.Discard != jetstream.DiscardNew || got.Storage != jetstream.FileStorage ||
		got.MaxBytes != 1<<20 || got.Duplicates != 2*time.Minute || got.MaxAge != 0 || got.PersistMode != jetstream.DefaultPersistMode ||
		!got.DenyDelete || len(got.Subjects) != 32 || got.Metadata["weir.shards"] != "32" {
		t.Errorf("declared %+v", got)
	}
	if config := consumer.CachedInfo().Config; config.AckPolicy != jetstream.AckExplicitPolicy || config.MaxDeliver != -1 ||
		config.AckWait != time.Minute || config.MaxAckPending != 50_000 || config.FilterSubject != "weir.t.ingest.31.>" {
		t.Errorf("declared %+v", config)
	}
}

// nats-server#8491: concurrent creates, of which one was rejected, destroyed state.
func TestDeclareByManyAtOnce(t *testing.T) {
	server := startServer(t)
	var group sync.WaitGroup
	for i := range 5 {
		c := connect(t, server, Config{Shards: 16, AckWait: time.Duration(1+i%2) * time.Minute})
		group.Go(func() {
			if err := c.Declare(testContext(t)); err != nil {
				t.Error(err)
			}
			if err := c.Publisher().Publish(testContext(t), message("order-1", i)); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if b := backlog(t, connect(t, server, Config{Shards: 16})); b.Messages != 5 {
		t.Errorf("%+v", b)
	}
}

// CAP#1500, nats.java#545: an edited configuration was not applied to what existed.
func TestDeclareCorrectsDrift(t *testing.T) {
	server, c := declared(t, Config{Shards: 2})
	publish(t, c, 3)
	stream, err := c.js.Stream(testContext(t), c.names.stream())
	must(t, err)
	config := stream.CachedInfo().Config
	config.MaxAge = time.Hour
	config.MaxMsgs = 3
	config.Discard = jetstream.DiscardOld
	config.Subjects = config.Subjects[:1]
	config.Description = "an operator's"
	_, err = c.js.UpdateStream(testContext(t), config)
	must(t, err)
	consumer, err := stream.Consumer(testContext(t), c.names.consumer(1))
	must(t, err)
	loose := consumer.CachedInfo().Config
	loose.AckWait, loose.MaxDeliver, loose.MaxAckPending = time.Second, 3, 10
	_, err = stream.UpdateConsumer(testContext(t), loose)
	must(t, err)
	must(t, stream.DeleteConsumer(testContext(t), c.names.consumer(0)))

	other := connect(t, server, Config{Shards: 2, MaxBytes: 1 << 30, MaxAckPending: 99, AckWait: 7 * time.Second})
	must(t, other.Declare(testContext(t)))
	info, err := stream.Info(testContext(t))
	must(t, err)
	if got := info.Config; got.MaxAge != 0 || got.MaxMsgs != -1 || got.Discard != jetstream.DiscardNew || len(got.Subjects) != 2 ||
		got.MaxBytes != 1<<30 || got.Description != "an operator's" || info.State.Msgs != 3 {
		t.Errorf("corrected to %+v", got)
	}
	for shard := range 2 {
		consumer, err := stream.Consumer(testContext(t), fmt.Sprint("shard-", shard))
		must(t, err)
		if got := consumer.CachedInfo().Config; got.AckWait != 7*time.Second || got.MaxDeliver != -1 || got.MaxAckPending != 99 {
			t.Errorf("corrected to %+v", got)
		}
	}
}

func TestDeclareRefusesAnotherNumberOfShards(t *testing.T) {
	server, _ := declared(t, Config{Shards: 4})
	other := connect(t, server, Config{Shards: 8})
	var shards *ShardsError
	if err := other.Declare(testContext(t)); !errors.As(err, &shards) || shards.Have != 4 || shards.Want != 8 {
		t.Errorf("Declare returned %v", err)
	}
}

func TestDeclareRefusesWhatLosesMessages(t *testing.T) {
	for name, change := range map[string]func(*jetstream.StreamConfig){
		"persist_mode": func(c *jetstream.StreamConfig) { c.PersistMode = jetstream.AsyncPersistMode },
		"storage":      func(c *jetstream.StreamConfig) { c.Storage = jetstream.MemoryStorage },
		"retention":    func(c *jetstream.StreamConfig) { c.Retention = jetstream.WorkQueuePolicy },
		"no_ack":       func(c *jetstream.StreamConfig) { c.NoAck = true },
		"deny_purge":   func(c *jetstream.StreamConfig) { c.DenyPurge = true },
	} {
		t.Run(name, func(t *testing.T) {
			c := connect(t, startServer(t), Config{MaxBytes: 1 << 20})
			config := c.streamConfig()
			change(&config)
			_, err := c.js.CreateStream(testContext(t), config)
			must(t, err)
			var drift *DriftError
			if err := c.Declare(testContext(t)); !errors.As(err, &drift) || drift.Field != name || drift.Name != config.Name {
				t.Errorf("Declare returned %v", err)
			}
		})
	}
}

func TestDeclareRefusesAConsumerOfAnotherKind(t *testing.T) {
	_, c := declared(t, Config{Shards: 1})
	config := c.consumerConfig(0)
	must(t, c.js.DeleteConsumer(testContext(t), c.names.stream(), config.Durable))
	config.AckPolicy = jetstream.AckAllPolicy
	_, err := c.js.CreateConsumer(testContext(t), c.names.stream(), config)
	must(t, err)
	var drift *DriftError
	if err := c.Declare(testContext(t)); !errors.As(err, &drift) || drift.Field != "ack_policy" {
		t.Errorf("Declare returned %v", err)
	}
}

// A correction that the server does not allow says what it was.
func TestDeclareReportsWhatTheServerRefuses(t *testing.T) {
	server, _ := declared(t, Config{Shards: 1})
	other := connect(t, server, Config{Shards: 1, Replicas: 3})
	var drift *DriftError
	var api *jetstream.APIError
	if err := other.Declare(testContext(t)); !errors.As(err, &drift) || drift.Field != "replicas" || !errors.As(err, &api) {
		t.Errorf("Declare returned %v", err)
	}
}

// TestVersionsOfTheServer: which is too old, which is doubtful, which is good.
// (nats-server#4320: wrong up to 2.9.20)
func TestVersionsOfTheServer(t *testing.T) {
	for text, want := range map[string][3]int{"2.14.10": {2, 14, 10}, "v2.15.3": {2, 15, 3}, "2.16.0-RC.1": {2, 16, 0}} {
		if got, ok := parseVersion(text); !ok || got != want {
			t.Errorf("%s is read as %v, %t", text, got, ok)
		}
	}
	for _, text := range []string{"", "dev", "2.14", "2.x.1"} {
		if got, ok := parseVersion(text); ok {
			t.Errorf("%q is read as %v", text, got)
		}
	}
	for text, want := range map[string]verdict{
		"2.13.9": tooOld, "2.14.0": doubtful, "2.14.9": doubtful, "2.14.10": good, "2.14.11": good,
		"2.15.0": doubtful, "2.15.2": doubtful, "2.15.3": good, "3.0.0": good, "?": doubtful,
	} {
		if got := judge(text); got != want {
			t.Errorf("%s is judged %d, want %d", text, got, want)
		}
	}
}

func TestDeclareWaitsForAServerThatIsAway(t *testing.T) {
	server := startServer(t)
	c := connect(t, server, Config{})
	server.Stop()
	result := make(chan error, 1)
	go func() { result <- c.Declare(testContext(t)) }()
	must(t, server.Resume(testContext(t)))
	must(t, <-result)

	server.Stop()
	short, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := c.Declare(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Declare returned %v", err)
	}
}
