//go:build unix

package eventstore_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	command "os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/devserver"
	"github.com/weir-es/weir/eventstore"
	"github.com/weir-es/weir/internal/testkit"
)

// quiet is for stores whose server is away on purpose.
var quiet = slog.New(slog.DiscardHandler)

// ownServer is a PostgreSQL that a test may stop and tamper with. Its files are in
// dir, or nowhere if that is empty. What no commit makes durable does not become so by
// itself while a test runs.
func ownServer(t *testing.T, dir string) *devserver.Postgres {
	t.Helper()
	server, err := devserver.StartPostgres(testkit.Context(t), devserver.PostgresConfig{
		Dir: dir, Settings: map[string]string{"wal_writer_delay": "10s", "wal_writer_flush_after": "1GB", "max_prepared_transactions": "2"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	return server
}

// insist repeats what a restart interrupts, as a client does.
func insist(t *testing.T, what string, act func() error) {
	t.Helper()
	testkit.Await(t, 30*time.Second, what, func() bool {
		err := act()
		if err != nil && !eventstore.IsTransient(err) && !errors.Is(err, pgx.ErrTxClosed) {
			t.Fatalf("%s: %v", what, err)
		}
		return err == nil
	})
}

// follower reads the log like a process that lives through everything.
type follower struct {
	t    *testing.T
	s    *eventstore.Store
	at   weir.Position
	seen []weir.Event
}

func (f *follower) read() {
	f.t.Helper()
	insist(f.t, "read the log", func() error {
		to, _, err := f.s.ReadHorizon(testkit.Context(f.t))
		if err != nil {
			return err
		}
		page, err := f.s.Page(testkit.Context(f.t), f.at, to, nil, 1000)
		if err == nil {
			f.seen, f.at = append(f.seen, page...), to
		}
		return err
	})
}

// openAppend is an append in a transaction that a restart may end.
type openAppend struct {
	t   *testing.T
	s   *eventstore.Store
	all []weir.Message
	tx  pgx.Tx
}

func (a *openAppend) begin() error {
	ctx := testkit.Context(a.t)
	var err error
	if a.tx, err = a.s.Pool().Begin(ctx); err != nil {
		return err
	}
	_, err = a.s.AppendTx(ctx, a.tx, eventstore.Append{Stream: a.all[0].Stream, Expected: weir.AnyVersion, Messages: a.all})
	if err != nil {
		a.tx.Rollback(ctx)
	}
	return err
}

// commit commits, or begins again what is lost.
func (a *openAppend) commit() error {
	err := a.tx.Commit(testkit.Context(a.t))
	if err != nil {
		insist(a.t, "append again", a.begin)
	}
	return err
}

// burn rolls back, after drawing more numbers than the sequence logs at a time. A
// restart has done the same if it fails.
func (a *openAppend) burn() error {
	ctx := testkit.Context(a.t)
	a.tx.Exec(ctx, "select nextval('weir.position') from generate_series(1, 40)")
	a.tx.Rollback(ctx)
	return nil
}

// TestP6_RestartBetweenAnySteps of two writers and a reader: one transaction open
// across the step, one rolled back after it drew more numbers than the sequence logs
// at a time, so that a crash gives them out again. (marten#3503)
func TestP6_RestartBetweenAnySteps(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"fast", "immediate"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			server := ownServer(t, "")
			s := testkit.Store(t, eventstore.Config{URL: server.URL(), RetryTimeout: time.Minute, Logger: quiet})
			reader := &follower{t: t, s: s}
			var want []weir.ID
			for cut, last := 0, 1; cut < last; cut++ {
				a := &openAppend{t: t, s: s, all: messages("a-1", 2)}
				b, d := message("b-1", 1), message("d-1", 1)
				c := &openAppend{t: t, s: s, all: messages("c-1", 1)}
				appendTo := func(m weir.Message) func() error {
					return func() error {
						_, err := s.Append(testkit.Context(t), m.Stream, weir.AnyVersion, m)
						return err
					}
				}
				read := func() error { reader.read(); return nil }
				steps := []func() error{a.begin, appendTo(b), read, a.commit, read, c.begin, read, c.burn, read, appendTo(d), read}
				last = len(steps)
				for n, step := range steps {
					if n == cut {
						if err := server.Restart(testkit.Context(t), mode); err != nil {
							t.Fatal(err)
						}
					}
					insist(t, fmt.Sprintf("step %d, restarted before step %d", n, cut), step)
				}
				want = append(want, a.all[0].ID, a.all[1].ID, b.ID, d.ID)
				if _, err := s.WaitHorizon(testkit.Context(t), reader.at-1); err != nil {
					t.Fatalf("restarted before step %d, the horizon that Run keeps stands: %v", cut, err)
				}
			}
			checkSeen(t, reader.seen, want)
			checkSeen(t, logged(t, s), want)
		})
	}
}

// TestP6_PreparedTransactionHoldsReadersAcrossARestart: its locks come back with it.
func TestP6_PreparedTransactionHoldsReadersAcrossARestart(t *testing.T) {
	t.Parallel()
	server := ownServer(t, "")
	s := testkit.Store(t, eventstore.Config{URL: server.URL(), Logger: quiet})
	reader := &follower{t: t, s: s}
	var want []weir.ID
	for _, mode := range []string{"fast", "immediate"} {
		tx, early := opened(t, s, message("a-1", 1))
		if _, err := tx.Exec(testkit.Context(t), "prepare transaction '"+mode+"'"); err != nil {
			t.Fatal(err)
		}
		end(t, tx.Conn().Close)
		if err := server.Restart(testkit.Context(t), mode); err != nil {
			t.Fatal(err)
		}
		b := message("b-1", 1)
		insist(t, "append after the restart", func() error {
			_, err := s.Append(testkit.Context(t), b.Stream, weir.AnyVersion, b)
			return err
		})
		reader.read()
		if len(reader.seen) != len(want) {
			t.Errorf("%s: while %d is prepared the reader is given %v", mode, early[0].Position, positions(reader.seen))
		}
		exec(t, s, "commit prepared '"+mode+"'")
		reader.read()
		want = append(want, early[0].ID, b.ID)
		checkSeen(t, reader.seen, want)
	}
}

// checkSeen compares events with the ids of all that were committed.
func checkSeen(t *testing.T, seen []weir.Event, want []weir.ID) {
	t.Helper()
	if !slices.IsSortedFunc(seen, func(a, b weir.Event) int { return int(a.Position - b.Position) }) {
		t.Errorf("out of order: %v", positions(seen))
	}
	got := ids(seen)
	slices.SortFunc(got, weir.ID.Compare)
	slices.SortFunc(want, weir.ID.Compare)
	if !slices.Equal(got, want) {
		t.Errorf("%d events committed, %d seen, %d of them different", len(want), len(got), len(slices.Compact(got)))
	}
}

// tool is a command of the server's own version.
func tool(t *testing.T, url, name string, arguments ...string) *command.Cmd {
	t.Helper()
	return command.Command(filepath.Join(ask(t, url, "select setting from pg_config where name = 'BINDIR'"), name), arguments...)
}

func output(t *testing.T, cmd *command.Cmd) string {
	t.Helper()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, out)
	}
	return string(out)
}

// ask runs a statement and returns its one value as text.
func ask(t *testing.T, url, sql string) string {
	t.Helper()
	var value any
	ctx := testkit.Context(t)
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	if err := conn.QueryRow(ctx, sql).Scan(&value); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return fmt.Sprint(value)
}

// dumped fills a store, with a consumer at its third event and numbers burned at its
// end, and returns a dump of it and what its log shows.
func dumped(t *testing.T, schema string) (dump string, log []weir.Event) {
	t.Helper()
	url := testkit.Empty(t)
	s := testkit.Store(t, eventstore.Config{URL: url, Schema: schema})
	if _, err := s.Append(testkit.Context(t), "a-1", weir.NewStream, messages("a-1", 5)...); err != nil {
		t.Fatal(err)
	}
	log = logged(t, s)
	var b pgx.Batch
	s.QueueCheckpoint(&b, "c", []weir.Shard{eventstore.WholeLog}, log[2].Position)
	if err := s.Pool().SendBatch(testkit.Context(t), &b).Close(); err != nil {
		t.Fatal(err)
	}
	tx, _ := opened(t, s, messages("a-2", 7)...)
	end(t, tx.Rollback)
	dump = filepath.Join(t.TempDir(), "dump")
	output(t, tool(t, url, "pg_dump", "--format", "custom", "--file", dump, url))
	return dump, log
}

// resume follows the log from the checkpoint of the consumer.
func resume(t *testing.T, s *eventstore.Store) *follower {
	t.Helper()
	checkpoints, err := s.Checkpoints(testkit.Context(t), "c")
	if err != nil {
		t.Fatal(err)
	}
	return &follower{t: t, s: s, at: checkpoints[eventstore.WholeLog]}
}

// TestP6_FeedsGoOnInARestoredCluster: a dump, taken to a new cluster.
func TestP6_FeedsGoOnInARestoredCluster(t *testing.T) {
	t.Parallel()
	dump, log := dumped(t, "weir")
	url := ownServer(t, "").URL()
	output(t, tool(t, url, "pg_restore", "--exit-on-error", "--dbname", url, dump))

	s := testkit.Store(t, eventstore.Config{URL: url})
	reader := resume(t, s)
	reader.read()
	if got := positions(reader.seen); !slices.Equal(got, positions(log[3:])) {
		t.Errorf("from its checkpoint the consumer is given %v, want %v", got, positions(log[3:]))
	}
	early, drawn := opened(t, s, message("a-3", 1))
	later := appendOne(t, s, "a-4")
	reader.read()
	if drawn[0].Position <= log[4].Position || len(reader.seen) != 2 {
		t.Errorf("while %d is open the consumer is given %v", drawn[0].Position, positions(reader.seen))
	}
	end(t, early.Commit)
	reader.read()
	if got := positions(reader.seen[2:]); !slices.Equal(got, []weir.Position{drawn[0].Position, later.Position}) {
		t.Errorf("then it is given %v", got)
	}
}

// TestP6_RestoreWithoutItsSequenceIsRefused, whatever the name of the schema, and the
// error says what mends it.
func TestP6_RestoreWithoutItsSequenceIsRefused(t *testing.T) {
	t.Parallel()
	for _, schema := range []string{"weir", `it's "odd"`} {
		t.Run(schema, func(t *testing.T) {
			t.Parallel()
			dump, log := dumped(t, schema)
			url := testkit.Empty(t)
			list := filepath.Join(t.TempDir(), "list")
			contents := output(t, tool(t, url, "pg_restore", "--list", dump))
			kept := slices.DeleteFunc(strings.Split(contents, "\n"), func(line string) bool {
				return strings.Contains(line, "SEQUENCE SET") && strings.Contains(line, " position ")
			})
			if err := os.WriteFile(list, []byte(strings.Join(kept, "\n")), 0o600); err != nil {
				t.Fatal(err)
			}
			output(t, tool(t, url, "pg_restore", "--exit-on-error", "--use-list", list, "--dbname", url, dump))

			config := eventstore.Config{URL: url, Schema: schema}
			s, err := eventstore.Open(testkit.Context(t), config)
			var behind *eventstore.SequenceBehindError
			if !errors.As(err, &behind) || behind.Last != log[4].Position || behind.Drawn >= behind.Last {
				if err == nil {
					s.Close()
				}
				t.Fatalf("a restore without its sequence: %v", err)
			}
			_, mend, _ := strings.Cut(err.Error(), "mend it with: ")
			ask(t, url, mend)
			mended := testkit.Store(t, config)
			reader := resume(t, mended)
			next := appendOne(t, mended, "a-3")
			reader.read()
			want := append(positions(log[3:]), next.Position)
			if got := positions(reader.seen); next.Position <= log[4].Position || !slices.Equal(got, want) {
				t.Errorf("after %q the consumer is given %v, want %v", mend, got, want)
			}
		})
	}
}

// asOwner runs a command as the owner of dir, since the tools refuse root.
func asOwner(t *testing.T, dir string, cmd *command.Cmd) *command.Cmd {
	t.Helper()
	info, err := os.Stat(dir)
	if err != nil {
		t.Fatal(err)
	}
	if owner := info.Sys().(*syscall.Stat_t); os.Geteuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: owner.Uid, Gid: owner.Gid}}
		cmd.Dir = dir
	}
	return cmd
}

// cold is a server with files of its own, so that something can be done to them
// while it is stopped.
func cold(t *testing.T) (server *devserver.Postgres, data string) {
	t.Helper()
	dir := t.TempDir()
	for _, d := range []string{dir, filepath.Dir(dir)} { // the server's account has to pass
		if err := os.Chmod(d, 0o711); err != nil {
			t.Fatal(err)
		}
	}
	server = ownServer(t, filepath.Join(dir, "server"))
	return server, ask(t, server.URL(), "show data_directory")
}

func whileStopped(t *testing.T, server *devserver.Postgres, act func()) {
	t.Helper()
	if err := server.Stop(testkit.Context(t), "fast"); err != nil {
		t.Fatal(err)
	}
	act()
	if err := server.Resume(testkit.Context(t)); err != nil {
		t.Fatal(err)
	}
}

// TestP6_FeedsGoOnAfterNewTransactionNumbers: nothing of ours depends on them, and
// pg_resetwal, a new cluster or an upgrade may give new ones.
func TestP6_FeedsGoOnAfterNewTransactionNumbers(t *testing.T) {
	t.Parallel()
	server, data := cold(t)
	s := testkit.Store(t, eventstore.Config{URL: server.URL(), Logger: quiet})
	reader := &follower{t: t, s: s}
	want := []weir.ID{appendOne(t, s, "a-1").ID}
	reader.read()
	reset := tool(t, server.URL(), "pg_resetwal", "-e", "1", "-D", data)
	whileStopped(t, server, func() { output(t, asOwner(t, data, reset)) })
	if epoch := ask(t, server.URL(), "select (pg_current_xact_id()::text::bigint >> 32)"); epoch != "1" {
		t.Fatalf("the epoch is %s", epoch)
	}
	var late []weir.Event
	var tx pgx.Tx
	insist(t, "append after the reset", func() error {
		_, err := s.Append(testkit.Context(t), "a-1", weir.AnyVersion, message("a-1", 2))
		return err
	})
	tx, late = opened(t, s, message("a-2", 1))
	after := appendOne(t, s, "a-1")
	reader.read()
	if len(reader.seen) != 2 {
		t.Errorf("while %d is open the reader is given %v", late[0].Position, positions(reader.seen))
	}
	end(t, tx.Commit)
	reader.read()
	want = append(want, reader.seen[1].ID, late[0].ID, after.ID)
	checkSeen(t, reader.seen, want)
}

// TestP6_OlderCopyUnderARunningStore ends Run, and no reader of that process passes
// what is written in the place of what is gone.
func TestP6_OlderCopyUnderARunningStore(t *testing.T) {
	t.Parallel()
	server, data := cold(t)
	s, err := eventstore.Open(testkit.Context(t), eventstore.Config{URL: server.URL(), Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx, stop := context.WithCancel(testkit.Context(t))
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()

	var last weir.Event
	for range 5 {
		last = appendOne(t, s, "a-1")
	}
	copied := data + ".older"
	whileStopped(t, server, func() { output(t, command.Command("cp", "-a", data, copied)) })
	older := last.Position
	for range 3 {
		insist(t, "append after the copy", func() error {
			events, err := s.Append(testkit.Context(t), "a-1", weir.AnyVersion, message("a-1", 1))
			if err == nil {
				last = events[0]
			}
			return err
		})
	}
	if _, err := s.WaitHorizon(ctx, last.Position-1); err != nil {
		t.Fatal(err)
	}
	whileStopped(t, server, func() {
		output(t, command.Command("mv", data, data+".newer"))
		output(t, command.Command("mv", copied, data))
	})
	var back *eventstore.WentBackError
	select {
	case err := <-ended:
		if !errors.As(err, &back) || back.Was != last.Position || back.Is != older || !strings.Contains(err.Error(), "start this process again") {
			t.Errorf("Run ended with %v, the log went from %d to %d", err, last.Position, older)
		}
	case <-ctx.Done():
		t.Fatal("Run goes on")
	}
	again := testkit.Store(t, eventstore.Config{URL: server.URL(), Logger: quiet})
	reader := &follower{t: t, s: again, at: older}
	next := appendOne(t, again, "a-1")
	reader.read()
	if got := positions(reader.seen); next.Position > last.Position || !slices.Equal(got, []weir.Position{next.Position}) {
		t.Errorf("a new process at %d is given %v", older, got)
	}
	if at, _, err := s.ReadHorizon(ctx); !errors.As(err, &back) {
		t.Errorf("the old process is told that the log is complete to %d, %v", at, err)
	}
}
