package ops

import (
	"context"
	"io"
)

// interruptible is a reader that stops when ctx ends, also in the middle of a
// read that waits: on a terminal or a pipe that nobody writes to. That read goes
// on until something comes, into a buffer of its own.
type interruptible struct {
	ctx context.Context
	r   io.Reader
	b   []byte
}

func (i *interruptible) Read(b []byte) (int, error) {
	if err := i.ctx.Err(); err != nil {
		return 0, err // a read may still be under way
	}
	if len(i.b) < len(b) {
		i.b = make([]byte, len(b))
	}
	r, buffer, done := i.r, i.b[:len(b)], make(chan readResult, 1)
	go func() {
		n, err := r.Read(buffer)
		done <- readResult{n, err}
	}()
	select {
	case r := <-done:
		return copy(b, buffer[:r.n]), r.err
	case <-i.ctx.Done():
		return 0, i.ctx.Err()
	}
}

type readResult struct {
	n   int
	err error
}
