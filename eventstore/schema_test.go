package eventstore_test

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/eventstore"
	"github.com/weir-es/weir/internal/testkit"
)

// alterDatabase changes a setting for every session that begins from now on.
func alterDatabase(t *testing.T, url, setting, value string) {
	t.Helper()
	ctx := testkit.Context(t)
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	name := pgx.Identifier{conn.Config().Database}.Sanitize()
	if _, err := conn.Exec(ctx, fmt.Sprintf("alter database %s set %s = '%s'", name, setting, value)); err != nil {
		t.Fatal(err)
	}
}

// openAll opens n stores at once and returns them and the errors of the others.
func openAll(t *testing.T, n int, config eventstore.Config) (stores []*eventstore.Store) {
	t.Helper()
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			s, err := eventstore.Open(testkit.Context(t), config)
			if err != nil {
				t.Error(err)
				return
			}
			t.Cleanup(s.Close)
			mu.Lock()
			defer mu.Unlock()
			stores = append(stores, s)
		})
	}
	wg.Wait()
	return stores
}

var isolations = []string{"read committed", "repeatable read", "serializable"}

// TestTenInstancesMigrateOnce on an empty database, whatever its default
// isolation. (river#364 and others: concurrent starters)
func TestTenInstancesMigrateOnce(t *testing.T) {
	t.Parallel()
	for _, isolation := range isolations {
		t.Run(isolation, func(t *testing.T) {
			t.Parallel()
			url := testkit.Empty(t)
			alterDatabase(t, url, "default_transaction_isolation", isolation)
			stores := openAll(t, 10, eventstore.Config{URL: url, Shards: 7})
			if len(stores) != 10 {
				t.Fatalf("%d of 10 instances started", len(stores))
			}
			if n := scalar[int](t, stores[0], "select count(*) - count(distinct number) from weir.migrations"); n != 0 {
				t.Errorf("%d migrations were done twice", n)
			}
			if n := scalar[int](t, stores[0], "select count(*) from weir.settings"); n != 1 {
				t.Errorf("%d rows of settings", n)
			}
			if stores[9].Shards() != 7 {
				t.Errorf("%d shards", stores[9].Shards())
			}
		})
	}
}

// TestAppendsAndFeedsInAnyIsolation that the database has by default.
func TestAppendsAndFeedsInAnyIsolation(t *testing.T) {
	t.Parallel()
	for _, isolation := range isolations[1:] {
		t.Run(isolation, func(t *testing.T) {
			t.Parallel()
			url := testkit.Database(t)
			alterDatabase(t, url, "default_transaction_isolation", isolation)
			s := testkit.Store(t, eventstore.Config{URL: url})
			ctx := testkit.Context(t)
			var wg sync.WaitGroup
			for w := range 4 {
				wg.Go(func() {
					for i := range 20 {
						stream := weir.Stream("a", fmt.Sprint((w+i)%3))
						if _, err := s.Append(ctx, stream, weir.AnyVersion, message(stream, i)); err != nil {
							t.Error(err)
						}
						// The same letter from everybody: who is in the way tries again.
						err := s.KeepDeadLetter(ctx, eventstore.DeadLetter{Reason: "r", Data: []byte{byte(i)}})
						if err != nil && !eventstore.IsTransient(err) {
							t.Error(err)
						}
					}
				})
			}
			wg.Wait()
			if got := len(logged(t, s)); got != 80 {
				t.Errorf("the log has %d events, want 80", got)
			}
			i := join(t, s, "a")
			if got := len(claim(t, i, 5)); got != 5 {
				t.Errorf("claimed %d of 5", got)
			}
		})
	}
}

// logged is the whole log up to the horizon of this moment.
func logged(t *testing.T, s *eventstore.Store) (events []weir.Event) {
	t.Helper()
	for e, err := range s.Log(testkit.Context(t), 0) {
		if err != nil {
			t.Fatal(err)
		}
		events = append(events, e)
	}
	return events
}

// TestSchemaMayHaveAnyName and two stores in one database share nothing.
// (river#485: custom schema; ocoda#449: an apostrophe)
func TestSchemaMayHaveAnyName(t *testing.T) {
	t.Parallel()
	url := testkit.Empty(t)
	names := []string{"weir", `we"ird Schéma`, "it's", "a.b", "select", "UPPER", `back\slash`, "weir.", "a$$b", "😀", "$1", "%s"}
	var stores []*eventstore.Store
	for _, name := range names {
		s, err := eventstore.Open(testkit.Context(t), eventstore.Config{URL: url, Schema: name})
		if err != nil {
			t.Errorf("schema %q: %v", name, err)
			continue
		}
		t.Cleanup(s.Close)
		stores = append(stores, s)
	}
	for n, s := range stores {
		stream := weir.StreamID("seat-A1")
		if _, err := s.Append(testkit.Context(t), stream, weir.NewStream, messages(stream, n+1)...); err != nil {
			t.Errorf("schema %q: %v", s.Schema(), err)
		}
		claim(t, join(t, s, "x"), 2)
	}
	for n, s := range stores {
		events := logged(t, s)
		if len(events) != n+1 || events[0].Position != 1 {
			t.Errorf("schema %q has %d events, want %d of its own", s.Schema(), len(events), n+1)
		}
		again, err := eventstore.Open(testkit.Context(t), eventstore.Config{URL: url, Schema: s.Schema()})
		if err != nil {
			t.Errorf("schema %q, again: %v", s.Schema(), err)
			continue
		}
		again.Close()
	}
}

// TestSchemaWhoseNameIsCutOff would be shared with every other name that begins
// alike, so it is refused.
func TestSchemaWhoseNameIsCutOff(t *testing.T) {
	t.Parallel()
	url := testkit.Empty(t)
	for _, end := range []string{"a", "b"} {
		s, err := eventstore.Open(testkit.Context(t), eventstore.Config{URL: url, Schema: strings.Repeat("x", 63) + end})
		if err == nil {
			defer s.Close()
			t.Errorf("a name of 64 bytes is accepted; PostgreSQL calls it %q", scalar[string](t, s, "select max(nspname) from pg_namespace where nspname like 'xxx%'"))
		}
	}
}

// TestSchemaOfAnotherProgramIsLeftAlone: a newer one, and one that was made by
// another text.
func TestSchemaOfAnotherProgramIsLeftAlone(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]string{
		"newer":   "insert into weir.migrations (number, name, checksum) select max(number) + 1, 'future', 'x' from weir.migrations",
		"another": "update weir.migrations set checksum = 'x'",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := testkit.Database(t)
			s := testkit.Store(t, eventstore.Config{URL: url})
			exec(t, s, change)
			began := time.Now()
			other, err := eventstore.Open(testkit.Context(t), eventstore.Config{URL: url})
			if err == nil {
				other.Close()
				t.Fatal("it was opened")
			}
			if !strings.Contains(err.Error(), "migration") || time.Since(began) > 5*time.Second {
				t.Errorf("after %s: %v", time.Since(began), err)
			}
		})
	}
}

// withUser is the URL for another user.
func withUser(t *testing.T, from, user, password string) string {
	t.Helper()
	u, err := url.Parse(from)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(user, password)
	return u.String()
}

// TestRuntimeNeedsNoRightToCreate, only to read and write. (modernice/goes v0.9)
func TestRuntimeNeedsNoRightToCreate(t *testing.T) {
	t.Parallel()
	ctx := testkit.Context(t)
	address := testkit.Database(t)
	admin := testkit.Store(t, eventstore.Config{URL: address})
	role := "dml_" + strings.ToLower(weir.NewID().String())
	for _, sql := range []string{
		"create role " + role + " login password 'secret'",
		"revoke all on schema public from public",
		"grant usage on schema weir to " + role,
		"grant select, insert, update, delete on all tables in schema weir to " + role,
		"grant usage, select on all sequences in schema weir to " + role,
	} {
		if _, err := admin.Pool().Exec(ctx, sql); err != nil {
			t.Fatal(err)
		}
	}
	s := testkit.Store(t, eventstore.Config{URL: withUser(t, address, role, "secret")})
	if _, err := s.Append(ctx, "seat-A1", weir.NewStream, messages("seat-A1", 3)...); err != nil {
		t.Error(err)
	}
	if _, err := s.Ingest(ctx, true, messages("seat-A1", 2)...); err != nil {
		t.Error(err)
	}
	if got := len(logged(t, s)); got != 5 {
		t.Errorf("%d events", got)
	}
	i := join(t, s, "x")
	leases := claim(t, i, 3)
	err := pgx.BeginFunc(ctx, s.Pool(), func(tx pgx.Tx) error {
		var b pgx.Batch
		s.QueueFence(&b, i.Guard("scope", leases), shards(3))
		s.QueueCheckpoint(&b, "c", shards(3), 3)
		if err := tx.SendBatch(ctx, &b).Close(); err != nil {
			return err
		}
		return s.Park(ctx, tx, "c", eventstore.Parked{Stream: "seat-A1", Version: 1})
	})
	if err != nil {
		t.Error(err)
	}
	if err := s.KeepDeadLetter(ctx, eventstore.DeadLetter{Reason: "r"}); err != nil {
		t.Error(err)
	}
	if err := i.Leave(ctx); err != nil {
		t.Error(err)
	}
}

// TestErrorsKeepThePassword secret, and name the address.
// (goes and others: connection URL with password in error text)
func TestErrorsKeepThePassword(t *testing.T) {
	t.Parallel()
	right := testkit.Postgres(t).URL()
	u, err := url.Parse(right)
	if err != nil {
		t.Fatal(err)
	}
	nobody, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := nobody.Addr().String()
	nobody.Close()
	for name, c := range map[string]struct{ url, want string }{
		"wrong password":      {"postgres://postgres:s3cr3t@" + u.Host + "/postgres?sslmode=disable", u.Port()},
		"wrong database":      {strings.Replace(withUser(t, right, "postgres", "s3cr3t"), "/postgres?", "/nothing?", 1), u.Port()},
		"wrong port":          {"postgres://postgres:s3cr3t@" + port + "/postgres?sslmode=disable", port},
		"wrong port, DSN":     {"host=127.0.0.1 port=" + strings.Split(port, ":")[1] + " user=x password=s3cr3t", port},
		"port no number":      {"postgres://postgres:s3cr3t@127.0.0.1:abc/postgres", ""},
		"slash in password":   {"postgres://postgres:s3cr3t/x@127.0.0.1:1/postgres", ""},
		"hash in password":    {"postgres://postgres:s3cr3t#x@127.0.0.1:1/postgres", ""},
		"percent in password": {"postgres://postgres:s3cr3t%zz@127.0.0.1:1/postgres", ""},
		"space in password":   {"postgres://postgres:s3cr3t x@127.0.0.1:1/postgres", ""},
		"colon in password":   {"postgres://postgres:s3cr3t:x@y@127.0.0.1:abc/postgres", ""},
		"broken DSN":          {"host=127.0.0.1 password='s3cr3t port=x", ""},
		"bad TLS mode":        {"postgres://postgres:s3cr3t@127.0.0.1:1/postgres?sslmode=odd", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			s, err := eventstore.Open(testkit.Context(t), eventstore.Config{URL: c.url, ConnectTimeout: 300 * time.Millisecond})
			if err == nil {
				s.Close()
				t.Fatal("it was opened")
			}
			if strings.Contains(err.Error(), "s3cr3t") || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error without the password, with %q: %v", c.want, err)
			}
			if time.Since(began) > 3*time.Second {
				t.Errorf("it took %s", time.Since(began))
			}
		})
	}
}

// TestP9_SilentServerIsGivenUp after ConnectTimeout: one that takes the connection
// and never says a word.
func TestP9_SilentServerIsGivenUp(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	began := time.Now()
	s, err := eventstore.Open(testkit.Context(t), eventstore.Config{
		URL: "postgres://postgres:s3cr3t@" + silent.Addr().String() + "/postgres", ConnectTimeout: 500 * time.Millisecond})
	if err == nil {
		s.Close()
		t.Fatal("it was opened")
	}
	if took := time.Since(began); took > 2*time.Second || !strings.Contains(err.Error(), silent.Addr().String()) {
		t.Errorf("with half a second to connect, given up after %s: %v", took, err)
	}
}

// TestPooledModes: what a transaction pooler in front of PostgreSQL allows.
func TestPooledModes(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"cache_statement", "cache_describe", "describe_exec"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			s := testkit.Store(t, eventstore.Config{URL: testkit.Database(t) + "&default_query_exec_mode=" + mode})
			ctx := testkit.Context(t)
			all := messages("seat-A1", 3)
			for range 2 {
				if _, err := s.Append(ctx, "seat-A1", weir.NewStream, all...); err != nil {
					t.Error(err)
				}
			}
			if _, err := s.Ingest(ctx, true, all...); err != nil {
				t.Error(err)
			}
			claim(t, join(t, s, "x"), 2)
			if got := len(logged(t, s)); got != 3 || len(read(t, s, "seat-A1")) != 3 {
				t.Errorf("%d events", got)
			}
		})
	}
}

// TestCallersPool is used and not closed, also when it has one connection only.
func TestCallersPool(t *testing.T) {
	t.Parallel()
	config, err := pgxpool.ParseConfig(testkit.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = 1
	pool, err := pgxpool.NewWithConfig(testkit.Context(t), config)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	t.Run("store", func(t *testing.T) {
		s := testkit.Store(t, eventstore.Config{Pool: pool})
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				if _, err := s.Append(testkit.Context(t), "seat-A1", weir.AnyVersion, message("seat-A1", i)); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if got := len(logged(t, s)); got != 20 {
			t.Errorf("%d events", got)
		}
	})
	if err := pool.Ping(context.Background()); err != nil {
		t.Errorf("the caller's pool after the store was closed: %v", err)
	}
}

// TestRecordedInAnyTimeZone of session and database. (watermill#631)
// (watermill-sql#53)
func TestRecordedInAnyTimeZone(t *testing.T) {
	t.Parallel()
	for _, zone := range []string{"Asia/Jakarta", "America/St_Johns"} {
		t.Run(zone, func(t *testing.T) {
			t.Parallel()
			url := testkit.Database(t)
			alterDatabase(t, url, "timezone", zone)
			alterDatabase(t, url, "datestyle", "SQL, DMY")
			s := testkit.Store(t, eventstore.Config{URL: url})
			before := time.Now().Add(-time.Second)
			got, err := s.Append(testkit.Context(t), "seat-A1", weir.NewStream, message("seat-A1", 1))
			if err != nil {
				t.Fatal(err)
			}
			stored := read(t, s, "seat-A1")[0].Recorded
			if stored != got[0].Recorded || stored.Location() != time.UTC || stored.Before(before) || stored.After(time.Now().Add(time.Second)) {
				t.Errorf("recorded %s, returned %s, now %s", stored, got[0].Recorded, time.Now().UTC())
			}
			i := join(t, s, "a")
			claim(t, i, 2)
			if got := claim(t, join(t, s, "b"), 2); len(got) != 0 {
				t.Errorf("a live instance lost %d leases to a time zone", len(got))
			}
		})
	}
}
