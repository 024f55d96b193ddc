package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"time"
)

// seat is the place of one instance, in which one process follows another: whoever
// dies is replaced after a moment, as a supervisor does it.
type seat struct {
	number int
	launch func(ctx context.Context, name string, end death) (*process, error)
	rest   func() time.Duration // before the next process

	mu      sync.Mutex
	process *process // nil while nobody is there
	changed chan struct{}
	starts  int
	over    bool
	hear    func(*process) // of those that have ended
	faults  []string       // ends that nobody wanted
	meant   map[*process]bool
	next    death         // of the process that comes next
	empty   time.Duration // before it comes, at least
}

func newSeat(number int, rest func() time.Duration, launch func(context.Context, string, death) (*process, error)) *seat {
	return &seat{number: number, rest: rest, launch: launch, changed: make(chan struct{}), meant: map[*process]bool{}}
}

// keep has a process in the seat until the seat is over.
func (s *seat) keep(ctx context.Context) error {
	for !s.isOver() {
		s.starts++
		end := s.destiny()
		p, err := s.launch(ctx, fmt.Sprintf("instance_%d_%d", s.number, s.starts), end)
		if err != nil {
			return err
		}
		if end.Point != "" {
			s.expect(p)
		}
		s.set(p)
		select {
		case <-p.ended:
		case <-ctx.Done():
			p.kill()
			return ctx.Err()
		}
		s.set(nil)
		s.judge(p)
		if !s.isOver() {
			pause(ctx, max(s.rest(), s.lingering()))
		}
	}
	return nil
}

// judge notes an end that nobody wanted.
func (s *seat) judge(p *process) {
	if s.hear != nil {
		s.hear(p)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if text := p.problems.text(); strings.Contains(text, "panic:") || strings.Contains(text, "DATA RACE") || strings.Contains(text, "fatal error:") {
		s.faults = append(s.faults, fmt.Sprintf("%s broke down: %s", p.name, lastOf(text, 3000)))
	} else if p.err != nil && !s.meant[p] {
		s.faults = append(s.faults, fmt.Sprintf("%s ended by itself: %v: %s", p.name, p.err, lastOf(text, 600)))
	}
}

func lastOf(text string, n int) string { return text[max(0, len(text)-n):] }

func (s *seat) isOver() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.over
}

func (s *seat) set(p *process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.process = p
	close(s.changed)
	s.changed = make(chan struct{})
}

// now waits until somebody is in the seat.
func (s *seat) now(ctx context.Context) (*process, error) {
	for {
		s.mu.Lock()
		p, changed := s.process, s.changed
		s.mu.Unlock()
		if p != nil {
			return p, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// expect says that a process will kill itself.
func (s *seat) expect(p *process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.meant[p] = true
}

// doom has the process that comes next kill itself.
func (s *seat) doom(end death) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next = end
}

// linger has the seat stay empty for so long once its process has ended.
func (s *seat) linger(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.empty = d
}

func (s *seat) lingering() (d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d, s.empty = s.empty, 0
	return d
}

func (s *seat) destiny() (end death) {
	s.mu.Lock()
	defer s.mu.Unlock()
	end, s.next = s.next, death{}
	return end
}

// end sends a signal that ends the process, and returns when it is over.
func (s *seat) end(p *process, signal syscall.Signal, limit time.Duration) error {
	s.mu.Lock()
	s.meant[p] = s.meant[p] || signal == syscall.SIGKILL
	s.mu.Unlock()
	p.command.Process.Signal(signal)
	select {
	case <-p.ended:
		return nil
	case <-time.After(limit):
		p.kill()
		return fmt.Errorf("%s did not end within %s\n%s", p.name, limit, lastOf(p.problems.text(), 2000))
	}
}

// quit stops whoever is in the seat cleanly, for good.
func (s *seat) quit(limit time.Duration) error {
	s.mu.Lock()
	s.over = true
	p := s.process
	s.mu.Unlock()
	if p == nil {
		return nil
	}
	return s.end(p, syscall.SIGTERM, limit)
}
