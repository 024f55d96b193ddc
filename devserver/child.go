package devserver

import (
	"os"
	"os/exec"
	"runtime"
	"strings"
)

// A child is a process that does not outlive this one, and that the Ctrl-C meant
// for this one does not reach: the application drains first and then ends it.
type child struct {
	process *os.Process

	ended chan struct{} // closed when the process is over
	err   error         // how it ended, to be read after ended
}

// startChild starts the command as the account.
func startChild(cmd *exec.Cmd, as *account) (*child, error) {
	cmd.SysProcAttr = attributes(as)
	c := &child{ended: make(chan struct{})}
	started := make(chan error)
	go c.run(cmd, started)
	if err := <-started; err != nil {
		return nil, err
	}
	return c, nil
}

// run is over when the process is. Linux tells a child that its parent is dead
// when the *thread* that started it ends, so this one is kept until then.
func (c *child) run(cmd *exec.Cmd, started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(c.ended)
	if err := cmd.Start(); err != nil {
		started <- err
		return
	}
	c.process = cmd.Process
	unwatch, err := watch(cmd.Process)
	if err != nil {
		c.process.Kill()
	}
	started <- err
	c.err = cmd.Wait()
	unwatch()
}

// alive says whether the process runs. A nil child does not.
func (c *child) alive() bool {
	if c == nil {
		return false
	}
	select {
	case <-c.ended:
		return false
	default:
		return true
	}
}

// kill ends the process and returns when it is over.
func (c *child) kill() {
	c.process.Kill()
	<-c.ended
}

// environment is what a child of ours sees: the home it may write to, messages
// in English, and nothing that is meant for the user's own PostgreSQL clients.
func environment(home string) []string {
	keep := []string{"HOME=" + home, "LC_ALL=C", "TZ=UTC"}
	for _, v := range os.Environ() {
		if !isOurs(v) {
			keep = append(keep, v)
		}
	}
	return keep
}

func isOurs(variable string) bool {
	for _, p := range []string{"PG", "LC_", "LANG=", "HOME=", "TZ="} {
		if strings.HasPrefix(variable, p) {
			return true
		}
	}
	return false
}
