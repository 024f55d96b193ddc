package transport

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/devserver"
)

func TestP1_WhatIsPublishedIsReceivedWhole(t *testing.T) {
	_, c := declared(t, Config{})
	want := message("order-17", 1)
	want.Metadata = weir.Metadata{
		Correlation: "a conversation\nof two lines",
		Causation:   weir.NewID().String(),
		Producer:    " spaces: at the ends ",
		ContentType: "application/json",
		TraceParent: testParent,
		TraceState:  "vendor=50%25off",
		Extra:       map[string]string{"Größe: \r\n": "50 % \x01", "": "empty key", "empty": ""},
	}
	must(t, c.Publisher().Publish(testContext(t), want))

	d := receive(t, c, want.Stream.Shard(4)).next()
	must(t, d.Err)
	if !reflect.DeepEqual(d.Message, want) {
		t.Errorf("received\n%+v\nwant\n%+v", d.Message, want)
	}
	if d.Shard != want.Stream.Shard(4) || d.Sequence != 1 || d.Redelivered || time.Since(d.Stored) > patience {
		t.Errorf("received as %+v", d)
	}
	must(t, d.Ack())
	awaitDone(t, c)
}

func awaitDone(t testing.TB, c *Conn) {
	t.Helper()
	eventually(t, "nothing is left", func() bool { return backlog(t, c).IsDone() })
}

func backlog(t testing.TB, c *Conn) Backlog {
	t.Helper()
	b, err := c.Backlog(testContext(t))
	must(t, err)
	return b
}

// publish sends n messages to a stream of shard 0 of 1.
func publish(t testing.TB, c *Conn, n int) (messages []weir.Message) {
	t.Helper()
	for i := range n {
		messages = append(messages, message(weir.Stream("order", fmt.Sprint(i%5)), i))
	}
	must(t, c.Publisher().Publish(testContext(t), messages...))
	return messages
}

func (r *receiving) take(n int) (deliveries []*Delivery) {
	r.t.Helper()
	for range n {
		deliveries = append(deliveries, r.next())
	}
	return deliveries
}

func ack(t testing.TB, deliveries []*Delivery) {
	t.Helper()
	for _, d := range deliveries {
		must(t, d.Ack())
	}
}

// checkIDs wants exactly these messages in this order.
func checkIDs(t testing.TB, deliveries []*Delivery, want []weir.Message) {
	t.Helper()
	if len(deliveries) != len(want) {
		t.Errorf("%d were delivered, want %d", len(deliveries), len(want))
	}
	for i := range min(len(deliveries), len(want)) {
		if got := deliveries[i].Message; got.ID != want[i].ID {
			t.Fatalf("place %d has %s %s, want %s %s", i, got.Stream, got.Data, want[i].Stream, want[i].Data)
		}
	}
}

// nats-server#4627: no redelivery until AckWait after a client has died.
func TestP1_UnackedComesToTheNextAtOnceAndInOrder(t *testing.T) {
	server, c := declared(t, Config{Shards: 1, AckWait: time.Hour})
	sent := publish(t, c, 100)
	first := receive(t, c, 0)
	got := first.take(100)
	checkIDs(t, got, sent)
	ack(t, got[:30])
	awaitBacklog(t, c, Backlog{Messages: 100, Unacked: 70})
	must(t, first.end())
	c.Close()

	successor := connect(t, server, Config{Shards: 1, AckWait: time.Hour})
	sent = append(sent, publish(t, successor, 20)...)
	got = receive(t, successor, 0).take(90)
	checkIDs(t, got, sent[30:])
	for i, d := range got {
		if d.Redelivered != (i < 70) {
			t.Errorf("place %d says redelivered: %t", i, d.Redelivered)
		}
	}
}

func TestUnackedIsExtendedBeyondAckWait(t *testing.T) {
	server, c := declared(t, Config{Shards: 1, AckWait: 300 * time.Millisecond})
	extensions := watchAcks(t, server, "+WPI")
	publish(t, c, 1)
	r := receive(t, c, 0)
	d := r.next()
	for range 12 { // four times AckWait
		<-extensions
	}
	select {
	case again := <-r.got:
		t.Errorf("delivered again: %+v", again)
	default:
	}
	info, err := c.js.Consumer(testContext(t), c.names.stream(), c.names.consumer(0))
	must(t, err)
	if n := info.CachedInfo().NumRedelivered; n != 0 {
		t.Errorf("%d were redelivered", n)
	}

	// The window outlives the Receive: it is still extended, and can be acked.
	must(t, r.end())
	for len(extensions) > 0 {
		<-extensions
	}
	for range 6 {
		<-extensions
	}
	must(t, d.Ack())
	must(t, d.Ack())
	awaitDone(t, c)
}

// watchAcks gives a signal for each ack of this kind that the broker hears.
func watchAcks(t testing.TB, server *devserver.NATS, kind string) chan struct{} {
	t.Helper()
	nc, err := nats.Connect(server.URL())
	must(t, err)
	t.Cleanup(nc.Close)
	signals := make(chan struct{}, 10_000)
	_, err = nc.Subscribe("$JS.ACK.>", func(m *nats.Msg) {
		if string(m.Data) == kind {
			signals <- struct{}{}
		}
	})
	must(t, err)
	must(t, nc.Flush())
	return signals
}

func TestP1_StoppingLosesNothing(t *testing.T) {
	_, c := declared(t, Config{Shards: 1, Prefetch: 64, AckWait: time.Hour})
	sent := publish(t, c, 2000)
	var got []*Delivery
	seen := map[weir.ID]bool{}
	for len(got) < len(sent) {
		ctx, stop := context.WithCancel(testContext(t))
		var window []*Delivery
		must(t, c.Receive(ctx, 0, func(d *Delivery) {
			if window = append(window, d); len(window) == 150 || len(got)+len(window) == len(sent) {
				stop()
			}
		}))
		for _, d := range window {
			if !seen[d.Message.ID] { // the reset may have been quicker than the acks
				got = append(got, d)
			}
			seen[d.Message.ID] = true
		}
		ack(t, window) // the flush comes after the drain
	}
	checkIDs(t, got, sent)
	r := receive(t, c, 0)
	eventually(t, "all are acked", func() bool {
		for len(r.got) > 0 {
			must(t, r.next().Ack())
		}
		return backlog(t, c).IsDone()
	})
}

func TestP9_WhileTheCallerBlocksNothingIsAskedFor(t *testing.T) {
	_, c := declared(t, Config{Shards: 1, Prefetch: 20})
	publish(t, c, 200)
	ctx, stop := context.WithCancel(testContext(t))
	defer stop()
	blocked, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	result := make(chan error, 1)
	go func() {
		result <- c.Receive(ctx, 0, func(d *Delivery) {
			once.Do(func() { close(blocked); <-release })
			_ = d.Ack()
		})
	}()
	<-blocked
	eventually(t, "the client has its share", func() bool { return backlog(t, c).Unacked == 20 })
	if b := backlog(t, c); b.Unacked != 20 || b.Waiting != 180 {
		t.Errorf("%+v", b)
	}
	close(release)
	awaitDone(t, c)
	stop()
	must(t, <-result)
}

func TestP1_StoppingDeliversWhatTheClientHolds(t *testing.T) {
	_, c := declared(t, Config{Shards: 1, Prefetch: 20})
	sent := publish(t, c, 50)
	ctx, stop := context.WithCancel(testContext(t))
	blocked, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	var got []*Delivery
	result := make(chan error, 1)
	go func() {
		result <- c.Receive(ctx, 0, func(d *Delivery) {
			got = append(got, d)
			once.Do(func() { close(blocked); <-release })
		})
	}()
	<-blocked
	awaitBacklog(t, c, Backlog{Messages: 50, Waiting: 30, Unacked: 20})
	stop()
	close(release)
	must(t, <-result)
	checkIDs(t, got, sent[:20])
}

func TestP8_AllFlowsWithASmallPrefetch(t *testing.T) {
	_, c := declared(t, Config{Shards: 1, Prefetch: 1, MaxAckPending: 3})
	sent := publish(t, c, 50)
	r := receive(t, c, 0)
	var got []*Delivery
	for range 25 {
		pair := r.take(2)
		ack(t, pair)
		got = append(got, pair...)
	}
	checkIDs(t, got, sent)
}

// centrifugo PR#1166, PR#972: a deleted consumer or stream was never recovered.
func TestP2_ADeletedConsumerIsNoticedAndDeclaredAgain(t *testing.T) {
	_, c := declared(t, Config{Shards: 1})
	publish(t, c, 10)
	r := receive(t, c, 0)
	ack(t, r.take(10))
	awaitDone(t, c)
	_, err := c.Purge(testContext(t), 0)
	must(t, err)
	must(t, c.js.DeleteConsumer(testContext(t), c.names.stream(), c.names.consumer(0)))
	var gone *GoneError
	if err := r.wait(); !errors.Is(err, ErrGone) || !errors.As(err, &gone) {
		t.Fatalf("Receive returned %v", err)
	}
	if _, err := c.Backlog(testContext(t)); !errors.Is(err, ErrGone) {
		t.Errorf("Backlog returned %v", err)
	}
	if err := c.Receive(testContext(t), 0, nil); !errors.Is(err, ErrGone) {
		t.Errorf("Receive before Declare returned %v", err)
	}
	must(t, c.Declare(testContext(t)))
	sent := publish(t, c, 5)
	checkIDs(t, receive(t, c, 0).take(5), sent)
}

// What was delivered from a stream that is gone must not ack what now stands
// under its sequences.
func TestP2_LateAcksDoNotTouchANewStream(t *testing.T) {
	_, c := declared(t, Config{Shards: 1})
	publish(t, c, 5)
	r := receive(t, c, 0)
	old := r.take(5)
	must(t, c.js.DeleteStream(testContext(t), c.names.stream()))
	if err := r.wait(); !errors.Is(err, ErrGone) {
		t.Fatalf("Receive returned %v", err)
	}
	must(t, c.Declare(testContext(t)))
	sent := publish(t, c, 5)
	next := receive(t, c, 0)
	checkIDs(t, next.take(5), sent)
	ack(t, old)
	must(t, c.nats.Flush())
	must(t, next.end())
	checkIDs(t, receive(t, c, 0).take(5), sent) // none of them was acked
}

// The same when nothing was asked of the broker while the stream was replaced, so
// that nobody said so.
func TestP2_AStreamReplacedUnseenIsNoticed(t *testing.T) {
	for name, reconnect := range map[string]bool{"by its creation time": true, "by a sequence with another message": false} {
		t.Run(name, func(t *testing.T) {
			_, c := declared(t, Config{Shards: 1, Prefetch: 2})
			publish(t, c, 2)
			blocked, release := make(chan struct{}), make(chan struct{})
			var once sync.Once
			result := make(chan error, 1)
			var first *Delivery
			go func() {
				result <- c.Receive(testContext(t), 0, func(d *Delivery) { once.Do(func() { first = d; close(blocked); <-release }) })
			}()
			<-blocked
			must(t, c.js.DeleteStream(testContext(t), c.names.stream()))
			must(t, c.Declare(testContext(t)))
			publish(t, c, 3)
			if reconnect {
				must(t, c.nats.ForceReconnect())
				eventually(t, "it is back", func() bool { return c.Connected() && c.Status().Reconnects == 1 })
				eventually(t, "that is noticed", func() bool { return first.held.isBroken() })
				if err := first.Ack(); err == nil {
					t.Error("acked in a stream that may be another one")
				}
			}
			close(release)
			if err := <-result; !errors.Is(err, ErrGone) || errors.Is(err, errOther) == reconnect {
				t.Errorf("Receive returned %v", err)
			}
		})
	}
}

func (h *held) isBroken() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.stretch.Err() != nil
}

// KurrentDB#1732: a reconnect gave the handler duplicates. watermill#671: close
// and reconnect recreated the consumer.
func TestP5_ALostConnectionChangesNothing(t *testing.T) {
	server, c0 := declared(t, Config{Shards: 1, AckWait: time.Hour, Prefetch: 50})
	wire := startProxy(t, server.URL())
	c, err := Connect(testContext(t), Config{URL: wire.url(), Namespace: "t", Shards: 1, AckWait: time.Hour, Prefetch: 50, reconnectWait: impatience})
	must(t, err)
	t.Cleanup(c.Close)

	r := receive(t, c, 0)
	var sent []weir.Message
	var got, window []*Delivery
	for range 12 {
		sent = append(sent, publish(t, c0, 40)...)
		window = append(window, r.take(25)...) // the rest is in the client, or on its way
		wire.cut()
		window = append(window, r.take(15)...)
		for _, d := range window[:len(window)-10] {
			_ = d.Ack() // in the middle of the reconnect: may fail
		}
		got = append(got, window[:len(window)-10]...)
		window = window[len(window)-10:]
	}
	got = append(got, window...)
	checkIDs(t, got, sent)
	for _, d := range window {
		_ = d.Ack()
	}
	awaitDone(t, c)
	select {
	case d := <-r.got:
		t.Errorf("delivered again: %d", d.Sequence)
	default:
	}
}

func TestP5_ARestartedServerChangesNothing(t *testing.T) {
	server, c := declared(t, Config{Shards: 1, AckWait: time.Hour})
	r := receive(t, c, 0)
	sent := publish(t, c, 30)
	got := r.take(30)
	must(t, server.Restart(testContext(t)))
	sent = append(sent, publish(t, c, 30)...)
	got = append(got, r.take(30)...)
	checkIDs(t, got, sent)
	for _, d := range got {
		_ = d.Ack()
	}
	awaitDone(t, c)
}

func TestP8_UnreadableMessagesAreDeliveredWhole(t *testing.T) {
	_, c := declared(t, Config{Shards: 1})
	good := message("order-1", 1)
	subject, err := c.names.subject(good.Stream)
	must(t, err)
	for name, m := range map[string]*nats.Msg{
		"no headers":     {Subject: subject, Data: []byte("\x00raw")},
		"empty":          {Subject: subject},
		"odd headers":    {Subject: subject, Header: nats.Header{"A": {"1", "2"}, headerType: {"%"}}, Data: []byte("x")},
		"odd subject":    {Subject: "weir.t.ingest.0.a.b.c", Data: []byte("x")},
		"status":         {Subject: subject, Header: nats.Header{"Status": {"409"}, "Description": {"Consumer Deleted"}}},
		"not for PG":     {Subject: "weir.t.ingest.0.order.a=00b", Header: header(t, good), Data: good.Data},
		"payload broken": {Subject: subject, Header: header(t, good), Data: []byte("{")},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := c.js.PublishMsg(testContext(t), m)
			must(t, err)
			r := receive(t, c, 0)
			d := r.next()
			var unreadable *UnreadableError
			if !errors.As(d.Err, &unreadable) || unreadable.Subject != m.Subject || string(unreadable.Data) != string(m.Data) {
				t.Fatalf("delivered %+v", d)
			}
			for name, values := range m.Header {
				if !slices.Equal(unreadable.Header[name], values) {
					t.Errorf("header %s is %q, was %q", name, unreadable.Header[name], values)
				}
			}
			must(t, d.Ack())
			must(t, r.end())
			awaitDone(t, c)
		})
	}
}

func header(t testing.TB, m weir.Message) nats.Header {
	t.Helper()
	m.ID = weir.NewID()
	h, err := encode(&m)
	must(t, err)
	return h
}

func TestReleasedComesToTheNext(t *testing.T) {
	_, c := declared(t, Config{Shards: 1, AckWait: time.Hour})
	sent := publish(t, c, 3)
	r := receive(t, c, 0)
	for _, d := range r.take(3) {
		d.Release()
	}
	must(t, r.end())
	checkIDs(t, receive(t, c, 0).take(3), sent)
}

func TestReceiveRefusesAShardThatIsNone(t *testing.T) {
	_, c := declared(t, Config{})
	for _, shard := range []weir.Shard{-1, 4} {
		if err := c.Receive(testContext(t), shard, nil); err == nil {
			t.Errorf("shard %d is received", shard)
		}
	}
}

func TestCloseEndsReceive(t *testing.T) {
	_, c := declared(t, Config{Shards: 1})
	publish(t, c, 1)
	r := receive(t, c, 0)
	d := r.next()
	c.Close()
	if err := r.wait(); err != nil {
		t.Errorf("Receive returned %v", err)
	}
	_ = d.Ack()
	if err := c.Receive(testContext(t), 0, nil); !errors.Is(err, ErrClosed) {
		t.Errorf("Receive after Close returned %v", err)
	}
}

// nats-server#6611, #6124: the stream goes back to an earlier state, as after a
// restore of older files or a power cut, and its sequences begin again below what
// was received.
func TestP2_AStreamThatWentBackIsNoticed(t *testing.T) {
	dir, saved := t.TempDir(), t.TempDir()
	server, err := devserver.StartNATS(testContext(t), devserver.NATSConfig{Dir: dir})
	must(t, err)
	defer func() { _ = server.Close() }()
	c := connect(t, server, Config{Shards: 1})
	must(t, c.Declare(testContext(t)))
	publish(t, c, 10)
	messages := messageFolder(t, dir)
	server.Stop()
	must(t, os.CopyFS(saved, os.DirFS(messages)))
	must(t, server.Resume(testContext(t)))

	r := receive(t, c, 0)
	publish(t, c, 50)
	got := r.take(60)
	ack(t, got[:50])
	awaitBacklog(t, c, Backlog{Messages: 60, Unacked: 10})
	server.Stop()
	must(t, os.RemoveAll(messages))
	must(t, os.CopyFS(messages, os.DirFS(saved)))
	must(t, server.Resume(testContext(t)))

	if err := r.wait(); !errors.Is(err, ErrGone) {
		t.Fatalf("Receive returned %v", err)
	}
	ack(t, got[50:]) // stored meanwhile; nothing is there to ack
	must(t, c.Declare(testContext(t)))
	sent := publish(t, c, 50)
	checkIDs(t, receive(t, c, 0).take(50), sent)
}

// nats-server#5412: a consumer ahead of its stream is silent until the stream has
// caught up.
func TestP2_AConsumerAheadOfItsStreamBeginsAnew(t *testing.T) {
	_, c := declared(t, Config{Shards: 1})
	sent := publish(t, c, 5)
	_, err := c.js.ResetConsumerToSequence(testContext(t), c.names.stream(), c.names.consumer(0), 1000)
	must(t, err)
	checkIDs(t, receive(t, c, 0).take(5), sent)
}

func messageFolder(t testing.TB, dir string) (folder string) {
	t.Helper()
	must(t, filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if filepath.Base(path) == "msgs" {
			folder = path
		}
		return err
	}))
	return folder
}
