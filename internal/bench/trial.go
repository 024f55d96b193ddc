package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"strings"
	"time"
)

// trial is one run of one side.
type trial struct {
	*lab
	n       int    // items to get through
	profile string // file for a CPU profile, or ""

	took    time.Duration // of what was measured
	note    string        // what else is worth knowing, for people
	checked bool          // whether everything arrived
}

// trialLimit is how long one run of one side may take, so that a path that has
// stopped does not stop everything.
const trialLimit = 5 * time.Minute

// run runs a side and makes sure that it did what a side does.
func (t *trial) run(ctx context.Context, s side) error {
	ctx, cancel := context.WithTimeout(ctx, trialLimit)
	defer cancel()
	if err := s(ctx, t); err != nil {
		return err
	}
	if t.took <= 0 || !t.checked {
		return errors.New("the side did not measure, or did not check what it did")
	}
	return nil
}

// measure times work, on a heap without garbage of what came before.
func (t *trial) measure(work func() error) error {
	stop, err := startProfile(t.profile)
	if err != nil {
		return err
	}
	defer stop()
	runtime.GC()
	began := time.Now()
	err = work()
	t.took = time.Since(began)
	return err
}

// add times a part of the work, where other parts do not count.
func (t *trial) add(work func() error) error {
	began := time.Now()
	err := work()
	t.took += time.Since(began)
	return err
}

// rate is items per second.
func (t *trial) rate() float64 { return float64(t.n) / t.took.Seconds() }

// expect makes a trial fail that lost or doubled something: speed is worth
// nothing without it.
func (t *trial) expect(what string, got, want int) error {
	t.checked = true
	if got != want {
		return fmt.Errorf("%d %s, want %d", got, what, want)
	}
	return nil
}

// profile names the file of one side and round; "" without a folder.
func (b benchmark) profile(folder, side string, round int) string {
	if folder == "" {
		return ""
	}
	name := strings.ReplaceAll(b.name, "/", "-")
	return filepath.Join(folder, fmt.Sprintf("%s.%s.%d.pprof", name, side, round+1))
}

func startProfile(name string) (stop func(), err error) {
	if name == "" {
		return func() {}, nil
	}
	f, err := os.Create(name)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() { pprof.StopCPUProfile(); f.Close() }, nil
}
