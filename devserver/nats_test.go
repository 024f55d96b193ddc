package devserver

import (
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

func TestNATSKeepsItsStreamsAcrossARestart(t *testing.T) {
	n, err := StartNATS(t.Context(), NATSConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	url := n.URL()
	publish(t, n, "before")
	if err := n.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n.URL() != url {
		t.Errorf("the address moved from %s to %s", url, n.URL())
	}
	if got := publish(t, n, "after"); got != 2 {
		t.Errorf("the message after the restart has sequence %d, want 2", got)
	}
}

// publish stores one message in a stream of n and returns its sequence.
func publish(t *testing.T, n *NATS, text string) uint64 {
	t.Helper()
	conn, err := nats.Connect(n.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateOrUpdateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}}); err != nil {
		t.Fatal(err)
	}
	ack, err := js.Publish(t.Context(), "s", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return ack.Sequence
}
