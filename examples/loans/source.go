package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"

	"github.com/weir-es/weir/examples/loans/xes"
)

// source is an event log that can be read more than once.
type source struct {
	name string
	open func() (io.ReadCloser, error)
}

// fileSource is a log in a file.
func fileSource(path string) (source, error) {
	info, err := os.Stat(path)
	if err != nil {
		return source{}, fmt.Errorf("read log: %w", err)
	}
	if !info.Mode().IsRegular() {
		return source{}, fmt.Errorf("read log: %s is not a file, and it is read twice: to check it and to publish it", path)
	}
	return source{path, func() (io.ReadCloser, error) { return os.Open(path) }}, nil
}

// generatedSource is a made-up log, for whoever has no file.
func generatedSource(seed uint64, cases int) (source, error) {
	var file bytes.Buffer
	if err := xes.Write(&file, generate(seed, cases)); err != nil {
		return source{}, fmt.Errorf("generate log: %w", err)
	}
	return source{fmt.Sprintf("generated log, seed %d", seed), func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(file.Bytes())), nil
	}}, nil
}

// survey is what a log holds, found out before anything of it is published, so
// that a bad log changes nothing.
type survey struct {
	// ID is the same for the same bytes.
	ID            string
	Cases, Events int64
	// Empty is how many traces have no event. They leave no fact, so they are
	// no cases here.
	Empty int64
}

// check reads the whole log and returns what it holds, or what is wrong with it.
// Two traces of one name are wrong: they may be one case or two, and each reading
// gives other numbers.
func (s source) check(ctx context.Context) (survey, error) {
	file, err := s.open()
	if err != nil {
		return survey{}, fmt.Errorf("read log: %w", err)
	}
	defer file.Close()

	var found survey
	hash := sha256.New()
	lines := map[[16]byte]int{}
	for trace, err := range xes.Read(io.TeeReader(file, hash)) {
		if err == nil {
			err = found.add(trace, lines)
		}
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return survey{}, fmt.Errorf("read log %s: %w", s.name, err)
		}
	}
	found.ID = hex.EncodeToString(hash.Sum(nil)[:5])
	return found, nil
}

// add counts one trace. lines has the line of every name so far; a hash stands
// for the name, which may be long.
func (s *survey) add(trace xes.Trace, lines map[[16]byte]int) error {
	sum := sha256.Sum256([]byte(trace.Name))
	key := [16]byte(sum[:16])
	if first, ok := lines[key]; ok {
		return &xes.Error{Line: trace.Line, Reason: fmt.Sprintf("case %.60q was already told in line %d", trace.Name, first)}
	}
	lines[key] = trace.Line
	if len(trace.Events) == 0 {
		s.Empty++
		return nil
	}
	s.Cases++
	s.Events += int64(len(trace.Events))
	return nil
}
