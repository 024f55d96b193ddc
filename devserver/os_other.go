//go:build !windows && !linux

package devserver

import (
	"os"
	"syscall"
)

// attributes let a child run as the account and out of reach of Ctrl-C.
func attributes(as *account) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Credential: credential(as)}
}

// watch ends the child when this process ends.
func watch(p *os.Process) (unwatch func(), err error) {
	w, err := startWatchdog(p.Pid)
	if err != nil {
		return func() {}, err
	}
	return w.callOff, nil
}
