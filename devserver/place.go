package devserver

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// memory is where a system keeps files in memory, if it does. Tests move it.
var memory = "/dev/shm"

// memoryRoom is how many bytes must be free in memory before data goes there.
// Containers often have 64 MB, which does not hold one cluster.
const memoryRoom = 2 << 30

// bases are the directories in which folders of ours may be.
func bases() []string {
	return []string{memory, os.TempDir(), "/var/tmp", "/tmp"}
}

// dataBase returns where data goes: into memory, which is several times as fast
// as a disk for data that is thrown away, or onto a disk if durable.
func dataBase(durable bool, as *account) (string, error) {
	for _, dir := range bases() {
		if suits(dir, durable) && as.reaches(dir) && writable(dir) {
			return dir, nil
		}
	}
	return "", fmt.Errorf("none of %q can hold data (durable: %t): set TMPDIR to a directory that PostgreSQL's own account can reach, on a disk if durable", bases(), durable)
}

// suits says whether dir is on a disk or, if the data need not be durable, in
// memory with enough room.
func suits(dir string, durable bool) bool {
	inMemory, free := memoryFree(dir)
	return !inMemory || !durable && free >= memoryRoom
}

// cacheDir returns the first candidate in which files can be kept for later
// starts, because we and nobody else can write to it, and which fits; or "".
func cacheDir(candidates []string, fits func(dir string) bool) string {
	for _, dir := range candidates {
		if os.MkdirAll(dir, 0o755) == nil && ours(dir) && writable(dir) && fits(dir) {
			return dir
		}
	}
	return ""
}

func cacheCandidates() []string {
	var dirs []string
	if dir, err := os.UserCacheDir(); err == nil {
		dirs = append(dirs, filepath.Join(dir, "weir-devserver"))
	}
	if os.Geteuid() == 0 {
		dirs = append(dirs, "/var/cache/weir-devserver")
	}
	return append(dirs, filepath.Join(os.TempDir(), "weir-devserver.cache."+strconv.Itoa(os.Getuid())))
}

func writable(dir string) bool {
	probe, err := os.MkdirTemp(dir, "writable-")
	if err != nil {
		return false
	}
	return os.Remove(probe) == nil
}
