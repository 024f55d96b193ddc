package devserver

import "syscall"

// tmpfsMagic is the type statfs reports for a file system in memory.
const tmpfsMagic = 0x01021994

// memoryFree says whether dir is in memory, and how many bytes are free there.
func memoryFree(dir string) (inMemory bool, free uint64) {
	var s syscall.Statfs_t
	if syscall.Statfs(dir, &s) != nil {
		return false, 0
	}
	return int64(s.Type) == tmpfsMagic, s.Bavail * uint64(s.Bsize)
}
