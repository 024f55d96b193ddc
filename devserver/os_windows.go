package devserver

import (
	"os"
	"os/exec"
	"syscall"
	"unsafe"

	"golang.org/x/sys/windows"
)

// shutdown asks a PostgreSQL to end. Windows has no signals; pg_ctl knows the way.
func shutdown(_ *child, bin binaries, data, mode string) error {
	return exec.Command(bin.program("pg_ctl"), "stop", "-W", "-D", data, "-m", mode).Run()
}

// attributes keep a child out of reach of Ctrl-C.
func attributes(*account) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
}

// watch puts the child into a job that ends when the last handle of it closes,
// which Windows does when this process ends.
func watch(p *os.Process) (unwatch func(), err error) {
	job, err := windows.CreateJobObject(nil, nil)
	if err != nil {
		return func() {}, err
	}
	unwatch = func() { windows.CloseHandle(job) }
	var info windows.JOBOBJECT_EXTENDED_LIMIT_INFORMATION
	info.BasicLimitInformation.LimitFlags = windows.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE
	if _, err := windows.SetInformationJobObject(job, windows.JobObjectExtendedLimitInformation,
		uintptr(unsafe.Pointer(&info)), uint32(unsafe.Sizeof(info))); err != nil {
		return unwatch, err
	}
	process, err := windows.OpenProcess(windows.PROCESS_SET_QUOTA|windows.PROCESS_TERMINATE, false, uint32(p.Pid))
	if err != nil {
		return unwatch, err
	}
	defer windows.CloseHandle(process)
	return unwatch, windows.AssignProcessToJobObject(job, process)
}

// ours is true: the directories that are asked about are below the user's own.
func ours(string) bool { return true }
