package devserver

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"
)

// errorSharingViolation is what Windows answers for a file that somebody else
// has opened without sharing it.
const errorSharingViolation = syscall.Errno(32)

// acquire opens a file in the directory at path that nobody else can open in the
// meantime. It returns errTaken if somebody else has opened it. A sweep that
// cannot delete this file in its first attempt leaves it to the next.
func acquire(path string) (io.Closer, error) {
	name, err := syscall.UTF16PtrFromString(filepath.Join(path, "owner.lock"))
	if err != nil {
		return nil, err
	}
	const unshared = 0
	handle, err := syscall.CreateFile(name, syscall.GENERIC_WRITE, unshared, nil, syscall.OPEN_ALWAYS, syscall.FILE_ATTRIBUTE_NORMAL, 0)
	if errors.Is(err, errorSharingViolation) {
		return nil, errTaken
	}
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(handle), path), nil
}
