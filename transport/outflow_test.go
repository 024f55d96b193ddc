package transport

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/devserver"
)

// event is a committed one, the version-th of its stream.
func event(stream weir.StreamID, version int) weir.Event {
	return weir.Event{Message: message(stream, version), Version: weir.Version(version), Position: weir.Position(version * 10),
		Recorded: time.Now().UTC().Truncate(time.Microsecond)}
}

// logged is a server with one connection whose log stream is declared.
func logged(t testing.TB, config Config) *Conn {
	t.Helper()
	c := connect(t, startServer(t), config)
	created, err := c.DeclareLog(testContext(t))
	must(t, err)
	if !created {
		t.Error("the log stream was there before")
	}
	return c
}

func logStream(t testing.TB, c *Conn) jetstream.Stream {
	t.Helper()
	stream, err := c.js.Stream(testContext(t), c.outflow().stream())
	must(t, err)
	return stream
}

func TestDeclareLogIsIdempotentAndCorrectsDrift(t *testing.T) {
	c := logged(t, Config{LogAge: time.Hour})
	first := logStream(t, c).CachedInfo()
	if got := first.Config; got.MaxAge != time.Hour || got.Discard != jetstream.DiscardOld || got.Storage != jetstream.FileStorage ||
		got.Retention != jetstream.LimitsPolicy || got.Duplicates != 2*time.Minute || !got.AllowDirect || got.MaxBytes != -1 {
		t.Errorf("declared %+v", got)
	}
	changed := first.Config
	changed.MaxAge, changed.MaxMsgSize, changed.MaxMsgs, changed.Discard = 3*time.Hour, 1000, 7, jetstream.DiscardNew
	changed.Description = "an operator's"
	_, err := c.js.UpdateStream(testContext(t), changed)
	must(t, err)
	created, err := c.DeclareLog(testContext(t))
	must(t, err)
	got := logStream(t, c).CachedInfo()
	if created || !got.Created.Equal(first.Created) || got.Config.MaxAge != time.Hour || got.Config.MaxMsgSize != -1 || got.Config.MaxMsgs != -1 ||
		got.Config.Discard != jetstream.DiscardOld || got.Config.Description != "an operator's" {
		t.Errorf("corrected to %+v", got.Config)
	}
}

func TestDeclareLogRefusesWhatCannotBeCorrected(t *testing.T) {
	c := connect(t, startServer(t), Config{})
	config := c.logConfig()
	config.Storage = jetstream.MemoryStorage
	_, err := c.js.CreateStream(testContext(t), config)
	must(t, err)
	_, err = c.DeclareLog(testContext(t))
	var drift *DriftError
	if !errors.As(err, &drift) || drift.Field != "storage" {
		t.Errorf("a log in memory: %v", err)
	}
	config.Storage, config.Metadata[metaShards] = jetstream.FileStorage, "7"
	must(t, c.js.DeleteStream(testContext(t), config.Name))
	_, err = c.js.CreateStream(testContext(t), config)
	must(t, err)
	if _, err = c.DeclareLog(testContext(t)); !errors.As(err, new(*ShardsError)) {
		t.Errorf("other shards: %v", err)
	}
}

func TestP1_WhatIsCommittedIsReceivedWhole(t *testing.T) {
	c := logged(t, Config{})
	want := event("order-17", 3)
	want.OrderID = weir.NewID()
	want.Metadata = weir.Metadata{Correlation: "a\nb", Causation: "c", Producer: " p ", ContentType: "text/plain",
		TraceParent: testParent, TraceState: "v=50%25off", Extra: map[string]string{"Größe: \r\n": "\x01"}}
	strange := event(weir.Stream(strings.Repeat("ö", 60), strings.Repeat("ü", 400)), 1)
	must(t, c.PublishEvents(testContext(t), want, strange))
	s := subscribe(t, c, Subscription{Name: "test", Workers: 1})
	for _, want := range []weir.Event{want, strange} {
		d := s.next()
		must(t, d.Err)
		if !reflect.DeepEqual(d.Event, want) || !reflect.DeepEqual(d.Message, want.Message) || d.Shard != want.Stream.Shard(4) {
			t.Errorf("received\n%+v\nwant\n%+v", d.Event, want)
		}
	}
}

// TestP5_EventsKeepTheOrderGiven, whatever their ids, also when a broker's answers are
// lost and everything is given once more.
func TestP5_EventsKeepTheOrderGiven(t *testing.T) {
	server := startServer(t)
	p := startProxy(t, server.URL())
	c, err := Connect(testContext(t), Config{URL: p.url(), Namespace: "t", Shards: 4, reconnectWait: impatience, answerWait: 300 * time.Millisecond})
	must(t, err)
	t.Cleanup(c.Close)
	_, err = c.DeclareLog(testContext(t))
	must(t, err)
	var events []weir.Event
	for i := range 2000 {
		events = append(events, event(weir.Stream("order", fmt.Sprint(i%10)), i/10+1))
	}
	for i := range len(events) / 2 { // the ids fall where the versions rise
		j := len(events) - 1 - i
		events[i].ID, events[j].ID = events[j].ID, events[i].ID
	}
	stop := make(chan struct{})
	go func() {
		defer close(stop)
		for range 5 {
			time.AfterFunc(20*time.Millisecond, func() { stop <- struct{}{} })
			<-stop
			p.cut()
		}
	}()
	for chunk := range slices.Chunk(events, 300) {
		must(t, c.PublishEvents(testContext(t), chunk...))
		must(t, c.PublishEvents(testContext(t), chunk...))
	}
	<-stop
	s := subscribe(t, connect(t, server, Config{}), Subscription{Name: "test", Workers: 1})
	versions := map[weir.StreamID]weir.Version{}
	for range events {
		d := s.next()
		if d.Event.Version != versions[d.Event.Stream]+1 {
			t.Fatalf("%s has version %d after %d", d.Event.Stream, d.Event.Version, versions[d.Event.Stream])
		}
		versions[d.Event.Stream] = d.Event.Version
	}
}

// TestP5_NothingOvertakesAnEventThatIsRefused: what is behind it in its stream is not
// stored either, and the other streams are.
func TestP5_NothingOvertakesAnEventThatIsRefused(t *testing.T) {
	c := logged(t, Config{})
	config := logStream(t, c).CachedInfo().Config
	config.MaxMsgSize = 2000
	_, err := c.js.UpdateStream(testContext(t), config)
	must(t, err)
	var events []weir.Event
	for i := range 10 {
		events = append(events, event("order-1", i+1), event("order-2", i+1))
	}
	events[8].Data = fmt.Appendf(nil, "%q", strings.Repeat("x", 2000)) // version 5 of order-1
	err = c.PublishEvents(testContext(t), events...)
	var refused *RefusedError
	if !errors.As(err, &refused) || refused.ID != events[8].ID {
		t.Fatalf("published with %v", err)
	}
	if n := logStream(t, c).CachedInfo().State.Msgs; n != 14 {
		t.Errorf("%d are stored, want 4 and 10", n)
	}
	_, err = c.DeclareLog(testContext(t)) // mends the reason
	must(t, err)
	must(t, c.PublishEvents(testContext(t), events...))
	s := subscribe(t, c, Subscription{Name: "test", Workers: 1})
	versions := map[weir.StreamID]weir.Version{}
	for range events {
		d := s.next()
		if versions[d.Event.Stream]++; d.Event.Version != versions[d.Event.Stream] {
			t.Fatalf("%s has version %d in place %d", d.Event.Stream, d.Event.Version, versions[d.Event.Stream])
		}
	}
}

func FuzzPlace(f *testing.F) {
	for _, s := range []string{"order-1", "a b.c-*>", "=h0-=h1", strings.Repeat("c", 90) + "-k", "c-" + strings.Repeat("k", 500), "x-\xff"} {
		f.Add(s, s)
	}
	n := names{"t", 32, outflow}
	f.Fuzz(func(t *testing.T, one, other string) {
		a, b := weir.StreamID(one), weir.StreamID(other)
		for _, stream := range []weir.StreamID{a, b} {
			if stream.Validate() != nil || stream.IsEmpty() || stream == weir.Singleton {
				return
			}
			subject, whole := n.place(stream)
			name := string(stream)
			if whole {
				name = ""
			}
			if back, err := n.locate(subject, name); err != nil || back != stream || len(subject) > MaxSubjectBytes || strings.Count(subject, ".") != 5 {
				t.Errorf("%q has its place at %q and comes back as %q, %v", stream, subject, back, err)
			}
		}
		one, _ = n.place(a)
		other, _ = n.place(b)
		if (one == other) != (a == b) {
			t.Errorf("%q and %q have their places at %q and %q", a, b, one, other)
		}
	})
}

// TestP2_ALogStreamThatLostEventsIsNoticed with the next event, whether it was replaced or
// went back to older files, and only then. (nats-server#6611, #6124: sequences began again
// below what was known; nats-server#7564: files from before a power cut)
func TestP2_ALogStreamThatLostEventsIsNoticed(t *testing.T) {
	dir, saved := t.TempDir(), t.TempDir()
	server, err := devserver.StartNATS(testContext(t), devserver.NATSConfig{Dir: dir})
	must(t, err)
	defer func() { _ = server.Close() }()
	c := connect(t, server, Config{})
	_, err = c.DeclareLog(testContext(t))
	must(t, err)
	version := 1
	check := func(when string, want bool) {
		t.Helper()
		publishEvents(t, c, 50, version, 10)
		version += 10
		if c.LogWentBack() != want || c.LogWentBack() {
			t.Errorf("%s: it says that the stream lost events, or not, want %t once", when, want)
		}
	}
	check("at first", false)
	messages := messageFolder(t, dir)
	server.Stop()
	must(t, os.CopyFS(saved, os.DirFS(messages)))
	must(t, server.Resume(testContext(t)))
	check("after a restart", false)
	server.Stop()
	must(t, os.RemoveAll(messages))
	must(t, os.CopyFS(messages, os.DirFS(saved)))
	must(t, server.Resume(testContext(t)))
	check("with older files", true)
	check("later", false)
	must(t, c.js.DeleteStream(testContext(t), c.outflow().stream()))
	_, err = c.DeclareLog(testContext(t))
	must(t, err)
	check("in a new stream", true)
	check("in the end", false)
}
