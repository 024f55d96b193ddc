//go:build !windows

package devserver

import (
	"errors"
	"io"
	"os"
	"syscall"
)

// acquire locks the directory at path itself, so that there is no lock file that
// could outlive it. It returns errTaken if somebody else holds the lock.
func acquire(path string) (io.Closer, error) {
	dir, err := os.OpenFile(path, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	if err := lockAndCheck(dir, path); err != nil {
		dir.Close()
		return nil, err
	}
	return dir, nil
}

func lockAndCheck(dir *os.File, path string) error {
	err := syscall.Flock(int(dir.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return errTaken
	}
	if err != nil {
		return err
	}
	// The directory may have been removed between opening and locking it.
	held, err := dir.Stat()
	if err != nil {
		return err
	}
	there, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !os.SameFile(held, there) {
		return errTaken
	}
	return nil
}
