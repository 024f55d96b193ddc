package xes

import (
	"bufio"
	"errors"
)

var errTooLong = errors.New("token too long")

// meter stops a decoder that wants more than left bytes for one token, since
// encoding/xml would gather an attribute of any length in memory.
type meter struct {
	source *bufio.Reader
	left   int
}

// ReadByte is what the decoder reads with.
func (m *meter) ReadByte() (byte, error) {
	if m.left == 0 {
		return 0, errTooLong
	}
	m.left--
	return m.source.ReadByte()
}

// Read makes a meter an io.Reader, which the decoder asks for.
func (m *meter) Read(p []byte) (int, error) {
	if m.left == 0 {
		return 0, errTooLong
	}
	n, err := m.source.Read(p[:min(len(p), m.left)])
	m.left -= n
	return n, err
}
