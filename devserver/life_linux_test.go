package devserver

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// Linux takes the end of the thread that started a child for the end of the
// parent. A caller's thread may end long before his program does.
func TestPostgresOutlivesTheThreadOfItsCaller(t *testing.T) {
	var p *Postgres
	thread := onDyingThread(func() { p = startOne(t, PostgresConfig{}) })
	eventually(t, "thread gone", func() bool { return !exists("/proc/self/task/" + strconv.Itoa(thread)) })
	query(t, p.URL(), "select 1")
}

// onDyingThread runs f on a thread that ends afterwards, and returns its number.
func onDyingThread(f func()) (thread int) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		if thread = syscall.Gettid(); thread != os.Getpid() {
			f()
			return // without unlocking, which ends the thread
		}
		// The first thread of a process never ends. While we hold it, the next
		// attempt gets another.
		thread = onDyingThread(f)
		runtime.UnlockOSThread()
	}()
	<-done
	return thread
}

// The status file of a server that was killed still says ready.
func TestAKilledServerIsResumed(t *testing.T) {
	p := startOne(t, PostgresConfig{})
	execute(t, p.URL(), "create table kept as select 42 as answer")
	p.child.kill()
	eventually(t, "backends gone", func() bool { return len(processesIn(p.folder.path)) == 0 })
	if err := p.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := query(t, p.URL(), "select answer from kept"); got != int32(42) {
		t.Errorf("read %v, want 42", got)
	}
}

func TestTheUsersOwnSettingsStayOutside(t *testing.T) {
	t.Setenv("PGCLIENTENCODING", "LATIN1")
	t.Setenv("LC_TIME", "de_DE.UTF-8")
	var homes int
	for _, variable := range environment("/home/of/the/server") {
		if strings.HasPrefix(variable, "PG") || strings.Contains(variable, "de_DE") {
			t.Errorf("PostgreSQL sees %s", variable)
		}
		if strings.HasPrefix(variable, "HOME=") {
			homes++
		}
	}
	if homes != 1 {
		t.Errorf("%d homes, want 1", homes)
	}
}

// Somebody swept the directory, and another has its name, before it was locked.
func TestALockIsOnWhatIsThere(t *testing.T) {
	path := t.TempDir() + "/folder"
	must(os.Mkdir(path, 0o700))
	dir, err := os.Open(path)
	must(err)
	defer dir.Close()
	must(os.Rename(path, path+".swept"))
	must(os.Mkdir(path, 0o700))
	if err := lockAndCheck(dir, path); err != errTaken {
		t.Errorf("got %v, want %v", err, errTaken)
	}
}
