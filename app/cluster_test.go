package app_test

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-es/weir/app"
	"github.com/weir-es/weir/devserver"
	"github.com/weir-es/weir/internal/testkit"
)

// cluster is three brokers, and a service that keeps its stream on all of them.
func cluster(t *testing.T) (*devserver.NATSCluster, app.Config) {
	t.Helper()
	brokers, err := devserver.StartNATSCluster(testkit.Context(t), devserver.NATSClusterConfig{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := brokers.Close(); err != nil {
			t.Error(err)
		}
	})
	config := service(t)
	config.NATS, config.Replicas, config.Shards, config.Inbox = brokers.URL(), 3, 4, soon
	config.Postgres = testkit.Empty(t) // where the number of shards is free
	return brokers, config
}

// ingestOf is the name of a service's stream.
func ingestOf(t *testing.T, config app.Config) string { return outsider(t, config).name }

// TestP1_LeaderStepsDown again and again while facts are published: whatever was
// acknowledged is stored once, in order.
func TestP1_LeaderStepsDown(t *testing.T) {
	brokers, config := cluster(t)
	a := open(t, config)
	begin(t, a)
	stream := ingestOf(t, config)
	l := publishAlways(t, a, 4, 10)
	for range 5 {
		l.awaitAcked(t, 200, time.Minute)
		if err := brokers.Await(testkit.Context(t), stream); err != nil {
			t.Fatal(err)
		}
		if err := brokers.StepDown(stream); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		l.awaitAcked(t, 1, time.Minute)
		t.Logf("acknowledged again %s after the leader stepped down", time.Since(began).Round(time.Millisecond))
	}
	l.awaitAcked(t, 200, time.Minute)
	l.finish()
	settle(t, a, time.Minute)
	l.check(t, a, nil)
	l.checkOrder(t)
	gap, events := longestGap(t, a)
	t.Logf("%d events; nothing was stored for at most %s", events, gap)
}

// TestP1_NodesGoAndComeBack one after the other, the leader first, while facts are
// published: two of three are enough, and nothing acknowledged is lost or doubled.
// (nats-server#5839, nats-server#4736, nats-server#5679: after another node had the
// lead, a consumer seemed active and gave out nothing)
func TestP1_NodesGoAndComeBack(t *testing.T) {
	brokers, config := cluster(t)
	a := open(t, config)
	begin(t, a)
	stream := ingestOf(t, config)
	l := publishAlways(t, a, 4, 10)
	for range 2 {
		l.awaitAcked(t, 200, time.Minute)
		if err := brokers.Await(testkit.Context(t), stream); err != nil {
			t.Fatal(err)
		}
		node := brokers.Leader(stream)
		brokers.Node(node).Stop()
		began, stored := time.Now(), a.Stats().Stored
		l.awaitAcked(t, 1, time.Minute)
		t.Logf("acknowledged again %s after node %d began to stop", time.Since(began).Round(time.Millisecond), node)
		l.awaitAcked(t, 200, time.Minute)
		testkit.Await(t, time.Minute, "more is stored", func() bool { return a.Stats().Stored > stored+100 })
		if err := brokers.Node(node).Resume(testkit.Context(t)); err != nil {
			t.Fatal(err)
		}
	}
	l.awaitAcked(t, 200, time.Minute)
	l.finish()
	settle(t, a, time.Minute)
	l.check(t, a, nil)
	l.checkOrder(t)
	gap, events := longestGap(t, a)
	t.Logf("%d events; nothing was stored for at most %s", events, gap)
}

// TestP1_BrokerGivesNothingUp: the stream is no work queue, and no consumer counts
// deliveries, so the broker never drops what was not stored.
// (nats-server#7817: a replicated work queue lost what reached max_deliver)
func TestP1_BrokerGivesNothingUp(t *testing.T) {
	t.Parallel()
	config := service(t)
	open(t, config)
	outside := outsider(t, config)
	stream, err := outside.js.Stream(testkit.Context(t), outside.name)
	if err != nil {
		t.Fatal(err)
	}
	if have := stream.CachedInfo().Config; have.Retention != jetstream.LimitsPolicy || have.Discard != jetstream.DiscardNew || have.MaxAge != 0 {
		t.Errorf("the stream drops messages: %+v", have)
	}
	consumers := 0
	for info := range stream.ListConsumers(testkit.Context(t)).Info() {
		if consumers++; info.Config.MaxDeliver != -1 {
			t.Errorf("%s gives up after %d deliveries", info.Name, info.Config.MaxDeliver)
		}
	}
	if consumers != 32 {
		t.Errorf("%d consumers, want one for each of 32 shards", consumers)
	}
}
