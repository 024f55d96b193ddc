//go:build unix

package eventstore_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	osexec "os/exec"
	"os/user"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/eventstore"
	"github.com/weir-es/weir/internal/testkit"
	"github.com/weir-es/weir/projection"
)

// kept is what a store promises, whatever way its statements travel. Each uses
// streams of its own.
var kept = []struct {
	name  string
	check func(*testing.T, *eventstore.Store)
}{
	{"append and read", keepsWhatIsAppended},
	{"repeat", answersRepeats},
	{"conflict", refusesConflicts},
	{"ingest", ingestsOnce},
	{"execute", executes},
	{"import", imports},
	{"caller's transaction and horizon", holdsReaders},
	{"leases", fences},
	{"dead letters", keepsDeadLetters},
	{"projection", projects},
	{"doctor", isSound},
}

// keep checks all promises on one store.
func keep(t *testing.T, config eventstore.Config) *eventstore.Store {
	t.Helper()
	registry, err := weir.NewRegistry(weir.Types{
		"test.counted": weir.EventOf[counted](), "account.deposited": weir.EventOf[deposited]()})
	if err != nil {
		t.Fatal(err)
	}
	config.Types = registry
	s := testkit.Store(t, config)
	for _, promise := range kept {
		t.Run(promise.name, func(t *testing.T) { promise.check(t, s) })
	}
	return s
}

func all(t *testing.T, events func(func(weir.Event, error) bool)) (got []weir.Event) {
	t.Helper()
	for e, err := range events {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, e)
	}
	return got
}

// keepsWhatIsAppended: every kind of payload and metadata, read in every way.
func keepsWhatIsAppended(t *testing.T, s *eventstore.Store) {
	ctx := testkit.Context(t)
	want := messages("kept-1", 4)
	want[0].Metadata = weir.Metadata{Correlation: "c", Causation: "d", Producer: "p", TraceParent: "00-1-2-01",
		TraceState: "x=y", Extra: map[string]string{`a'b\`: "ü\n\"'$1"}}
	want[1].Data = []byte("{ \"z\":1e2 ,\n\"a\":9007199254740993, \"nul\":\"\\u0000\", \"quote\": \"'\\\\' $1 ?\" }")
	want[2].Data, want[2].Metadata.ContentType = []byte{0, 1, 0xff, '\\', '\'', 0}, "application/octet-stream"
	want[3].Data, want[3].Metadata.ContentType = []byte{}, "application/octet-stream"
	early := message("kept-1", 9)
	early.ID = want[0].ID
	early.ID[15]-- // a decision that sorts too early gets an order id
	given, err := s.Append(ctx, "kept-1", weir.NewStream, want...)
	if err != nil {
		t.Fatal(err)
	}
	last, err := s.Append(ctx, "kept-1", weir.Exactly(4), early)
	if err != nil {
		t.Fatal(err)
	}
	given = append(given, last...)
	stored := read(t, s, "kept-1")
	for i, e := range stored {
		g := given[i]
		if !reflect.DeepEqual(e.Message, append(want, early)[i]) || e.Version != weir.Version(i+1) || e.Position != g.Position ||
			e.OrderID != g.OrderID || !e.Recorded.Equal(g.Recorded) {
			t.Errorf("event %d: stored %+v, given %+v", i, e, g)
		}
	}
	if len(stored) != 5 || stored[4].OrderID == (weir.ID{}) {
		t.Fatalf("%d events, the last with order id %s", len(stored), last[0].OrderID)
	}
	for name, r := range map[string]eventstore.Read{
		"forward":  {From: eventstore.AtID(want[1].ID), AsOf: eventstore.AtVersion(4), Types: []string{"test.happened"}, Categories: []string{"kept"}},
		"backward": {Backward: true, From: eventstore.AtVersion(4), AsOf: eventstore.AtPosition(stored[3].Position), Limit: 3},
	} {
		got := all(t, s.ReadStream(ctx, "kept-1", r))
		if r.Backward {
			slices.Reverse(got)
		}
		if !slices.Equal(ids(got), ids(stored[1:4])) {
			t.Errorf("stream %s: got %v", name, ids(got))
		}
	}
	log := eventstore.Read{From: eventstore.AtPosition(stored[1].Position), Types: []string{"test.happened"},
		Categories: []string{"kept", "other"}, AsOf: eventstore.AtID(stored[3].ID)}
	if got := all(t, s.ReadLog(ctx, log)); !slices.Equal(ids(got), ids(stored[1:4])) {
		t.Errorf("log: got %v", ids(got))
	}
}

func answersRepeats(t *testing.T, s *eventstore.Store) {
	ctx := testkit.Context(t)
	batch := messages("repeated-1", 5)
	first, err := s.Append(ctx, "repeated-1", weir.NewStream, batch[:3]...)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range [][]weir.Message{batch[:3], batch[1:2], {batch[0], batch[0]}, batch} {
		again, err := s.Append(ctx, "repeated-1", weir.NewStream, part...)
		if err != nil {
			t.Fatalf("%d of it again: %v", len(part), err)
		}
		for _, e := range again {
			if at := slices.Index(ids(first), e.ID); at >= 0 && (e.Version != first[at].Version || e.Position != first[at].Position) {
				t.Errorf("%s is answered as version %d at %d", e.ID, e.Version, e.Position)
			}
		}
	}
	if got := read(t, s, "repeated-1"); len(got) != 5 {
		t.Errorf("%d events", len(got))
	}
}

func refusesConflicts(t *testing.T, s *eventstore.Store) {
	ctx := testkit.Context(t)
	if _, err := s.Append(ctx, "conflict-1", weir.NewStream, messages("conflict-1", 2)...); err != nil {
		t.Fatal(err)
	}
	_, err := s.AppendAll(ctx,
		eventstore.Append{Stream: "conflict-0", Expected: weir.AnyVersion, Messages: messages("conflict-0", 1)},
		eventstore.Append{Stream: "conflict-1", Expected: 1, Messages: messages("conflict-1", 1)})
	var conflict *weir.ConflictError
	if !errors.As(err, &conflict) || conflict.Stream != "conflict-1" || conflict.Expected != 1 || conflict.Actual != 2 {
		t.Errorf("got %v", err)
	}
	if got := len(read(t, s, "conflict-0")); got != 0 {
		t.Errorf("a conflict in one stream left %d events in another", got)
	}
}

// ingestsOnce from many at once, who share transactions.
func ingestsOnce(t *testing.T, s *eventstore.Store) {
	facts := append(messages("fact-1", 20), messages("fact-2", 20)...)
	var wg sync.WaitGroup
	for n := range 8 {
		wg.Go(func() {
			for part := range slices.Chunk(facts, 1+n) {
				if _, err := s.Ingest(testkit.Context(t), n%2 == 0, part...); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for _, stream := range []weir.StreamID{"fact-1", "fact-2"} {
		if got := read(t, s, stream); len(got) != 20 {
			t.Errorf("%s has %d events", stream, len(got))
		}
	}
}

func executes(t *testing.T, s *eventstore.Store) {
	ctx := testkit.Context(t)
	for n := range 25 {
		if _, err := eventstore.Execute(ctx, s, snappedDeposit{deposit{"pooled", n + 1}}); err != nil {
			t.Fatal(err)
		}
	}
	state, version, err := eventstore.Load[snapped](ctx, s, "account-pooled")
	if err != nil || version != 25 || state.Count != 25 || state.Balance != 325 {
		t.Errorf("loaded %+v at version %d, %v", state, version, err)
	}
}

func imports(t *testing.T, s *eventstore.Store) {
	past := history(t, 500, 7)
	for _, want := range []eventstore.ImportResult{{Read: 500, Stored: 500}, {Read: 500, Duplicates: 500}} {
		got, err := s.Import(testkit.Context(t), source(past, nil), eventstore.ImportOptions{Batch: 200})
		if got.Last = 0; err != nil || got != want {
			t.Errorf("got %+v, %v, want %+v", got, err, want)
		}
	}
}

// holdsReaders while an append is open in a transaction of the caller's.
func holdsReaders(t *testing.T, s *eventstore.Store) {
	ctx := testkit.Context(t)
	tx, early := opened(t, s, messages("held-1", 2)...)
	late := appendOne(t, s, "held-2")
	if at := horizonOf(t, s); at >= early[0].Position {
		t.Errorf("while %d is open the horizon is %d", early[0].Position, at)
	}
	end(t, tx.Commit)
	if _, err := s.WaitHorizon(ctx, late.Position-1); err != nil {
		t.Fatalf("the horizon stands at %d: %v", s.Horizon(), err)
	}
	page, err := s.Page(ctx, early[0].Position-1, s.Horizon(), shards(s.Shards()), 10)
	if want := []weir.ID{early[0].ID, early[1].ID, late.ID}; err != nil || !slices.Equal(ids(page), want) {
		t.Errorf("the page is %v, %v", ids(page), err)
	}
}

func fences(t *testing.T, s *eventstore.Store) {
	ctx := testkit.Context(t)
	first := join(t, s, "first")
	stale := first.Guard("scope", claim(t, first, 3))
	fresh := first.Guard("scope", claim(t, first, 3))
	if got := claim(t, join(t, s, "second"), 3); len(got) != 0 {
		t.Errorf("a live owner lost %d leases", len(got))
	}
	for fence, want := range map[*eventstore.Fence]error{&stale: weir.ErrLeaseLost, &fresh: nil} {
		err := pgx.BeginFunc(ctx, s.Pool(), func(tx pgx.Tx) error {
			var b pgx.Batch
			s.QueueFence(&b, *fence, shards(3))
			s.QueueCheckpoint(&b, "pooled", shards(3), 7)
			return tx.SendBatch(ctx, &b).Close()
		})
		if !errors.Is(err, want) {
			t.Errorf("got %v, want %v", err, want)
		}
	}
	at, err := s.Checkpoints(ctx, "pooled")
	if want := map[weir.Shard]weir.Position{0: 7, 1: 7, 2: 7}; err != nil || !reflect.DeepEqual(at, want) {
		t.Errorf("checkpoints %v, %v", at, err)
	}
	if err := first.Leave(ctx); err != nil {
		t.Error(err)
	}
}

func keepsDeadLetters(t *testing.T, s *eventstore.Store) {
	letter := eventstore.DeadLetter{Reason: "serialization", Error: "it's not JSON: '\\'", Subject: "weir.x", Header: []byte{0, 0xff}, Data: []byte("\\x00'")}
	for range 2 {
		if err := s.KeepDeadLetter(testkit.Context(t), letter); err != nil {
			t.Fatal(err)
		}
	}
	if got := scalar[string](t, s, s.Qualify("select string_agg(encode(data, 'hex') || error, ' ') from weir.dead_letters")); got != "5c78303027"+letter.Error {
		t.Errorf("kept %q", got)
	}
}

type counted struct{ N int }

// counts is a fold in which order and multiplicity show.
type counts struct{ Seen []int }

func (c counts) Evolve(event any) counts {
	return counts{append(slices.Clone(c.Seen), event.(counted).N)}
}

// projects into a view, in order also when an event comes late, and into a handler.
func projects(t *testing.T, s *eventstore.Store) {
	view := projection.View[counts]{Name: "counts", Types: []string{"test.counted"}}
	var handled []weir.ID
	handler := projection.Handler{Name: "noted", Types: view.Types, WholeLog: true,
		Handle: func(_ context.Context, _ pgx.Tx, e weir.Event, _ any) error {
			handled = append(handled, e.ID)
			return nil
		}}
	facts := make([]weir.Message, 6)
	for n := range facts {
		facts[n] = message("counted-1", 0)
		facts[n].Type, facts[n].Data = "test.counted", fmt.Appendf(nil, `{"N":%d}`, n)
	}
	for _, part := range [][]weir.Message{facts[:2], facts[4:], facts[2:4]} { // the last are late
		if _, err := s.Ingest(testkit.Context(t), false, part...); err != nil {
			t.Fatal(err)
		}
		catchUp(t, s, view, "shards", shards(s.Shards()))
		catchUp(t, s, handler, "view:noted", []weir.Shard{eventstore.WholeLog})
	}
	row, err := view.Get(testkit.Context(t), s, "counted-1")
	if err != nil || !slices.Equal(row.Seen, []int{0, 1, 2, 3, 4, 5}) {
		t.Errorf("the view says %v, %v", row.Seen, err)
	}
	if len(handled) != 6 {
		t.Errorf("the handler was given %d events", len(handled))
	}
}

// catchUp runs a projection to the end of the log.
func catchUp(t *testing.T, s *eventstore.Store, p projection.Projection, scope string, shards []weir.Shard) {
	t.Helper()
	ctx, stop := context.WithCancel(testkit.Context(t))
	defer stop()
	if err := p.Prepare(ctx, s); err != nil {
		t.Fatal(err)
	}
	instance := s.Join(p.ProjectionName())
	leases, err := instance.Claim(ctx, scope, shards)
	if err != nil {
		t.Fatal(err)
	}
	w := &projection.Worker{Store: s, Projection: p, Fence: instance.Guard(scope, leases)}
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	if err := w.Wait(ctx, horizonOf(t, s)); err != nil {
		t.Errorf("%s: %v", p.ProjectionName(), w.Progress().Err)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// isSound: after all of this, nothing is wrong with the store.
func isSound(t *testing.T, s *eventstore.Store) {
	findings, err := s.Doctor(testkit.Context(t), eventstore.Checkup{Full: true})
	if err != nil {
		t.Error(err)
	}
	expected := []string{"dead_letters", "leases"} // one kept on purpose, and of instances that are gone
	for _, f := range findings {
		if !f.OK && !slices.Contains(expected, f.Check) {
			t.Errorf("%s: %s %v", f.Check, f.Found, f.Details)
		}
	}
}

// modes are the ways in which pgx sends a statement.
var modes = []string{"cache_statement", "cache_describe", "describe_exec", "exec", "simple_protocol"}

// TestEveryQueryMode keeps every promise. With a pool of the caller's, two are refused,
// since that would have to be told what an id is.
func TestEveryQueryMode(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			s := keep(t, eventstore.Config{URL: withMode(t, testkit.Empty(t), mode)})
			conn, err := s.Pool().Acquire(testkit.Context(t))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Release()
			if got := conn.Conn().Config().DefaultQueryExecMode.String(); strings.ReplaceAll(got, " ", "_") != mode {
				t.Errorf("the mode was %s", got)
			}
		})
	}
	for _, mode := range modes {
		t.Run("caller's pool, "+mode, func(t *testing.T) {
			t.Parallel()
			pool := callersPool(t, mode)
			if mode != "exec" && mode != "simple_protocol" {
				keep(t, eventstore.Config{Pool: pool})
				return
			}
			s, err := eventstore.Open(testkit.Context(t), eventstore.Config{Pool: pool})
			if err == nil {
				s.Close()
				t.Fatal("it was opened")
			}
			if !strings.Contains(err.Error(), "cache_describe") {
				t.Error(err)
			}
		})
	}
}

func withMode(t *testing.T, address, mode string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	q.Set("default_query_exec_mode", mode)
	u.RawQuery = q.Encode()
	return u.String()
}

func callersPool(t *testing.T, mode string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(testkit.Context(t), withMode(t, testkit.Empty(t), mode))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// TestBehindPgBouncer in transaction mode, where many clients take turns on few
// connections to the server. Modes that send a statement and its execution together
// keep every promise. Not so describe_exec, although it names no statement: it sends
// one, reads the answer and then executes, and between the two another client may have
// sent its own.
func TestBehindPgBouncer(t *testing.T) {
	t.Parallel()
	bouncer := startBouncer(t)
	for _, mode := range []string{"cache_describe", "exec", "simple_protocol"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			address := bouncer.route(t, testkit.Empty(t), mode)
			for n := range 3 { // three processes
				t.Run(fmt.Sprint(n), func(t *testing.T) {
					t.Parallel()
					keep(t, eventstore.Config{URL: address, Schema: fmt.Sprint("process ", n)})
				})
			}
		})
	}
	t.Run("cache_statement", func(t *testing.T) {
		t.Parallel()
		if bouncer.keepsStatements {
			keep(t, eventstore.Config{URL: bouncer.route(t, testkit.Empty(t), "cache_statement")})
			return
		}
		statementsCollide(t, bouncer)
	})
}

// statementsCollide: two processes that prepare statements under the same names on
// the same connections to the server are told so, and nothing is stored twice or
// half. This is what a configuration that forgot the query mode looks like.
func statementsCollide(t *testing.T, bouncer *bouncer) {
	direct := testkit.Database(t)
	address := bouncer.route(t, direct, "cache_statement")
	var wg sync.WaitGroup
	errs := make(chan error, 1000)
	acknowledged := make([]int, 3)
	for n := range acknowledged {
		wg.Go(func() {
			s, err := eventstore.Open(testkit.Context(t), eventstore.Config{URL: address, Logger: quiet})
			if err != nil {
				errs <- err
				return
			}
			defer s.Close()
			for i := range 30 {
				stream := weir.Stream("a", fmt.Sprint(i%5))
				if _, err := s.Append(testkit.Context(t), stream, weir.AnyVersion, message(stream, i)); err != nil {
					errs <- err
				} else {
					acknowledged[n]++
				}
			}
		})
	}
	wg.Wait()
	close(errs)
	collisions := 0
	for err := range errs {
		var pg *pgconn.PgError
		if errors.As(err, &pg) && (pg.Code == "42P05" || pg.Code == "26000") {
			collisions++
		} else {
			t.Errorf("neither stored nor told that a statement exists already: %v", err)
		}
	}
	s := testkit.Store(t, eventstore.Config{URL: direct})
	isSound(t, s)
	stored, sum := len(logged(t, s)), acknowledged[0]+acknowledged[1]+acknowledged[2]
	if collisions == 0 || stored < sum || stored > sum+collisions {
		t.Errorf("%d collisions; %d acknowledged, %d stored", collisions, sum, stored)
	}
}

// bouncer is a PgBouncer in transaction mode.
type bouncer struct {
	port int
	// keepsStatements says that it tells the prepared statements of its clients
	// apart, as from 1.21 on.
	keepsStatements bool
	dir             string
}

// startBouncer starts a PgBouncer in front of the tests' server, with four connections
// to each database. It does not outlive the test binary, however that ends.
func startBouncer(t *testing.T) *bouncer {
	t.Helper()
	program, err := osexec.LookPath("pgbouncer")
	if err != nil {
		t.Fatalf("this test needs PgBouncer (Debian, Ubuntu: apt-get install pgbouncer): %v", err)
	}
	b := &bouncer{port: freePort(t), dir: t.TempDir()}
	version, err := osexec.Command(program, "-V").Output()
	if err != nil {
		t.Fatal(err)
	}
	b.keepsStatements = minor(t, string(version)) >= 21
	config := b.configure(t)
	shell := osexec.Command("/bin/sh", "-c", `"$0" "$1" & read -r _; kill $!; wait`, program, config)
	b.disown(t, shell)
	leash, err := shell.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	log := &strings.Builder{}
	shell.Stdout, shell.Stderr = io.Discard, log
	if err := shell.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		leash.Close()
		shell.Wait()
		if t.Failed() {
			t.Log(log)
		}
	})
	testkit.Await(t, 20*time.Second, "PgBouncer listens", func() bool {
		conn, err := net.Dial("tcp", b.address())
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
	return b
}

func (b *bouncer) address() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(b.port)) }

// minor is the second number of a version such as "PgBouncer 1.18.0".
func minor(t *testing.T, version string) int {
	t.Helper()
	found := regexp.MustCompile(`PgBouncer 1\.(\d+)`).FindStringSubmatch(version)
	if found == nil {
		t.Fatalf("what version is %q?", version)
	}
	n, _ := strconv.Atoi(found[1])
	return n
}

// configure writes the configuration, for any database of the tests' server.
func (b *bouncer) configure(t *testing.T) string {
	t.Helper()
	server, err := pgx.ParseConfig(testkit.Postgres(t).URL())
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf(`[databases]
* = host=%s port=%d user=%s password=%s
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 4
max_client_conn = 1000
ignore_startup_parameters = extra_float_digits
log_connections = 0
log_disconnections = 0
log_stats = 0
`, server.Host, server.Port, server.User, server.Password, b.port)
	if b.keepsStatements {
		text += "max_prepared_statements = 200\n"
	}
	path := filepath.Join(b.dir, "pgbouncer.ini")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// disown lets a command run as somebody else if we are root, which PgBouncer refuses.
func (b *bouncer) disown(t *testing.T, command *osexec.Cmd) {
	t.Helper()
	if os.Geteuid() != 0 {
		return
	}
	nobody, err := user.Lookup("nobody")
	if err != nil {
		t.Fatal(err)
	}
	uid, _ := strconv.Atoi(nobody.Uid)
	gid, _ := strconv.Atoi(nobody.Gid)
	for _, path := range []string{b.dir, filepath.Join(b.dir, "pgbouncer.ini")} {
		if err := os.Chown(path, uid, gid); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Dir(b.dir), 0o711); err != nil {
		t.Fatal(err)
	}
	command.Dir = b.dir
	command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
}

// route is the URL of a database by way of PgBouncer.
func (b *bouncer) route(t *testing.T, direct, mode string) string {
	t.Helper()
	u, err := url.Parse(withMode(t, direct, mode))
	if err != nil {
		t.Fatal(err)
	}
	u.Host = b.address()
	return u.String()
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}
