//go:build !windows

package devserver

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
)

func startOne(t testing.TB, config PostgresConfig) *Postgres {
	t.Helper()
	p, err := StartPostgres(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

func TestRestartKeepsPortAndData(t *testing.T) {
	for _, durable := range []bool{false, true} {
		for _, mode := range []string{"fast", "immediate"} {
			t.Run(mode+" durable "+strconv.FormatBool(durable), func(t *testing.T) {
				p := startOne(t, PostgresConfig{Durable: durable})
				url := p.URL()
				execute(t, url, "create table kept as select 42 as answer")
				if err := p.Restart(t.Context(), mode); err != nil {
					t.Fatal(err)
				}
				if p.URL() != url {
					t.Errorf("the address moved from %s to %s", url, p.URL())
				}
				if got := query(t, url, "select answer from kept"); got != int32(42) {
					t.Errorf("read %v, want 42", got)
				}
			})
		}
	}
}

func TestStoppedMeansStopped(t *testing.T) {
	p := startOne(t, PostgresConfig{})
	if err := p.Stop(t.Context(), "smart"); err == nil {
		t.Error("a mode that waits for clients was accepted")
	}
	for range 2 { // the second does nothing
		if err := p.Stop(t.Context(), "fast"); err != nil {
			t.Fatal(err)
		}
	}
	if conn, err := pgx.Connect(t.Context(), p.URL()); err == nil {
		conn.Close(t.Context())
		t.Error("a stopped server answers")
	}
	for range 2 {
		if err := p.Resume(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	query(t, p.URL(), "select 1")
	p.Close()
	if err := p.Resume(t.Context()); !errors.Is(err, errClosed) {
		t.Errorf("got %v, want %v", err, errClosed)
	}
}

func TestDurableWaitsForTheDisk(t *testing.T) {
	p := startOne(t, PostgresConfig{Durable: true})
	for _, setting := range []string{"fsync", "synchronous_commit", "full_page_writes"} {
		if got := query(t, p.URL(), "show "+setting); got != "on" {
			t.Errorf("%s is %v", setting, got)
		}
	}
	if inMemory, _ := memoryFree(p.folder.path); inMemory {
		t.Errorf("%s is in memory", p.folder.path)
	}
}

func TestSettingsWin(t *testing.T) {
	p := startOne(t, PostgresConfig{Settings: map[string]string{"max_prepared_transactions": "10", "max_connections": "17"}})
	if got := query(t, p.URL(), "show max_connections"); got != "17" {
		t.Errorf("max_connections is %v, want 17", got)
	}
	execute(t, p.URL(), "begin", "select 1", "prepare transaction 'one'", "commit prepared 'one'")
}

func TestANamedFolderIsKept(t *testing.T) {
	t.Chdir(publicDir(t))
	config := PostgresConfig{Dir: "data"}
	p := startOne(t, config)
	execute(t, p.URL(), "create table kept as select 42 as answer")
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	again := startOne(t, config)
	if got := query(t, again.URL(), "select answer from kept"); got != int32(42) {
		t.Errorf("read %v, want 42", got)
	}
	again.Close() // before its folder goes with the test
}

func TestAFolderOutOfReachIsNamed(t *testing.T) {
	p := &Postgres{as: &account{uid: 65534, gid: 65534}, config: PostgresConfig{Dir: t.TempDir()}}
	if _, err := p.place(); err == nil || !strings.Contains(err.Error(), p.config.Dir) {
		t.Errorf("got %v, want an error that names %s", err, p.config.Dir)
	}
}

func TestNobodyEntersWithoutThePassword(t *testing.T) {
	p := startOne(t, PostgresConfig{})
	url := strings.Replace(p.URL(), p.cluster.password, "guess", 1)
	if conn, err := pgx.Connect(t.Context(), url); err == nil {
		conn.Close(t.Context())
		t.Error("a wrong password was accepted")
	}
}

func TestATakenPortIsNoticed(t *testing.T) {
	p := startOne(t, PostgresConfig{})
	must(p.Stop(t.Context(), "fast"))
	squatter, err := net.Listen("tcp", net.JoinHostPort(loopback, strconv.Itoa(p.port)))
	must(err)
	defer squatter.Close()
	if err := p.Resume(t.Context()); !errors.Is(err, errPortTaken) {
		t.Errorf("got %v, want %v", err, errPortTaken)
	}
}

func TestWithoutACacheItStartsAsWell(t *testing.T) {
	as, err := serverAccount()
	must(err)
	bin, err := newFinder(as).find(t.Context())
	must(err)
	p, err := tryPostgres(t.Context(), PostgresConfig{}, bin, as, "")
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	query(t, p.URL(), "select 1")
}

func TestACacheThatLostFilesIsMadeAnew(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	startOne(t, PostgresConfig{})
	lost, err := filepath.Glob(filepath.Join(os.Getenv("XDG_CACHE_HOME"), "*", "cluster*", "data", "global", "pg_control"))
	must(err)
	if len(lost) != 1 {
		t.Fatalf("the first start kept %q, want one cluster", lost)
	}
	must(os.Remove(lost[0]))
	startOne(t, PostgresConfig{})
	if !exists(lost[0]) {
		t.Error("the cache was not made anew")
	}
}

func TestTheCacheIsTheFirstPlaceThatOnlyWeCanWriteTo(t *testing.T) {
	room := t.TempDir()
	file := filepath.Join(room, "file")
	must(os.WriteFile(file, nil, 0o600))
	candidates := []string{filepath.Join(file, "below"), mkdir(room, "shared"), filepath.Join(room, "unfit"), filepath.Join(room, "good")}
	fits := func(dir string) bool { return filepath.Base(dir) != "unfit" }
	if got := cacheDir(candidates, fits); got != candidates[3] {
		t.Errorf("got %q, want %q", got, candidates[3])
	}
	if got := cacheDir(candidates[:3], fits); got != "" {
		t.Errorf("got %q, want none", got)
	}
}

func TestDatabasesAreApart(t *testing.T) {
	p := startOne(t, PostgresConfig{})
	one, err := p.NewDatabase(t.Context())
	must(err)
	two, err := p.NewDatabase(t.Context())
	must(err)
	execute(t, one, "create table only_here ()")
	if got := query(t, two, "select to_regclass('only_here') is null"); got != true {
		t.Error("a table is in two databases")
	}
}

func TestClonesAreApartAndPreparedOnce(t *testing.T) {
	for _, durable := range []bool{false, true} {
		p := startOne(t, PostgresConfig{Durable: durable})
		var prepared atomic.Int32
		prepare := func(ctx context.Context, url string) error {
			prepared.Add(1)
			execute(t, url, "create table seats as select 'A1' as seat")
			forgotten, err := pgx.Connect(ctx, url)
			t.Cleanup(func() { forgotten.Close(context.Background()) })
			return err
		}
		var tests sync.WaitGroup
		for range 8 {
			tests.Go(func() {
				url, err := p.CloneDatabase(t.Context(), "seats", prepare)
				if err != nil {
					t.Error(err)
					return
				}
				execute(t, url, "insert into seats values ('B1')")
				if got := query(t, url, "select count(*) from seats"); got != int64(2) {
					t.Errorf("%v seats in a clone, want 2", got)
				}
			})
		}
		tests.Wait()
		if got := prepared.Load(); got != 1 {
			t.Errorf("prepared %d times", got)
		}
	}
}

func TestAFailedPreparationIsTriedAgain(t *testing.T) {
	p := startOne(t, PostgresConfig{})
	broken := errors.New("broken")
	fail := func(context.Context, string) error { return broken }
	if _, err := p.CloneDatabase(t.Context(), "x", fail); !errors.Is(err, broken) {
		t.Fatalf("got %v, want %v", err, broken)
	}
	if got := query(t, p.URL(), "select count(*) from pg_database where datname like 'dev_%'"); got != int64(0) {
		t.Errorf("%v databases are left over", got)
	}
	work := func(context.Context, string) error { return nil }
	if _, err := p.CloneDatabase(t.Context(), "x", work); err != nil {
		t.Error(err)
	}
}

// BenchmarkStart is the newcomer's wait, after the first time.
func BenchmarkStart(b *testing.B) {
	warm, err := Start(b.Context())
	must(err)
	warm.Close()
	for b.Loop() {
		s, err := Start(b.Context())
		must(err)
		b.StopTimer()
		s.Close()
		b.StartTimer()
	}
}

// BenchmarkClone is what each test waits for.
func BenchmarkClone(b *testing.B) {
	p := startOne(b, PostgresConfig{})
	prepare := func(context.Context, string) error { return nil }
	for b.Loop() {
		_, err := p.CloneDatabase(b.Context(), "x", prepare)
		must(err)
	}
}
