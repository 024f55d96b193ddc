package app

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/devserver"
	"github.com/weir-es/weir/eventstore"
	"github.com/weir-es/weir/internal/testkit"
)

// noted is an event of the services here.
type noted struct{ N int }

// copied is what one of them makes of it.
type copied struct{ N int }

var noteTypes = weir.Types{"noted": weir.EventOf[noted](), "copied": weir.EventOf[copied]()}

// site is a service whose relay and handlers the test runs by hand.
type site struct {
	*testing.T
	*App
	js jetstream.JetStream
	nc *nats.Conn
}

var sites atomic.Int64

func newSite(t *testing.T, url string, change ...func(*Config)) *site {
	t.Helper()
	config := Config{Name: fmt.Sprint("site", sites.Add(1)), Schema: "weir", Postgres: testkit.Database(t), NATS: url,
		Types: noteTypes, MaxIngestBytes: 1 << 20}
	for _, c := range change {
		c(&config)
	}
	a, err := New(testkit.Context(t), config)
	if err != nil {
		t.Fatal(err)
	}
	nc, err := nats.Connect(url, nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	s := &site{t, a, js, nc}
	stop := s.background(a.Store.Run)
	t.Cleanup(func() {
		stop()
		nc.Close()
		a.Close()
	})
	return s
}

// background runs something until it is stopped, which waits for its end.
func (s *site) background(act func(context.Context) error) (stop func()) {
	s.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- act(ctx) }()
	ended := false
	stop = func() {
		cancel()
		if ended {
			return
		}
		ended = true
		if err := <-done; err != nil {
			s.Error(err)
		}
	}
	s.Cleanup(stop)
	return stop
}

// fence claims all shards as a new instance.
func (s *site) fence() eventstore.Fence {
	s.Helper()
	ctx := testkit.Context(s.T)
	instance := s.Store.Join("test")
	defer instance.Disconnect(ctx)
	if _, err := instance.Heartbeat(ctx); err != nil {
		s.Fatal(err)
	}
	s.exec("update weir.instances set heartbeat_at = heartbeat_at - interval '1 minute'") // of whoever was before
	if _, err := instance.Heartbeat(ctx); err != nil {
		s.Fatal(err)
	}
	r := &run{App: s.App}
	leases, err := instance.Claim(ctx, "shards", r.shards())
	if err != nil || len(leases) != s.Store.Shards() {
		s.Fatal(len(leases), err)
	}
	return instance.Guard("shards", leases)
}

func (s *site) exec(sql string, args ...any) {
	s.Helper()
	if _, err := s.Store.Pool().Exec(testkit.Context(s.T), s.Store.Qualify(sql), args...); err != nil {
		s.Fatal(err)
	}
}

func (s *site) count(sql string, args ...any) (n int) {
	s.Helper()
	if err := s.Store.Pool().QueryRow(testkit.Context(s.T), s.Store.Qualify(sql), args...).Scan(&n); err != nil {
		s.Fatal(err)
	}
	return n
}

// relaying runs the relay until it is stopped.
func (s *site) relaying() (stop func()) {
	s.Helper()
	fence := s.fence()
	return s.background(func(ctx context.Context) error { return (&run{App: s.App}).relay(ctx, fence) })
}

// note stores n facts in each of some streams, in an order that is not that of their
// ids.
func (s *site) note(streams, n int) {
	s.Helper()
	var facts []weir.Message
	for i := range streams * n {
		facts = append(facts, weir.Message{ID: weir.NewID(), Stream: weir.Stream("note", strconv.Itoa(i%streams)), Type: "noted",
			Data: fmt.Appendf(nil, `{"N":%d}`, i)})
	}
	slices.Reverse(facts)
	for chunk := range slices.Chunk(facts, streams*max(n/2, 1)) { // later ids first
		if _, err := s.Store.Ingest(testkit.Context(s.T), false, chunk...); err != nil {
			s.Fatal(err)
		}
	}
}

func (s *site) log() string { return "WEIR_" + strings.ToUpper(s.config.Namespace) + "_LOG" }

// kept is how many messages the log stream holds; 0 without one.
func (s *site) kept() int {
	stream, err := s.js.Stream(testkit.Context(s.T), s.log())
	if err != nil {
		return 0
	}
	return int(stream.CachedInfo().State.Msgs)
}

// awaitKept waits until the log stream has n messages.
func (s *site) awaitKept(n int) {
	s.Helper()
	if !testkit.Within(30*time.Second, func() bool { return s.kept() == n }) {
		s.Fatalf("the log stream has %d messages, want %d", s.kept(), n)
	}
}

// messages reads the whole log stream.
func (s *site) messages() (all []jetstream.Msg) {
	s.Helper()
	ctx := testkit.Context(s.T)
	consumer, err := s.js.OrderedConsumer(ctx, s.log(), jetstream.OrderedConsumerConfig{})
	if err != nil {
		s.Fatal(err)
	}
	for n := s.kept(); len(all) < n; {
		batch, err := consumer.Fetch(n-len(all), jetstream.FetchMaxWait(5*time.Second))
		if err != nil {
			s.Fatal(err)
		}
		before := len(all)
		for m := range batch.Messages() {
			all = append(all, m)
		}
		if len(all) == before {
			s.Fatalf("read %d of %d messages: %v", before, n, batch.Error())
		}
	}
	return all
}

// checkLog wants the log stream to have every event of the store once, and those of a
// stream in the order of versions.
func (s *site) checkLog() {
	s.Helper()
	ids, versions := map[string]int{}, map[string]int{}
	for _, m := range s.messages() {
		ids[m.Headers().Get("Nats-Msg-Id")]++
		version, err := strconv.Atoi(m.Headers().Get("Weir-Version"))
		if err != nil || version != versions[m.Subject()]+1 {
			s.Fatalf("%s has version %d after %d, %v", m.Subject(), version, versions[m.Subject()], err)
		}
		versions[m.Subject()] = version
	}
	stored := 0
	for e, err := range s.Store.ReadLog(testkit.Context(s.T), eventstore.Read{}) {
		if err != nil {
			s.Fatal(err)
		}
		if stored++; ids[e.ID.String()] != 1 {
			s.Fatalf("%s version %d is in the log stream %d times", e.Stream, e.Version, ids[e.ID.String()])
		}
	}
	if stored != len(ids) {
		s.Errorf("%d events are stored, %d are in the log stream", stored, len(ids))
	}
}

// lowestMark is how far the relay has come, as the store has it.
func (s *site) lowestMark() weir.Position {
	marks, err := s.Store.Checkpoints(testkit.Context(s.T), RelayConsumer)
	if err != nil {
		s.Fatal(err)
	}
	for _, shard := range (&run{App: s.App}).shards() {
		if _, ok := marks[shard]; !ok {
			return 0
		}
	}
	return lowest(marks)
}

// TestP5_RelayPublishesInTheOrderOfVersions, also where that is not the order of ids,
// everything that is stored, and everything that is known about it. (MassTransit#3512:
// outbox order was broken by parallel delivery)
func TestP5_RelayPublishesInTheOrderOfVersions(t *testing.T) {
	t.Parallel()
	s := newSite(t, testkit.NATS(t))
	s.note(20, 30)
	stop := s.relaying()
	s.awaitKept(600)
	s.note(7, 50) // what comes later, too
	s.awaitKept(950)
	s.checkLog()
	_, head, err := s.Store.ReadHorizon(testkit.Context(t))
	if err != nil {
		t.Fatal(err)
	}
	testkit.Await(t, 5*time.Second, "the checkpoint is at the head", func() bool { return s.lowestMark() == head })
	stop()
}

// TestP1_RelayDiesBetweenPublishAndCheckpoint, again and again: the log stream has each
// event once all the same, since the broker knows their ids. (nats-server#7302: the
// duplicate window is not refreshed; murmur#141: a duplicate is a success;
// MassTransit#4990: marked as delivered before it was)
func TestP1_RelayDiesBetweenPublishAndCheckpoint(t *testing.T) {
	t.Parallel()
	s := newSite(t, testkit.NATS(t))
	s.note(50, 100)
	ahead := 0
	for life := 1; life <= 6; life++ {
		fence := s.fence()
		hard, kill := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- (&run{App: s.App, hard: hard}).relay(hard, fence) }()
		before := s.kept()
		testkit.Within(10*time.Second, func() bool { return s.kept() > before || s.kept() == 5000 })
		kill()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		marked := s.count("select count(*) from weir.events where position <= $1", int64(s.lowestMark()))
		ahead += s.kept() - marked
	}
	if ahead == 0 {
		t.Error("no life ended between publishing and the checkpoint: the test tests nothing")
	}
	s.relaying()
	s.awaitKept(5000)
	testkit.Await(t, 10*time.Second, "the checkpoint is at the head", func() bool {
		_, head, err := s.Store.ReadHorizon(testkit.Context(t))
		return err == nil && s.lowestMark() == head
	})
	s.checkLog()
}

// TestP1_RelayTakesOverShardsThatAreFurther: one that takes over shards of several owners
// goes on with each from where it was.
func TestP1_RelayTakesOverShardsThatAreFurther(t *testing.T) {
	t.Parallel()
	s := newSite(t, testkit.NATS(t))
	s.note(10, 10)
	_, head, err := s.Store.ReadHorizon(testkit.Context(t))
	if err != nil {
		t.Fatal(err)
	}
	done := weir.Stream("note", "3").Shard(s.Store.Shards())
	s.exec("insert into weir.checkpoints (consumer, shard, position) values ('relay', $1, $2)", done, int64(head))
	rest := s.count("select count(*) from weir.events where shard <> $1", done)
	s.relaying()
	s.awaitKept(rest)
	testkit.Await(t, 5*time.Second, "all checkpoints are at the head", func() bool { return s.lowestMark() == head })
	s.note(10, 1)
	s.awaitKept(rest + 10)
}

// TestP7_RelayStopsWhenAnotherOwnerTookOver, and moves no checkpoint any more.
func TestP7_RelayStopsWhenAnotherOwnerTookOver(t *testing.T) {
	t.Parallel()
	s := newSite(t, testkit.NATS(t))
	s.note(3, 3)
	lost := s.fence()
	s.fence()
	err := (&run{App: s.App}).relay(testkit.Context(t), lost)
	if !errors.Is(err, weir.ErrLeaseLost) {
		t.Errorf("the relay ended with %v", err)
	}
	if at := s.lowestMark(); at != 0 {
		t.Errorf("it moved its checkpoint to %d", at)
	}
}

// TestP2_LogStreamDeletedWhileRunning is made anew without help, and what it held is
// published again when somebody wants that. (centrifugo#1166: a deleted stream was never
// recovered until the process restarted; nats-server#7564: the store is the truth,
// publish again)
func TestP2_LogStreamDeletedWhileRunning(t *testing.T) {
	t.Parallel()
	s := newSite(t, testkit.NATS(t))
	s.relaying()
	s.note(10, 10)
	s.awaitKept(100)
	if err := s.js.DeleteStream(testkit.Context(t), s.log()); err != nil {
		t.Fatal(err)
	}
	s.note(10, 2)
	s.awaitKept(20)
	testkit.Await(t, 5*time.Second, "the relay has noted where it is", func() bool {
		return s.count("select count(*) from weir.checkpoints where consumer = 'relay' and position > 0") > 0
	})
	if n, err := s.Store.RewindCheckpoints(testkit.Context(t), RelayConsumer, 0); err != nil || n == 0 {
		t.Fatal(n, err)
	}
	s.awaitKept(120)
	ids := map[string]int{}
	for _, m := range s.messages() {
		ids[m.Headers().Get("Nats-Msg-Id")]++
	}
	if len(ids) != 120 {
		t.Errorf("%d different events, want 120", len(ids))
	}
}

// TestP2_NewClusterHasEverythingFromAPosition: a broker that knows nothing gets what is
// wanted, in order, and no more.
func TestP2_NewClusterHasEverythingFromAPosition(t *testing.T) {
	t.Parallel()
	s := newSite(t, testkit.NATS(t))
	stop := s.relaying()
	s.note(5, 10)
	s.awaitKept(50)
	stop()
	if err := s.js.DeleteStream(testkit.Context(t), s.log()); err != nil {
		t.Fatal(err)
	}
	var tenth weir.Position
	n := 0
	for e := range s.Store.ReadLog(testkit.Context(t), eventstore.Read{}) {
		if n++; n == 10 {
			tenth = e.Position
		}
	}
	if _, err := s.Store.RewindCheckpoints(testkit.Context(t), RelayConsumer, tenth); err != nil {
		t.Fatal(err)
	}
	s.relaying()
	s.awaitKept(40)
	for i, m := range s.messages() {
		if at, err := strconv.Atoi(m.Headers().Get("Weir-Position")); err != nil || at <= int(tenth) {
			t.Errorf("message %d has position %d, %v", i, at, err)
		}
	}
}

// TestP2_BrokerRestartsUnderTheRelay, more than once, while events come.
func TestP2_BrokerRestartsUnderTheRelay(t *testing.T) {
	t.Parallel()
	server, err := devserver.StartNATS(testkit.Context(t), devserver.NATSConfig{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	s := newSite(t, server.URL())
	s.relaying()
	for round := range 3 {
		s.note(20, 50)
		testkit.Within(5*time.Second, func() bool { return s.kept() > round*1000+100 })
		if err := server.Restart(testkit.Context(t)); err != nil {
			t.Fatal(err)
		}
	}
	s.awaitKept(3000)
	s.checkLog()
}

// TestP8_EventTooLargeForTheBroker does not stop the relay: it goes without its
// payload, and says so. (nats-server#2525, argo-events#2163: 1 MiB with headers failed
// in the middle of the pipeline)
func TestP8_EventTooLargeForTheBroker(t *testing.T) {
	t.Parallel()
	s := newSite(t, testkit.NATS(t), func(c *Config) { c.MaxDataBytes = 9 << 20 })
	odd := weir.Stream("note", strings.Repeat("ü", 500)) // no subject can hold it
	for _, size := range []int{1<<20 - 1, 1 << 20, 1<<20 + 1, 8 << 20} {
		m := weir.Message{ID: weir.NewID(), Stream: "note-1", Type: "noted", Data: fmt.Appendf(nil, `"%s"`, bytes.Repeat([]byte("x"), size-2))}
		if _, err := s.Store.Append(testkit.Context(t), m.Stream, weir.AnyVersion, m); err != nil {
			t.Fatal(err)
		}
		m.ID, m.Data = weir.NewID(), []byte("1")
		if _, err := s.Store.Append(testkit.Context(t), odd, weir.AnyVersion, m); err != nil {
			t.Fatal(err)
		}
	}
	m := weir.Message{ID: weir.NewID(), Stream: "note-1", Type: "noted", Data: []byte("{}"), Metadata: weir.Metadata{Extra: map[string]string{"a": strings.Repeat("\x01", 16<<10)}}}
	if _, err := s.Store.Append(testkit.Context(t), m.Stream, weir.AnyVersion, m); err != nil {
		t.Fatal(err)
	}
	s.relaying()
	s.awaitKept(9)
	s.checkLog()
	for _, m := range s.messages() {
		if whole, omitted := len(m.Data()) > 0, m.Headers().Get("Weir-Omitted"); whole == (omitted != "") {
			t.Errorf("version %s has %d bytes and says %q", m.Headers().Get("Weir-Version"), len(m.Data()), omitted)
		}
	}
}
