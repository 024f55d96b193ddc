package ops

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
)

// lineSource reads lines up to a length.
type lineSource struct {
	in    *bufio.Reader
	limit int
	long  []byte // a line that does not fit the buffer of in
}

const lineBuffer = 256 << 10

// newLineSource reads from r, through gzip if it looks like it, and behind the mark
// that some programs put before UTF-8.
func newLineSource(r io.Reader, limit int) (*lineSource, error) {
	in := bufio.NewReaderSize(r, lineBuffer)
	if begin, _ := in.Peek(2); string(begin) == "\x1f\x8b" {
		unzipped, err := gzip.NewReader(in)
		if err != nil {
			return nil, err
		}
		in = bufio.NewReaderSize(unzipped, lineBuffer)
	}
	if begin, _ := in.Peek(3); string(begin) == "\xef\xbb\xbf" {
		in.Discard(3)
	}
	return &lineSource{in: in, limit: limit}, nil
}

// next is the next line, with its end if it has one; io.EOF when there is none. The
// next call overwrites it. Nothing can be read after a line that is too long.
func (l *lineSource) next() ([]byte, error) {
	line, err := l.in.ReadSlice('\n')
	for l.long = l.long[:0]; err == bufio.ErrBufferFull && len(l.long) <= l.limit; line, err = l.in.ReadSlice('\n') {
		l.long = append(l.long, line...)
	}
	if len(l.long) > 0 {
		l.long = append(l.long, line...)
		line = l.long
	}
	switch {
	case len(bytes.TrimRight(line, "\r\n")) > l.limit:
		return nil, &LongLineError{l.limit}
	case err == io.EOF && len(line) > 0:
		return line, nil
	}
	return line, err
}

// LongLineError says that a line is over the limit, in bytes.
type LongLineError struct{ Limit int }

func (e *LongLineError) Error() string {
	return fmt.Sprintf("is longer than %d bytes; allow longer lines if this is an event", e.Limit)
}

// countingReader counts what is read through it.
type countingReader struct {
	r io.Reader
	n int64
}

func (c *countingReader) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	c.n += int64(n)
	return n, err
}
