package eventstore_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"pgregory.net/rapid"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/eventstore"
	"github.com/weir-es/weir/internal/testkit"
)

// TestAnyTextComesBack, wherever a caller may put text, or is refused before anything
// is sent, with an error that says which message. (ocoda#449: an apostrophe;
// coder#22637, lily#741, hatchet#3276: NUL)
func TestAnyTextComesBack(t *testing.T) {
	t.Parallel()
	s := testkit.Store(t, eventstore.Config{})
	fine := rapid.OneOf(rapid.StringOf(rapid.SampledFrom([]rune("'\"\\$%;:@?{}()-/* \n\r\t\x01é😀\u2028"))),
		rapid.SampledFrom([]string{"it's", "'; drop table weir.events; --", `\`, `\u0000`, "$1", "null", ""}))
	bad := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"\xff", "\xed\xa0\x80", "a\x00b"}))
	stored := 0
	rapid.Check(t, func(r *rapid.T) {
		text := func(what string) string {
			if rapid.IntRange(0, 40).Draw(r, "bad") == 40 {
				return bad.Draw(r, what)
			}
			return fine.Draw(r, what)
		}
		m := message("", 1)
		m.Type = "test." + text("type")
		m.Data, _ = json.Marshal(text("data"))
		m.Metadata = weir.Metadata{ContentType: rapid.SampledFrom([]string{"", "text/plain"}).Draw(r, "content"), Correlation: text("correlation"), Causation: text("causation"),
			Producer: text("producer"), TraceParent: text("parent"), TraceState: text("state"), Extra: map[string]string{text("key"): text("value")}}
		stream := weir.StreamID("a-" + text("stream") + m.ID.String())
		got, err := s.Append(testkit.Context(t), stream, weir.NewStream, m)
		var message *weir.InvalidMessageError
		var name *weir.InvalidStreamError
		var large *weir.TooLargeError
		switch {
		case errors.As(err, &message), errors.As(err, &name), errors.As(err, &large):
			return
		case err != nil:
			r.Fatalf("stream %q, %+v: %v", stream, m, err)
		}
		for _, e := range append(got, read(t, s, stream)...) {
			if e.Stream != stream || e.Type != m.Type || !bytes.Equal(e.Data, m.Data) || fmt.Sprintf("%q", e.Metadata) != fmt.Sprintf("%q", m.Metadata) {
				r.Fatalf("%q %q %q %q came back of %q %q %q %q", e.Stream, e.Type, e.Data, e.Metadata, stream, m.Type, m.Data, m.Metadata)
			}
		}
		stored++
	})
	if stored < 5 {
		t.Errorf("%d messages were stored: the test tests nothing", stored)
	}
}

// TestConnectionsGoBackClean: whatever a caller does and wherever he gives up, a
// connection that is used again has no subscription, no lock, no setting and no
// transaction of the one before. (wpmgr#496, PR#504: a connection that still listened;
// river PR#1062: a rollback under a context that had ended)
func TestConnectionsGoBackClean(t *testing.T) {
	t.Parallel()
	url := testkit.Database(t)
	config, err := pgxpool.ParseConfig(url + "&application_name=shared")
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = 2
	pool, err := pgxpool.NewWithConfig(testkit.Context(t), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	s, watch := testkit.Store(t, eventstore.Config{Pool: pool}), testkit.Store(t, eventstore.Config{URL: url})
	for name, act := range map[string]func(ctx context.Context) error{
		"append": func(ctx context.Context) error {
			_, err := s.Append(ctx, "seat-A1", weir.AnyVersion, message("seat-A1", 1))
			return err
		},
		"ingest": func(ctx context.Context) error {
			_, err := s.Ingest(ctx, true, message("seat-A1", 1))
			return err
		},
		"append in a transaction": func(ctx context.Context) error {
			return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
				_, err := s.AppendTx(ctx, tx, eventstore.Append{Stream: "seat-A1", Expected: weir.AnyVersion, Messages: messages("seat-A1", 1)})
				return err
			})
		},
		"claim": func(ctx context.Context) error {
			_, err := s.Join("b").Claim(ctx, "scope", shards(2))
			return err
		},
		"dead letter": func(ctx context.Context) error {
			return s.KeepDeadLetter(ctx, eventstore.DeadLetter{Reason: "r", Data: []byte("d")})
		},
		"read": func(ctx context.Context) error {
			for _, err := range s.ReadStream(ctx, "seat-A1", eventstore.Read{}) {
				return err
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, givesUp := range []bool{false, true} {
				if givesUp {
					abandon(t, watch, act)
				} else if err := act(testkit.Context(t)); err != nil {
					t.Error(err)
				}
				wantClean(t, watch, pool)
			}
		})
	}
}

// abandon lets act run into a lock on every table and gives it up there.
func abandon(t *testing.T, watch *eventstore.Store, act func(context.Context) error) {
	t.Helper()
	gate, err := watch.Pool().Begin(testkit.Context(t))
	if err != nil {
		t.Fatal(err)
	}
	defer gate.Rollback(context.Background())
	if _, err := gate.Exec(testkit.Context(t), "lock table weir.streams, weir.events, weir.leases, weir.dead_letters in access exclusive mode"); err != nil {
		t.Fatal(err)
	}
	ctx, giveUp := context.WithCancel(testkit.Context(t))
	ended := make(chan error, 1)
	go func() { ended <- act(ctx) }()
	testkit.Await(t, 5*time.Second, "it waits", func() bool {
		return scalar[int](t, watch, "select count(*) from pg_locks l join pg_stat_activity a using (pid) where not l.granted and a.application_name = 'shared' and a.query not like '%max(position)%'") > 0
	})
	giveUp()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("given up: %v", err)
	}
}

// wantClean waits until nothing of the pool is under way, then looks at each of its
// connections.
func wantClean(t *testing.T, watch *eventstore.Store, pool *pgxpool.Pool) {
	t.Helper()
	testkit.Await(t, 10*time.Second, "locks and transactions have ended", func() bool {
		return scalar[int](t, watch, `select count(*) from pg_stat_activity a left join pg_locks l on l.pid = a.pid and l.locktype = 'advisory'
			where a.application_name = 'shared' and (a.state like 'idle in%' or l.pid is not null)`) == 0
	})
	for _, c := range pool.AcquireAllIdle(testkit.Context(t)) {
		var left []string
		err := c.QueryRow(testkit.Context(t), `select array(select 'listens to ' || pg_listening_channels()
			union all select 'setting ' || name from pg_settings where source = 'session' and name not in ('application_name', 'client_encoding')
			union all select 'append is registered' where current_setting('weir_append.registered', true) <> '')`).Scan(&left)
		c.Release()
		if err != nil || len(left) > 0 {
			t.Errorf("a connection that went back: %v, %v", left, err)
		}
	}
}

// TestDecidingHoldsNothing: while the user's code decides or walks through events, no
// transaction is open, so that it may take its time and delays nobody's vacuum and
// nobody's reader. (watermill-sql's AckDeadline: handlers inside a transaction held
// back everybody)
func TestDecidingHoldsNothing(t *testing.T) {
	t.Parallel()
	url := testkit.Database(t)
	s, watch := bank(t, url+"&application_name=decider"), testkit.Store(t, eventstore.Config{URL: url})
	transactions := func() {
		testkit.Await(t, 5*time.Second, "no transaction is open while the user's code runs", func() bool {
			return scalar[int](t, watch, "select count(*) from pg_stat_activity where application_name = 'decider' and state like 'idle in transaction%'") == 0 &&
				s.Pool().Stat().AcquiredConns() == 0
		})
	}
	for n := range 3 {
		if _, err := eventstore.Execute(testkit.Context(t), s, slowDeposit{openDeposit{deposit{"1", n + 1}}, transactions}); err != nil {
			t.Fatal(err)
		}
	}
	for range s.Stream(testkit.Context(t), "account-1", 0) {
		transactions()
	}
	for range s.Log(testkit.Context(t), 0) {
		transactions()
	}
}

// slowDeposit does something else while it decides.
type slowDeposit struct {
	openDeposit
	meanwhile func()
}

func (d slowDeposit) Decide(a account) ([]any, error) {
	d.meanwhile()
	return d.openDeposit.Decide(a)
}

// strait is a way to PostgreSQL that can fall silent: what is sent on connections
// made before is swallowed, and nobody hears of it. New ones pass.
type strait struct {
	to string

	mu     sync.Mutex
	silent map[net.Conn]bool
}

func newStrait(t *testing.T, address string) (*strait, string) {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	door, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &strait{to: u.Host, silent: map[net.Conn]bool{}}
	u.Host = door.Addr().String()
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			client, err := door.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { s.pass(client) })
		}
	})
	t.Cleanup(func() {
		door.Close()
		wg.Wait()
	})
	return s, u.String()
}

func (s *strait) pass(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", s.to)
	if err != nil {
		return
	}
	defer server.Close()
	s.mu.Lock()
	s.silent[client] = false
	s.mu.Unlock()
	go func() {
		io.Copy(s.mouth(client, client), server)
		s.mu.Lock()
		defer s.mu.Unlock()
		if !s.silent[client] {
			client.Close()
		}
	}()
	io.Copy(s.mouth(client, server), client)
}

// mouth writes to w until the connection of client is silent.
func (s *strait) mouth(client net.Conn, w io.Writer) io.Writer {
	return writerFunc(func(b []byte) (int, error) {
		s.mu.Lock()
		silent := s.silent[client]
		s.mu.Unlock()
		if silent {
			return len(b), nil
		}
		return w.Write(b)
	})
}

func (s *strait) fallSilent() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for client := range s.silent {
		s.silent[client] = true
	}
}

func (s *strait) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for client := range s.silent {
		client.Close()
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// TestP9_SilentConnectionsAreLeft: when a network swallows everything without a word,
// the reader says that it sees nothing, leaves the connection within seconds and goes
// on by another, and an append does so too. (bullmq#4729, pg-boss#850,
// graphile/worker#541: a half-open subscription that nobody noticed)
func TestP9_SilentConnectionsAreLeft(t *testing.T) {
	t.Parallel()
	address := testkit.Database(t)
	way, through := newStrait(t, address)
	s := testkit.Store(t, eventstore.Config{URL: through, Poll: 20 * time.Millisecond, Logger: slog.New(slog.DiscardHandler)})
	t.Cleanup(way.end) // before the store waits for what it left
	other := testkit.Store(t, eventstore.Config{URL: address})
	first := appendOne(t, other, "a-1")
	if _, err := s.WaitHorizon(testkit.Context(t), first.Position-1); err != nil {
		t.Fatal(err)
	}
	way.fallSilent()
	second := appendOne(t, other, "a-1")
	testkit.Await(t, 10*time.Second, "the silence is reported", func() bool {
		_, _, err := s.Head()
		return err != nil
	})
	ctx, cancel := context.WithTimeout(testkit.Context(t), 20*time.Second)
	defer cancel()
	if _, err := s.WaitHorizon(ctx, second.Position-1); err != nil {
		t.Errorf("the reader stands at %d: %v", s.Horizon(), err)
	}
	testkit.Await(t, 30*time.Second, "it complains no more", func() bool { // it may have more of them
		_, _, err := s.Head()
		return err == nil
	})
	if _, err := s.Append(ctx, "a-1", weir.AnyVersion, message("a-1", 1)); err != nil {
		t.Errorf("append: %v", err)
	}
	// The next falls silent under an append, which tries another connection.
	held, err := s.Pool().Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	fresh := time.Now()
	held.Release()
	way.fallSilent()
	appendOne(t, s, "a-1")
	if took := time.Since(fresh); took > 12*time.Second {
		t.Errorf("the append took %s", took)
	}
}

// version makes a schema as the first n migrations left it, with an event in it.
func version(t *testing.T, url string, files []string, n int) {
	t.Helper()
	ctx := testkit.Context(t)
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	run := func(sql string, args ...any) {
		t.Helper()
		if len(args) == 0 {
			args = append(args, pgx.QueryExecModeSimpleProtocol)
		}
		if _, err := conn.Exec(ctx, sql, args...); err != nil {
			t.Fatal(err)
		}
	}
	text := func(file string) string {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	run("create schema weir")
	run(text("sql/create_migrations.sql"))
	for i, file := range files[:n] {
		run(text(file))
		_, name, _ := strings.Cut(strings.TrimSuffix(filepath.Base(file), ".sql"), "_")
		run(text("sql/note_migration.sql"), i+1, name, fmt.Sprintf("%x", sha256.Sum256([]byte(text(file)))))
	}
	run("insert into weir.settings (shards) values (7)")
	run("insert into weir.streams (name, category, shard, version) values ('seat-A1', 'seat', 3, 1)")
	run(`begin; select set_config('weir_append.registered', 'weir.events'::regclass::oid::text, true);
		insert into weir.events (stream_id, version, event_id, shard, type, data) values (1, 1, '018f0000-0000-7000-8000-000000000000', 3, 'seat.held', '{"n": 1}'); commit`)
}

// TestEveryOlderSchemaIsBroughtUpToDate, with the events that are in it and by five
// instances at once, and then works as a new one does. (river PR#690, #505, #465)
func TestEveryOlderSchemaIsBroughtUpToDate(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("migrations/*.sql")
	if err != nil || len(files) < 2 {
		t.Fatalf("%d migrations, %v", len(files), err)
	}
	for n := 1; n <= len(files); n++ {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			url := testkit.Empty(t)
			version(t, url, files, n)
			stores := openAll(t, 5, eventstore.Config{URL: url})
			if len(stores) != 5 {
				t.Fatalf("%d of 5 instances started", len(stores))
			}
			s := testkit.Store(t, eventstore.Config{URL: url})
			e, err := s.Append(testkit.Context(t), "seat-A1", weir.Exactly(1), message("seat-A1", 2))
			if err != nil {
				t.Fatal(err)
			}
			got := logged(t, s)
			if len(got) != 2 || string(got[0].Data) != `{"n": 1}` || got[1].ID != e[0].ID || s.Shards() != 7 {
				t.Errorf("%d shards, the log is %+v", s.Shards(), got)
			}
			if f := examined(t, s, eventstore.Checkup{Full: true})["schema"]; !f.OK {
				t.Errorf("the doctor: %+v", f)
			}
		})
	}
}

// hangingMigration holds the lock that migrations of the schema "weir" take.
func hangingMigration(t *testing.T, url string) {
	t.Helper()
	conn, err := pgx.Connect(testkit.Context(t), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	h := fnv.New64a()
	h.Write([]byte("weir.migrate.weir"))
	if _, err := conn.Exec(testkit.Context(t), "select pg_advisory_lock($1)", int64(h.Sum64())); err != nil {
		t.Fatal(err)
	}
}

// TestMigrationsDoNotHangAStart: a schema that is up to date asks for no lock, and who
// has to wait for another's migration waits as long as the caller says.
// (river v0.0.9: hang on start; zitadel#6969)
func TestMigrationsDoNotHangAStart(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		url  string
		want error
	}{
		"up to date": {testkit.Database(t), nil},
		"empty":      {testkit.Empty(t), context.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hangingMigration(t, c.url)
			ctx, cancel := context.WithTimeout(testkit.Context(t), 2*time.Second)
			defer cancel()
			s, err := eventstore.Open(ctx, eventstore.Config{URL: c.url})
			if err == nil {
				s.Close()
			}
			if !errors.Is(err, c.want) {
				t.Errorf("beside a migration that hangs: %v", err)
			}
		})
	}
}

// TestTimesAroundClockChanges: what is read since a local time, or up to it, is what
// happened since that instant, also on the nights when an hour is left out or comes
// twice, and wherever the server believes to be. Weir has no schedules; the only times
// that a caller names are those to read from. (graphile-scheduler#11: the zone was
// ignored; DST)
func TestTimesAroundClockChanges(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ zone, night string }{
		{"America/St_Johns", "2026-03-08"}, {"America/St_Johns", "2026-11-01"}, {"Europe/Berlin", "2026-03-29"}, {"Europe/Berlin", "2026-10-25"},
	} {
		t.Run(c.zone+" "+c.night, func(t *testing.T) {
			t.Parallel()
			address := testkit.Database(t)
			alterDatabase(t, address, "timezone", c.zone)
			zone, err := time.LoadLocation(c.zone)
			if err != nil {
				t.Fatal(err)
			}
			midnight, err := time.ParseInLocation(time.DateOnly, c.night, zone)
			if err != nil {
				t.Fatal(err)
			}
			s := testkit.Store(t, eventstore.Config{URL: address})
			var facts []weir.Message
			for n := range 12 {
				m := message("a-1", n)
				if err := m.ID.SetTime(uint64(midnight.Add(time.Duration(n) * 30 * time.Minute).UnixMilli())); err != nil {
					t.Fatal(err)
				}
				facts = append(facts, m)
			}
			if _, err := s.Ingest(testkit.Context(t), false, facts...); err != nil {
				t.Fatal(err)
			}
			all := ids(logged(t, s))
			for n := range 12 {
				local := eventstore.AtTime(midnight.Add(time.Duration(n) * 30 * time.Minute))
				if got := ids(paged(t, s, eventstore.Read{From: local, Limit: 100})); !slices.Equal(got, all[n:]) {
					t.Errorf("since half-hour %d there are %d events, want %d", n, len(got), 12-n)
				}
				if got := ids(paged(t, s, eventstore.Read{AsOf: local, Limit: 100})); !slices.Equal(got, all[:n+1]) {
					t.Errorf("up to half-hour %d there are %d events, want %d", n, len(got), n+1)
				}
			}
		})
	}
}
