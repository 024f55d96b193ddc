//go:build !windows

package devserver

import (
	"io/fs"
	"os"
	"os/exec"
	"strconv"
	"syscall"
)

var signals = map[string]os.Signal{"fast": syscall.SIGINT, "immediate": syscall.SIGQUIT}

// shutdown asks a PostgreSQL to end.
func shutdown(c *child, _ binaries, _, mode string) error {
	return c.process.Signal(signals[mode])
}

func credential(as *account) *syscall.Credential {
	if as == nil {
		return nil
	}
	return &syscall.Credential{Uid: uint32(as.uid), Gid: uint32(as.gid)}
}

// watchdog starts a shell that shuts p down when this process is no more. The
// shell waits for the end of its input, which comes when the only process that
// holds the other end has died.
func watchdog(p *os.Process) (unwatch func(), err error) {
	const script = `read -r _; kill -QUIT "$0"`
	dog := exec.Command("/bin/sh", "-c", script, strconv.Itoa(p.Pid))
	dog.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	leash, err := dog.StdinPipe()
	if err != nil {
		return func() {}, err
	}
	if err := dog.Start(); err != nil {
		return func() {}, err
	}
	return func() {
		// Before its input ends, or it would shut down whoever has the number
		// of the process now.
		dog.Process.Kill()
		dog.Wait()
		leash.Close()
	}, nil
}

// ours says whether dir belongs to us and to nobody else who could have written
// to it.
func ours(dir string) bool {
	info, err := os.Lstat(dir)
	if err != nil || !info.IsDir() || info.Mode().Perm()&0o022 != 0 {
		return false
	}
	return ownerOf(info) == os.Geteuid()
}

func ownerOf(info fs.FileInfo) int { return int(info.Sys().(*syscall.Stat_t).Uid) }
