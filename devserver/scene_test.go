//go:build !windows

package devserver

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// sceneVariable tells this test binary to be a program that uses the package.
const sceneVariable = "WEIR_DEVSERVER_TEST_SCENE"

// deadline is for what takes a moment.
const deadline = 30 * time.Second

// The scenes a program can play. Each prints what it started, as one line of JSON.
var scenes = map[string]func(*Server) error{
	// careless never closes.
	"careless": func(*Server) error { select {} },

	// brief closes at once.
	"brief": func(s *Server) error { return s.Close() },

	// patient closes when its input ends.
	"patient": func(s *Server) error {
		io.Copy(io.Discard, os.Stdin)
		return s.Close()
	},

	// tidy needs its servers once more after Ctrl-C, and then closes.
	"tidy": func(s *Server) error {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
		defer stop()
		fmt.Println("listening")
		<-ctx.Done()
		if err := s.postgres.execute(context.Background(), "select 'drained'"); err != nil {
			return err
		}
		return s.Close()
	},
}

// started is what a scene prints.
type started struct {
	Postgres string // folder
	PID      int    // of PostgreSQL
	NATS     string // folder
}

func play(scene string) int {
	s, err := Start(context.Background())
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	line, err := json.Marshal(started{s.postgres.folder.path, s.postgres.child.process.Pid, s.nats.folder.path})
	must(err)
	fmt.Println(string(line))
	if err := scenes[scene](s); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// program is this test binary playing a scene.
type program struct {
	t     *testing.T
	cmd   *exec.Cmd
	input io.Closer
	lines *bufio.Scanner
	errs  strings.Builder
	started
}

// launch starts a program. Change it before it runs in prepare.
func launch(t *testing.T, scene string, prepare ...func(*exec.Cmd)) *program {
	t.Helper()
	p := &program{t: t, cmd: exec.Command(os.Args[0])}
	p.cmd.Env = append(os.Environ(), sceneVariable+"="+scene)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p.cmd.Stderr = &p.errs
	for _, f := range prepare {
		f(p.cmd)
	}
	var err error
	p.input, err = p.cmd.StdinPipe()
	must(err)
	output, err := p.cmd.StdoutPipe()
	must(err)
	p.lines = bufio.NewScanner(output)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.cmd.Process.Kill() })
	return p
}

// up waits until the program has its servers.
func (p *program) up() *program {
	p.t.Helper()
	if err := json.Unmarshal([]byte(p.line()), &p.started); err != nil {
		p.t.Fatal(err)
	}
	return p
}

// line waits for the next line of output.
func (p *program) line() string {
	p.t.Helper()
	if !p.lines.Scan() {
		p.cmd.Wait()
		p.t.Fatalf("the program ended: %v\n%s", p.cmd.ProcessState, p.errs.String())
	}
	return p.lines.Text()
}

// end waits for the end of the program.
func (p *program) end() error {
	p.t.Helper()
	timer := time.AfterFunc(deadline, func() { p.cmd.Process.Kill() })
	defer timer.Stop()
	if err := p.cmd.Wait(); err != nil {
		return fmt.Errorf("%w\n%s", err, p.errs.String())
	}
	return nil
}

// eventually waits until the condition holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	late := time.After(deadline)
	for !holds() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("still not after %s: %s", deadline, what)
		}
	}
}

// publicDir is like t.TempDir, but other users can reach it.
func publicDir(t *testing.T) string {
	dir := openRoom("")
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// lives says whether the process does. One that is dead but was not waited for
// does not.
func lives(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || !strings.Contains(string(stat), ") Z ")
}

// processesIn are the processes whose working directory is in dir: a PostgreSQL
// and all it forked.
func processesIn(dir string) (pids []string) {
	links, _ := filepath.Glob("/proc/[0-9]*/cwd")
	for _, link := range links {
		if cwd, err := os.Readlink(link); err == nil && strings.HasPrefix(cwd, dir) {
			pids = append(pids, link)
		}
	}
	return pids
}
