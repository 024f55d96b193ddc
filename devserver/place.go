package devserver

import (
	"errors"
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
		inMemory, free := memoryFree(dir)
		if durable && inMemory || inMemory && free < memoryRoom || !as.reaches(dir) {
			continue
		}
		if !durable && dir == memory && !inMemory {
			continue
		}
		return dir, nil
	}
	return "", errors.New("no temporary directory that the account of PostgreSQL can reach; set TMPDIR to one")
}

// cacheDir returns a directory in which files are kept for later starts, or ""
// if there is none that only we can write to. It is one that fits, if others
// have to read it.
func cacheDir(fits func(dir string) bool) string {
	for _, dir := range cacheCandidates() {
		if os.MkdirAll(dir, 0o755) == nil && ours(dir) && writable(dir) && fits(dir) {
			return dir
		}
	}
	return ""
}

func cacheCandidates() []string {
	var dirs []string
	if dir, err := os.UserCacheDir(); err == nil {
		dirs = append(dirs, filepath.Join(dir, "weir-dev"))
	}
	if os.Geteuid() == 0 {
		dirs = append(dirs, "/var/cache/weir-dev")
	}
	return append(dirs, filepath.Join(os.TempDir(), "weir-dev.cache."+strconv.Itoa(os.Getuid())))
}

func writable(dir string) bool {
	probe, err := os.MkdirTemp(dir, "writable-")
	if err != nil {
		return false
	}
	return os.Remove(probe) == nil
}
