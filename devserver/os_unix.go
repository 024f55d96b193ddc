//go:build !windows

package devserver

import (
	"io"
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

// A watchdog is a shell that shuts a process down when this one is no more. It
// waits for the end of its input, which comes when the only process that holds
// the other end has died. Linux needs none.
type watchdog struct {
	shell *exec.Cmd
	leash io.Closer
}

func startWatchdog(pid int) (*watchdog, error) {
	const script = `read -r _; kill -QUIT "$0"`
	shell := exec.Command("/bin/sh", "-c", script, strconv.Itoa(pid))
	shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	leash, err := shell.StdinPipe()
	if err != nil {
		return nil, err
	}
	return &watchdog{shell, leash}, shell.Start()
}

// callOff ends the watchdog, before its input ends: it would shut down whoever
// has the number of the process by then.
func (w *watchdog) callOff() {
	w.shell.Process.Kill()
	w.shell.Wait()
	w.leash.Close()
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
