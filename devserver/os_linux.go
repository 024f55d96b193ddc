package devserver

import (
	"os"
	"syscall"
)

// attributes let a child run as the account, out of reach of Ctrl-C, and shut
// down at once when the thread that started it ends.
func attributes(as *account) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Credential: credential(as), Pdeathsig: syscall.SIGQUIT}
}

// watch has nothing to do: the system itself tells the child.
func watch(*os.Process) (unwatch func(), err error) { return func() {}, nil }
