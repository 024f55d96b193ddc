package devserver

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// prefix begins the name of every folder of ours, and of nobody else's.
const prefix = "weir-dev-"

// errTaken says that somebody else holds a folder.
var errTaken = errors.New("folder is taken")

// A folder holds the files of one server. Its owner keeps a lock on it, which
// the system takes away when the owner's process ends, however it ends. So a
// folder whose lock can be had is left over, and whoever finds it removes it.
type folder struct {
	path string
	lock io.Closer // nil for a folder the user named, which is never removed
}

// newFolder makes an empty folder in base, or takes the one named dir, which
// stays when its server is closed.
func newFolder(base, dir string) (*folder, error) {
	if dir != "" {
		return &folder{path: dir}, os.MkdirAll(dir, 0o700)
	}
	for {
		path := filepath.Join(base, prefix+strings.ToLower(rand.Text()))
		if err := os.Mkdir(path, 0o700); err != nil {
			return nil, fmt.Errorf("make a folder for a server: %w", err)
		}
		lock, err := acquire(path)
		if err == nil {
			return &folder{path: path, lock: lock}, nil
		}
		// Someone who sweeps found the folder before it was locked.
		if !errors.Is(err, errTaken) && !errors.Is(err, os.ErrNotExist) {
			return nil, errors.Join(fmt.Errorf("lock folder %s: %w", path, err), os.RemoveAll(path))
		}
	}
}

// remove deletes the folder and what is in it. It may be called again.
func (f *folder) remove() error {
	if f.lock == nil {
		return nil
	}
	f.lock.Close()
	return os.RemoveAll(f.path)
}

// sweep removes the folders that owners which no longer live left in bases. What
// cannot be removed now (another user's, or still being written to) is left to
// the next sweep.
func sweep(bases ...string) {
	for _, base := range bases {
		left, _ := filepath.Glob(filepath.Join(base, prefix+"*"))
		for _, path := range left {
			lock, err := acquire(path)
			if err != nil {
				continue
			}
			os.RemoveAll(path)
			lock.Close()
		}
	}
}
