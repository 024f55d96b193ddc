//go:build unix

package main

import (
	"os"
	"syscall"
)

// Signals that are not to be had everywhere.
var (
	sigStop     os.Signal = syscall.SIGSTOP
	sigContinue os.Signal = syscall.SIGCONT
)
