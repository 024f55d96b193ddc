package app

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/devserver"
	"github.com/weir-es/weir/eventstore"
	"github.com/weir-es/weir/internal/testkit"
)

// said collects what a site logs.
type said struct {
	mu    sync.Mutex
	lines bytes.Buffer
}

func (s *said) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lines.Write(b)
}

func (s *said) has(text string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Contains(s.lines.String(), text)
}

func (s *said) listen(c *Config) { c.Logger = slog.New(slog.NewTextHandler(s, nil)) }

// awaitHead waits until the relay has noted that everything is published.
func (s *site) awaitHead() {
	s.Helper()
	testkit.Await(s.T, 10*time.Second, "the checkpoint is at the head", func() bool {
		_, head, err := s.Store.ReadHorizon(testkit.Context(s.T))
		return err == nil && head > 0 && s.lowestMark() == head
	})
}

// published counts the publishes of a site's events, those included that the broker
// takes for duplicates.
func (s *site) published() func() int {
	s.Helper()
	sub, err := s.nc.SubscribeSync("weir." + s.config.Namespace + ".log.>")
	if err != nil {
		s.Fatal(err)
	}
	_ = sub.SetPendingLimits(-1, -1)
	return func() int {
		if err := s.nc.Flush(); err != nil {
			s.Fatal(err)
		}
		n, _, err := sub.Pending()
		if err != nil {
			s.Fatal(err)
		}
		return n
	}
}

// TestP4_WhatIsPublishedIsNotPublishedAgain by a relay that begins once more, whichever
// of several services on a broker it belongs to: there are no rows of what was sent that
// could be left, but a checkpoint of each, which moves. (wolverine#689, #2361, #3173: sent
// rows of a second route were never deleted, and sent for ever)
func TestP4_WhatIsPublishedIsNotPublishedAgain(t *testing.T) {
	t.Parallel()
	for range 2 {
		s := newSite(t, testkit.NATS(t))
		count := s.published()
		for life := 1; life <= 4; life++ {
			s.note(10, 10)
			stop := s.relaying()
			s.awaitKept(100 * life)
			s.awaitHead()
			stop()
			if n := count(); n != 100*life {
				t.Fatalf("in life %d there were %d publishes of %d events", life, n, 100*life)
			}
		}
		s.checkLog()
	}
}

// TestP1_CommittedAfterLaterEventsIsPublished: the relay passes nothing by that is still
// open, however long it takes and however many come after it. (MassTransit#4990: an
// outbox was marked as delivered before a late message was in it, which was lost)
func TestP1_CommittedAfterLaterEventsIsPublished(t *testing.T) {
	t.Parallel()
	s := newSite(t, testkit.NATS(t))
	s.relaying()
	s.note(3, 4)
	s.awaitKept(12)
	for round, end := range []func(pgx.Tx) error{
		func(tx pgx.Tx) error { return tx.Commit(testkit.Context(t)) },
		func(tx pgx.Tx) error { return tx.Rollback(testkit.Context(t)) },
		func(tx pgx.Tx) error { return tx.Commit(testkit.Context(t)) },
	} {
		before := s.kept()
		late := s.open("late-1")
		s.note(3, 4) // drawn after it, committed before it
		if testkit.Within(relayMark+300*time.Millisecond, func() bool { return s.kept() > before || s.lowestMark() >= late.at }) {
			t.Fatalf("round %d: the relay went past %d, which is open: %d published, noted up to %d", round, late.at, s.kept(), s.lowestMark())
		}
		if err := end(late.tx); err != nil {
			t.Fatal(err)
		}
		s.awaitKept(s.count("select count(*) from weir.events"))
	}
	s.awaitKept(4*12 + 2)
	s.checkLog()
}

// openAppend is an event whose transaction has not ended.
type openAppend struct {
	tx pgx.Tx
	at weir.Position
}

func (s *site) open(stream weir.StreamID) openAppend {
	s.Helper()
	tx, err := s.Store.Pool().Begin(testkit.Context(s.T))
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = tx.Rollback(testkit.Context(s.T)) })
	m := weir.Message{ID: weir.NewID(), Stream: stream, Type: "noted", Data: []byte("{}")}
	events, err := s.Store.AppendTx(testkit.Context(s.T), tx, eventstore.Append{Stream: stream, Expected: weir.AnyVersion, Messages: []weir.Message{m}})
	if err != nil {
		s.Fatal(err)
	}
	return openAppend{tx, events[0].Position}
}

// TestP4_EachHandlerHasItsOwnNotes: two handlers of one service, and the store from which
// their events come, know the same ids, and none takes what another has noted for its own.
// (NServiceBus#3499: a timer was taken for a duplicate of its own storage record)
func TestP4_EachHandlerHasItsOwnNotes(t *testing.T) {
	t.Parallel()
	s := newSite(t, testkit.NATS(t))
	s.exec(`create table weir.got (handler text, id uuid)`)
	for _, name := range []string{"billing", "shipping"} {
		s.handling(Handler{Name: name, Handle: func(ctx context.Context, tx pgx.Tx, e weir.Event, _ any) error {
			_, err := tx.Exec(ctx, s.Store.Qualify("insert into weir.got values ($1, $2)"), name, [16]byte(e.ID))
			return err
		}})
	}
	s.relaying()
	s.note(5, 20)
	s.awaitRows(200)
	for _, name := range []string{"billing", "shipping"} {
		rows, ids := s.count("select count(*) from weir.got where handler = $1", name), s.count("select count(distinct id) from weir.got where handler = $1", name)
		if rows != 100 || ids != 100 {
			t.Errorf("%s has handled %d times, %d different events, want 100", name, rows, ids)
		}
	}
}

// TestP2_LogStreamWentBack to an older copy of its files, as after a loss of power, and
// its consumers with it or not: that is noticed and said with the position, nothing
// stands still, and publishing again from the store brings what was lost, which
// handlers that had it do not handle again. (nats-server#7564: acknowledged before it
// was on disk; nats-server#5412: a consumer ahead of its stream was silent until the
// stream had caught up)
func TestP2_LogStreamWentBack(t *testing.T) {
	for name, pattern := range map[string]string{"whole": "jetstream", "messages": "jetstream/*/streams/*/msgs"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, copied := t.TempDir(), t.TempDir()
			server, err := devserver.StartNATS(testkit.Context(t), devserver.NATSConfig{Dir: dir})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = server.Close() })
			log := &said{}
			a, b := newSite(t, server.URL(), log.listen), newSite(t, server.URL())
			a.relaying()
			b.handling(b.inserts(a))
			offline := func(act func() error) {
				t.Helper()
				server.Stop()
				if err := errors.Join(act(), server.Resume(testkit.Context(t))); err != nil {
					t.Fatal(err)
				}
			}
			a.note(10, 10)
			b.awaitRows(100)
			offline(func() error { return os.CopyFS(copied, os.DirFS(filepath.Join(dir, "nats"))) })
			a.note(10, 10)
			b.awaitRows(200)
			a.awaitHead()
			offline(func() error { return putBack(filepath.Join(dir, "nats"), copied, pattern) })
			a.note(10, 1)
			b.awaitRows(210)
			testkit.Await(t, 10*time.Second, "it is noticed", func() bool { return log.has("the log stream has lost what it held") })
			a.awaitHead()
			if n := a.kept(); n >= 210 {
				t.Errorf("the log stream has %d events: the test tests nothing", n)
			}
			if _, err := a.Store.RewindCheckpoints(testkit.Context(t), RelayConsumer, 0); err != nil {
				t.Fatal(err)
			}
			testkit.Await(t, 20*time.Second, "the log stream has everything again", func() bool { return a.kept() >= 210 })
			a.note(10, 1)
			b.awaitRows(220)
			b.checkRows(a)
		})
	}
}

// putBack puts the copies of those files back that match a pattern.
func putBack(files, copied, pattern string) error {
	places, err := filepath.Glob(filepath.Join(copied, pattern))
	for _, place := range places {
		name, _ := filepath.Rel(copied, place)
		if err := os.RemoveAll(filepath.Join(files, name)); err != nil {
			return err
		}
		if err := os.CopyFS(filepath.Join(files, name), os.DirFS(place)); err != nil {
			return err
		}
	}
	return err
}

// TestP8_AThousandFailuresLeaveRoom: as many events as a handler may have in hand fail,
// each in a stream of its own, and those behind them are handled. What cannot be handled
// is parked in the database and acknowledged; the broker is told to wait for nothing.
// (nats-server#4112, nats.go#968: a thousand delayed NAKs left a consumer at its cap)
func TestP8_AThousandFailuresLeaveRoom(t *testing.T) {
	t.Parallel()
	a, b := newSite(t, testkit.NATS(t)), newSite(t, testkit.NATS(t), new(said).listen)
	var bad []weir.Message
	for range 1000 {
		id := weir.NewID()
		bad = append(bad, weir.Message{ID: id, Stream: weir.Stream("bad", id.String()), Type: "noted", Data: []byte(`{"N":-1}`)})
	}
	if _, err := a.Store.Ingest(testkit.Context(t), false, bad...); err != nil {
		t.Fatal(err)
	}
	a.relaying()
	a.awaitKept(1000)
	a.note(10, 5)
	naks, err := a.nc.SubscribeSync("$JS.ACK." + a.log() + ".>")
	if err != nil {
		t.Fatal(err)
	}
	_ = naks.SetPendingLimits(-1, -1)
	h := b.inserts(a)
	h.Handle = func(ctx context.Context, tx pgx.Tx, e weir.Event, value any) error {
		if value.(noted).N < 0 {
			return errors.New("never")
		}
		return b.insert(ctx, tx, e, value)
	}
	b.handling(h)
	b.awaitRows(50)
	testkit.Await(t, 40*time.Second, "all that fail are parked", func() bool { return b.count("select count(*) from weir.dead_letters") == 1000 })
	testkit.Await(t, 10*time.Second, "nothing is outstanding", func() bool {
		consumer, err := a.js.Consumer(testkit.Context(t), a.log(), b.config.Namespace+"_got")
		return err == nil && consumer.CachedInfo().NumAckPending == 0 && consumer.CachedInfo().NumPending == 0
	})
	for n, _, _ := naks.Pending(); n > 0; n-- {
		if m, err := naks.NextMsg(time.Second); err != nil || bytes.HasPrefix(m.Data, []byte("-NAK")) {
			t.Fatalf("the broker was told %q, %v", m.Data, err)
		}
	}
}

// TestP4_ConnectionsCutAtRandom moments, to the broker and to the database, while events
// are published and handled: the effects are as many as the events, in their order.
// (KurrentDB#1732: a reconnect gave a handler duplicates)
func TestP4_ConnectionsCutAtRandom(t *testing.T) {
	t.Parallel()
	cut := newCutter(t, testkit.NATS(t))
	wire := testkit.NewWire(t, testkit.Database(t))
	a, b := newSite(t, cut.url()), newSite(t, cut.url(), func(c *Config) { c.Pool = wire.Pool })
	h := b.inserts(a)
	a.relaying()
	b.handling(h)
	dice := rand.New(rand.NewPCG(7, 7))
	tick := time.NewTicker(7 * time.Millisecond)
	defer tick.Stop()
	cuts, ends := 0, 0
	for round := range 16 {
		a.note(10, 10)
		if round%4 == 0 {
			wire.Cut(1 + dice.IntN(3)) // after a commit
		}
		if round%4 == 2 { // anywhere
			testkit.Within(5*time.Second, func() bool {
				n := b.count(`select count(pg_terminate_backend(pid)) from pg_stat_activity
					where datname = current_database() and pid <> pg_backend_pid() and state <> 'idle' and query ~ 'processed|got'`)
				ends += n
				return n > 0
			})
		}
		testkit.Within(5*time.Second, func() bool { return b.count("select count(*) from weir.got") > round*100 })
		for range dice.IntN(10) {
			<-tick.C
		}
		cuts += cut.all()
	}
	wire.Cut(0)
	b.awaitRows(1600)
	a.awaitHead()
	b.checkRows(a)
	a.checkLog()
	if cuts < 16 || ends == 0 || wire.Lost() == 0 || b.Stats().DeadLetters > 0 {
		t.Errorf("%d connections to the broker and %d to the database were cut, %d commits lost their answer, %d dead letters",
			cuts, ends, wire.Lost(), b.Stats().DeadLetters)
	}
}

// cutter stands between clients and a broker.
type cutter struct {
	net.Listener
	broker string
	mu     sync.Mutex
	conns  []net.Conn
}

func newCutter(t *testing.T, url string) *cutter {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cutter{Listener: listener, broker: strings.TrimPrefix(url, "nats://")}
	var wait sync.WaitGroup
	wait.Go(func() {
		for client, err := c.Accept(); err == nil; client, err = c.Accept() {
			wait.Go(func() { c.join(client) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		c.all()
		wait.Wait()
	})
	return c
}

func (c *cutter) url() string { return "nats://" + c.Addr().String() }

// join passes on between a client and the broker until one of them ends.
func (c *cutter) join(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", c.broker)
	if err != nil {
		return
	}
	c.mu.Lock()
	c.conns = append(c.conns, client, server)
	c.mu.Unlock()
	go func() {
		_, _ = io.Copy(server, client)
		_ = server.Close()
	}()
	_, _ = io.Copy(client, server)
}

// all cuts all connections and returns how many clients there were.
func (c *cutter) all() (clients int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	clients = len(c.conns) / 2
	for _, conn := range c.conns {
		_ = conn.Close()
	}
	c.conns = nil
	return clients
}
