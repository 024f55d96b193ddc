package devserver

import (
	"context"
	"errors"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// A cluster goes on without any one of its nodes, and the node that comes back has
// what it missed.
func TestNATSClusterLosesANode(t *testing.T) {
	c, err := StartNATSCluster(t.Context(), NATSClusterConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	conn, err := nats.Connect(c.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}, Replicas: c.Nodes()}); err != nil {
		t.Fatal(err)
	}
	want := uint64(0)
	publish := func() {
		t.Helper()
		if err := c.Await(t.Context(), "S"); err != nil {
			t.Fatal(err)
		}
		want++
		ack, err := js.Publish(t.Context(), "s", nil, jetstream.WithRetryAttempts(50))
		if err != nil || ack.Sequence != want {
			t.Fatalf("%+v, %v; want sequence %d", ack, err, want)
		}
	}
	for range c.Nodes() {
		publish()
		leader := c.Leader("S")
		c.Node(leader).Stop()
		publish()
		if next := c.Leader("S"); next == leader || next < 0 {
			t.Errorf("node %d leads after node %d has stopped", next, leader)
		}
		if err := c.Node(leader).Resume(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	publish()
	if err := c.StepDown("S"); err != nil {
		t.Fatal(err)
	}
	publish()
}

func TestNATSClusterSaysWhatItWaitedFor(t *testing.T) {
	c, err := StartNATSCluster(t.Context(), NATSClusterConfig{Nodes: 2, SyncAlways: true, MaxStore: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.Await(ctx, "none"); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if err := c.StepDown("none"); err == nil {
		t.Error("a stream that is not there gave up its leader")
	}
	for range 2 {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	if c, err := StartNATSCluster(t.Context(), NATSClusterConfig{Nodes: 1}); err == nil {
		c.Close()
		t.Error("one server is no cluster, and it started")
	}
}
