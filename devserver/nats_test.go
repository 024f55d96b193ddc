package devserver

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
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

func TestNATSKeepsANamedFolder(t *testing.T) {
	config := NATSConfig{Dir: t.TempDir(), SyncAlways: true, MaxStore: 1 << 20}
	for want := range uint64(2) {
		n, err := StartNATS(t.Context(), config)
		if err != nil {
			t.Fatal(err)
		}
		if got := publish(t, n, "a message"); got != want+1 {
			t.Errorf("start %d: sequence %d", want+1, got)
		}
		for range 2 {
			if err := n.Close(); err != nil {
				t.Error(err)
			}
		}
		if err := n.Resume(t.Context()); !errors.Is(err, errClosed) {
			t.Errorf("got %v, want %v", err, errClosed)
		}
	}
}

func TestNATSNoticesATakenPort(t *testing.T) {
	n, err := StartNATS(t.Context(), NATSConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	if other, err := StartNATS(t.Context(), NATSConfig{Port: n.config.Port}); !errors.Is(err, errPortTaken) {
		other.Close()
		t.Errorf("got %v, want %v", err, errPortTaken)
	}
}

func TestNATSSaysWhyItCannotStart(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	n := &NATS{folder: &folder{path: file}}
	if err := n.startFirst(t.Context()); err == nil || !strings.Contains(err.Error(), "JetStream") {
		n.Close()
		t.Errorf("got %v, want why JetStream cannot store", err)
	}
}
