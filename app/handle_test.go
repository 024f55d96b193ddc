package app

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/eventstore"
	"github.com/weir-es/weir/internal/testkit"
	"github.com/weir-es/weir/transport"
)

// inserts is a handler of another site's notes that inserts a row for each.
func (s *site) inserts(from *site) Handler {
	s.exec(`create table weir.got (id uuid, stream text, version bigint, at bigint generated always as identity)`)
	return Handler{Name: "got", From: from.config.Namespace, Handle: s.insert}
}

func (s *site) insert(ctx context.Context, tx pgx.Tx, e weir.Event, value any) error {
	if _, ok := value.(noted); !ok || !e.IsNew {
		return fmt.Errorf("got %#v", value)
	}
	_, err := tx.Exec(ctx, s.Store.Qualify("insert into weir.got (id, stream, version) values ($1, $2, $3)"), [16]byte(e.ID), string(e.Stream), int64(e.Version))
	return err
}

// handling runs a handler until it is stopped.
func (s *site) handling(h Handler) (stop func()) {
	return s.background(func(ctx context.Context) error { return (&run{App: s.App}).handle(ctx, h) })
}

func (s *site) awaitRows(n int) {
	s.Helper()
	rows := func() int { return s.count("select count(*) from weir.got") }
	if !testkit.Within(40*time.Second, func() bool { return rows() >= n }) {
		s.Fatalf("%d rows, want %d", rows(), n)
	}
}

// checkRows wants one row for each event of another site, and those of a stream in the
// order of versions.
func (s *site) checkRows(from *site) {
	s.Helper()
	events := from.count("select count(*) from weir.events")
	if rows, ids := s.count("select count(*) from weir.got"), s.count("select count(distinct id) from weir.got"); rows != events || ids != events {
		s.Errorf("%d rows with %d ids for %d events", rows, ids, events)
	}
	disorder := s.count(`select count(*) from (select version, row_number() over (partition by stream order by at) as n from weir.got) g where version <> n`)
	if disorder > 0 {
		s.Errorf("%d rows are not in the order of versions", disorder)
	}
}

// TestP4_TwoServices: what one commits the other handles once, in order, though it
// crashes again and again after its commit and before its ack.
// (wolverine#1677: inbox mark and user data were in different transactions;
// KurrentDB#1732: a reconnect gave events to the handler twice)
func TestP4_TwoServices(t *testing.T) {
	t.Parallel()
	a, b := newSite(t, testkit.NATS(t)), newSite(t, testkit.NATS(t))
	h := b.inserts(a)
	a.relaying()
	a.note(20, 30)
	var seen atomic.Int64 // transactions that were begun, the lost and the repeated included
	repeats := 0
	for life := range 5 {
		repeats += b.crash(h, int64(40+life*20), &seen)
	}
	if repeats == 0 {
		t.Error("no life ended between commit and ack: the test tests nothing")
	}
	b.handling(h)
	a.note(20, 5)
	b.awaitRows(700)
	b.checkRows(a)
}

// crash handles events with a connection of its own, which is gone for good before the
// ack of the nth is sent. It returns how many were committed and not acked.
func (s *site) crash(h Handler, n int64, seen *atomic.Int64) (unacked int) {
	s.Helper()
	nc, err := nats.Connect(s.config.NATS)
	if err != nil {
		s.Fatal(err)
	}
	config := s.brokerConfig()
	config.Conn = nc
	broker, err := transport.Connect(testkit.Context(s.T), config)
	if err != nil {
		s.Fatal(err)
	}
	defer broker.Close()
	twin := &App{Store: s.Store, config: s.config, types: s.types, broker: broker}
	ctx, cancel := context.WithCancel(testkit.Context(s.T))
	defer cancel()
	stopAt := seen.Load() + n
	h.Handle = func(ctx context.Context, tx pgx.Tx, e weir.Event, value any) error {
		if seen.Add(1) == stopAt {
			nc.Close()
			context.AfterFunc(ctx, cancel) // once this transaction is over
		}
		return s.insert(ctx, tx, e, value)
	}
	if err := (&run{App: twin}).handle(ctx, h); err != nil {
		s.Fatal(err)
	}
	consumer, err := s.js.Consumer(testkit.Context(s.T), "WEIR_"+strings.ToUpper(h.From)+"_LOG", s.config.Namespace+"_"+h.Name)
	if err != nil {
		s.Fatal(err)
	}
	return s.count("select count(*) from weir.got") - int(consumer.CachedInfo().Delivered.Consumer) + consumer.CachedInfo().NumAckPending
}

// TestP4_PublishedAgainIsHandledOnce: a new log stream, a new consumer and everything
// once more change nothing, and neither does a consumer that was deleted.
// (nats-server#7302: deduplication must not depend on the broker's window;
// watermill#671: a recreated consumer gave acked messages again; centrifugo#972)
func TestP4_PublishedAgainIsHandledOnce(t *testing.T) {
	t.Parallel()
	a, b := newSite(t, testkit.NATS(t)), newSite(t, testkit.NATS(t))
	h := b.inserts(a)
	b.handling(h) // before there is a stream
	a.relaying()
	a.note(10, 10)
	b.awaitRows(100)
	if err := a.js.DeleteConsumer(testkit.Context(t), a.log(), b.config.Namespace+"_got"); err != nil {
		t.Fatal(err)
	}
	a.note(10, 1)
	b.awaitRows(110)
	if err := a.js.DeleteStream(testkit.Context(t), a.log()); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Store.RewindCheckpoints(testkit.Context(t), RelayConsumer, 0); err != nil {
		t.Fatal(err)
	}
	a.note(10, 1)
	a.awaitKept(120)
	b.awaitRows(120)
	testkit.Await(t, 30*time.Second, "everything was given again", func() bool {
		consumer, err := a.js.Consumer(testkit.Context(t), a.log(), b.config.Namespace+"_got")
		return err == nil && consumer.CachedInfo().AckFloor.Stream == 120
	})
	b.checkRows(a)
	if s := b.Stats(); s.Handled != 120 || s.Repeated < 110 {
		t.Errorf("%d events were handled and %d came again, want 120 and 110 at least", s.Handled, s.Repeated)
	}
}

// TestP3_RelayEcho: a service that handles its own events does so once each, and what
// it appends has the same ids each time.
func TestP3_RelayEcho(t *testing.T) {
	t.Parallel()
	s := newSite(t, testkit.NATS(t))
	var tries sync.Map
	h := Handler{Name: "echo", Handle: func(ctx context.Context, tx pgx.Tx, e weir.Event, value any) error {
		n, ok := value.(noted)
		if !ok {
			return nil // what we made ourselves comes back too
		}
		m, err := s.types.Encode(weir.Stream("copy", e.Stream.Key()), copied(n))
		if err != nil {
			return err
		}
		m.ID = weir.Derive(e.ID, 0, "echo")
		_, err = s.Store.AppendTx(ctx, tx, eventstore.Append{Stream: m.Stream, Expected: weir.AnyVersion, Messages: []weir.Message{m}})
		if _, again := tries.LoadOrStore(e.ID, true); err == nil && !again && n.N%10 == 0 {
			return errors.New("the first time goes wrong after the append")
		}
		return err
	}}
	s.relaying()
	s.note(5, 20)
	s.handling(h)
	s.awaitKept(200)
	s.checkLog()
	testkit.Await(t, 10*time.Second, "all is handled", func() bool { return s.count("select count(*) from weir.processed") == 200 })
	if n := s.count("select count(distinct data::text) from weir.events where type = 'copied'"); n != 100 {
		t.Errorf("%d different copies, want 100", n)
	}
}

// TestP8_EventThatCannotBeHandled is kept whole after five failures; its stream and all
// others go on. A failure that is not its doing does not count. (murmur#141: stored, and
// dead-lettered all the same; nats-server#4112: what is delayed by Nak counts as
// outstanding)
func TestP8_EventThatCannotBeHandled(t *testing.T) {
	t.Parallel()
	a, b := newSite(t, testkit.NATS(t)), newSite(t, testkit.NATS(t))
	h := b.inserts(a)
	var fails, panics atomic.Int64
	h.Handle = func(ctx context.Context, tx pgx.Tx, e weir.Event, value any) error {
		switch value.(noted).N {
		case 13:
			fails.Add(1)
			return errors.New("13 brings bad luck")
		case 23:
			panics.Add(1)
			panic("23 is worse")
		}
		return b.insert(ctx, tx, e, value)
	}
	rotten := weir.Message{ID: weir.NewID(), Stream: "note-1", Type: "noted", Data: []byte(`"no object"`)}
	unknown := weir.Message{ID: weir.NewID(), Stream: "note-1", Type: "strange", Data: []byte(`1`)}
	if _, err := a.Store.Append(testkit.Context(t), "note-1", weir.AnyVersion, rotten, unknown); err != nil {
		t.Fatal(err)
	}
	a.note(5, 10)
	b.handling(h)
	a.relaying()
	b.awaitRows(48)
	testkit.Await(t, 20*time.Second, "three are put away", func() bool { return b.count("select count(*) from weir.dead_letters") == 3 })
	if n := b.count("select count(*) from weir.dead_letters where reason = 'max_attempts' and error like 'handler got:%' and position('Weir-Handler: got' in convert_from(header, 'UTF8')) > 0"); n != 2 {
		t.Errorf("%d letters of events that failed, want 2", n)
	}
	if n := b.count("select count(*) from weir.dead_letters where reason = 'serialization' and data = '\"no object\"'"); n != 1 {
		t.Errorf("%d letters of the event that is no note, want 1", n)
	}
	if fails.Load() != maxHandled || panics.Load() != maxHandled || b.Stats().DeadLetters != 3 {
		t.Errorf("tried %d and %d times, %d counted", fails.Load(), panics.Load(), b.Stats().DeadLetters)
	}
	a.note(5, 1)
	b.awaitRows(53)
}

// TestP1_DatabaseAwayWhileHandling: what fails because of it is tried until it is back,
// also when a commit went through and its answer was lost.
func TestP1_DatabaseAwayWhileHandling(t *testing.T) {
	t.Parallel()
	a := newSite(t, testkit.NATS(t))
	url := testkit.Database(t)
	wire := testkit.NewWire(t, url)
	b := newSite(t, testkit.NATS(t), func(c *Config) { c.Pool = wire.Pool })
	h := b.inserts(a)
	insert := h.Handle
	h.Handle = func(ctx context.Context, tx pgx.Tx, e weir.Event, value any) error {
		if value.(noted).N%40 == 0 {
			wire.Cut(8)
		}
		return insert(ctx, tx, e, value)
	}
	a.relaying()
	a.note(20, 20)
	b.handling(h)
	b.awaitRows(400)
	b.checkRows(a)
	if wire.Lost() == 0 {
		t.Error("no answer was lost: the test tests nothing")
	}
	if n := b.Stats().DeadLetters; n != 0 {
		t.Errorf("%d events were put away for what was not their doing", n)
	}
}

// TestHandlersAreChecked before they run.
func TestHandlersAreChecked(t *testing.T) {
	registry, err := weir.NewRegistry(noteTypes)
	if err != nil {
		t.Fatal(err)
	}
	nothing := func(context.Context, pgx.Tx, weir.Event, any) error { return nil }
	for want, h := range map[string]Handler{
		"a name is":         {Name: "With Space", Handle: nothing},
		"has no Handle":     {Name: "idle"},
		"is not registered": {Name: "typo", Handle: nothing, Types: []string{"notde"}},
	} {
		if err := h.check(registry); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", h.Name, err, want)
		}
	}
	if err := (Handler{Name: "fine_1", Handle: nothing, Types: []string{"noted"}}).check(registry); err != nil {
		t.Error(err)
	}
}
