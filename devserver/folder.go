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

// The name of a folder of ours is the prefix and a random text of a fixed length,
// so that nothing a user made is taken for one.
const prefix = "weir-devserver-"

func newFolderName() string { return prefix + randomName() }

func isFolderName(name string) bool {
	return strings.HasPrefix(name, prefix) && len(name) == len(newFolderName())
}

// randomName returns 26 letters and digits that nobody can guess.
func randomName() string { return strings.ToLower(rand.Text()) }

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
		return namedFolder(dir)
	}
	for {
		path := filepath.Join(base, newFolderName())
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

func namedFolder(dir string) (*folder, error) {
	path, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	return &folder{path: path}, os.MkdirAll(path, 0o700)
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
		entries, _ := os.ReadDir(base)
		for _, e := range entries {
			if isFolderName(e.Name()) {
				removeIfLeft(filepath.Join(base, e.Name()))
			}
		}
	}
}

func removeIfLeft(path string) {
	lock, err := acquire(path)
	if err != nil {
		return
	}
	defer lock.Close()
	os.RemoveAll(path)
}
