//go:build !windows

package devserver

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
)

func TestCloseLeavesNoFileAndNoProcess(t *testing.T) {
	s := start(t)
	data, store, pid := s.postgres.folder.path, s.nats.folder.path, s.postgres.child.process.Pid
	if len(processesIn(data)) == 0 && exists("/proc") {
		t.Fatal("no process works in the folder of PostgreSQL")
	}
	publish(t, s.nats, "a message")
	for range 2 {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for _, folder := range []string{data, store} {
		if exists(folder) {
			t.Errorf("%s is left over", folder)
		}
	}
	if lives(pid) || len(processesIn(data)) > 0 {
		t.Error("PostgreSQL is left over")
	}
}

// However a program ends that does not close, it takes PostgreSQL with it, and the
// next start removes the files.
func TestDeathOfTheParentIsTheEnd(t *testing.T) {
	for _, signal := range []syscall.Signal{syscall.SIGKILL, syscall.SIGINT, syscall.SIGTERM} {
		t.Run(signal.String(), func(t *testing.T) {
			p := launch(t, "careless").up()
			syscall.Kill(p.cmd.Process.Pid, signal)
			if err := p.end(); err == nil {
				t.Fatal("the program survived")
			}
			eventually(t, "PostgreSQL gone", func() bool { return !lives(p.PID) && len(processesIn(p.Postgres)) == 0 })
			if !exists(p.Postgres) || !exists(p.NATS) {
				t.Fatal("there is nothing for the next start to remove")
			}
			start(t)
			if exists(p.Postgres) || exists(p.NATS) {
				t.Error("the next start left the folders of a dead program")
			}
		})
	}
}

func TestTheLivingAreNotSwept(t *testing.T) {
	s, neighbour := start(t), launch(t, "patient").up()
	if err := launch(t, "brief").up().end(); err != nil { // one in a third process
		t.Fatal(err)
	}
	start(t) // and one in this
	for _, folder := range []string{s.postgres.folder.path, s.nats.folder.path, neighbour.Postgres, neighbour.NATS} {
		if !exists(folder) {
			t.Errorf("%s was swept", folder)
		}
	}
	query(t, s.Postgres, "select 1")
	neighbour.input.Close()
	if err := neighbour.end(); err != nil {
		t.Error(err)
	}
}

// Ctrl-C goes to all processes of the terminal. PostgreSQL must not hear it, or
// the program could not drain.
func TestCtrlCLetsTheProgramDrain(t *testing.T) {
	p := launch(t, "tidy").up()
	p.line()
	if group, err := syscall.Getpgid(p.PID); err != nil || group == p.cmd.Process.Pid {
		t.Errorf("PostgreSQL is in process group %d (%v), where Ctrl-C reaches it", group, err)
	}
	syscall.Kill(-p.cmd.Process.Pid, syscall.SIGINT)
	if err := p.end(); err != nil {
		t.Fatal(err)
	}
	if exists(p.Postgres) || exists(p.NATS) || lives(p.PID) {
		t.Error("something is left over")
	}
}

func TestTwoFirstStartsAtOnce(t *testing.T) {
	cache := filepath.Join(t.TempDir(), "cache")
	fresh := func(cmd *exec.Cmd) { cmd.Env = append(cmd.Env, "XDG_CACHE_HOME="+cache) }
	one, two := launch(t, "brief", fresh), launch(t, "brief", fresh)
	for _, p := range []*program{one.up(), two.up()} {
		if err := p.end(); err != nil {
			t.Error(err)
		}
	}
	if kept, _ := filepath.Glob(filepath.Join(cache, "*", "*")); len(kept) != 1 {
		t.Errorf("kept %q, want one cluster", kept)
	}
}

// Root starts PostgreSQL as somebody else; anybody else starts it as himself, here
// also without a home and so without a cache of his own.
func TestAnybodyCanStart(t *testing.T) {
	binary := copyOfThisBinary(t)
	for _, who := range people(t) {
		t.Run(who.name, func(t *testing.T) {
			room := publicDir(t)
			p := launch(t, "patient", func(cmd *exec.Cmd) {
				cmd.Path, cmd.Dir = binary, "/"
				cmd.Env = append(cmd.Env, "HOME=/nonexistent", "XDG_CACHE_HOME=", "TMPDIR="+mkdir(room, "tmp"))
				cmd.SysProcAttr.Credential = credential(who.as)
			}).up()
			if uid := ownerOfProcess(t, p.PID); uid == 0 {
				t.Error("PostgreSQL runs as root")
			}
			p.input.Close()
			if err := p.end(); err != nil {
				t.Error(err)
			}
		})
	}
}

type person struct {
	name string
	as   *account
}

// people are ourselves and, if we may become him, an ordinary user.
func people(t *testing.T) []person {
	who := []person{{"ourselves", nil}}
	if os.Geteuid() == 0 {
		nobody, err := user.Lookup("nobody")
		if err != nil {
			t.Fatal(err)
		}
		as, err := parseAccount(nobody)
		if err != nil {
			t.Fatal(err)
		}
		who = append(who, person{"nobody", as})
	}
	return who
}

// copyOfThisBinary is one that anybody can reach.
func copyOfThisBinary(t *testing.T) string {
	program, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(publicDir(t), "program")
	if err := os.WriteFile(path, program, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func ownerOfProcess(t *testing.T, pid int) int {
	info, err := os.Stat("/proc/" + strconv.Itoa(pid))
	if err != nil {
		return os.Getuid() // no /proc here, and no root either in these tests
	}
	return ownerOf(info)
}

func TestServersThatRunAreUsedAndLeftAlone(t *testing.T) {
	running := start(t)
	t.Setenv("WEIR_POSTGRES", running.Postgres)
	t.Setenv("WEIR_NATS", running.NATS)
	s := start(t)
	if s.Postgres != running.Postgres || s.NATS != running.NATS {
		t.Errorf("got %s and %s, want %s and %s", s.Postgres, s.NATS, running.Postgres, running.NATS)
	}
	if s.PostgresServer() != nil || s.NATSServer() != nil {
		t.Error("a server was started")
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	query(t, running.Postgres, "select 1")
	publish(t, running.nats, "still there")
}

func TestAFailedStartLeavesNothing(t *testing.T) {
	for name, config := range map[string]PostgresConfig{
		"a setting that is unknown": {Settings: map[string]string{"no_such_setting": "1"}},
		"a setting that is wrong":   {Settings: map[string]string{"port": "0"}, Durable: true},
	} {
		before := folders()
		if p, err := StartPostgres(t.Context(), config); err == nil {
			p.Close()
			t.Errorf("%s: started", name)
		}
		if after := folders(); !slices.Equal(before, after) {
			t.Errorf("%s: left %q", name, after)
		}
	}
}

func TestACancelledStartLeavesNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	before := folders()
	if s, err := Start(ctx); err == nil {
		s.Close()
		t.Error("started")
	}
	if after := folders(); !slices.Equal(before, after) {
		t.Errorf("left %q", after)
	}
}

// folders are those of ours that are there now.
func folders() (paths []string) {
	for _, base := range []string{memory, os.TempDir()} {
		found, _ := filepath.Glob(filepath.Join(base, prefix+"*"))
		paths = append(paths, found...)
	}
	return paths
}

func TestTheWatchdogEndsWhatOutlivesItsParent(t *testing.T) {
	victim := exec.Command("/bin/cat")
	input, err := victim.StdinPipe()
	must(err)
	output, err := victim.StdoutPipe()
	must(err)
	must(victim.Start())
	dog, err := startWatchdog(victim.Process.Pid)
	must(err)
	dog.callOff()
	fmt.Fprintln(input, "alive")
	if answer, err := bufio.NewReader(output).ReadString('\n'); answer != "alive\n" {
		t.Errorf("the watchdog bit although it was called off: %q, %v", answer, err)
	}

	dog, err = startWatchdog(victim.Process.Pid)
	must(err)
	dog.leash.Close() // as it happens when the parent dies
	if err := victim.Wait(); err == nil {
		t.Error("the watchdog did not bite")
	}
	dog.shell.Wait()
}

// start starts both servers and closes them with the test.
func start(t *testing.T) *Server {
	t.Helper()
	s, err := Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// query returns the one value a query gives.
func query(t *testing.T, url, sql string) (value any) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if err := conn.QueryRow(t.Context(), sql).Scan(&value); err != nil {
		t.Fatal(err)
	}
	return value
}

func execute(t *testing.T, url string, statements ...string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	for _, s := range statements {
		if _, err := conn.Exec(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
}
