//go:build !unix

package main

import (
	"os"
	"syscall"
)

// Here nothing can be made to pause: sending these is an error.
var (
	sigStop     os.Signal = syscall.SIGTRAP
	sigContinue os.Signal = syscall.SIGTRAP
)
