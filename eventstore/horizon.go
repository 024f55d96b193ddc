package eventstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/internal/crash"
	"github.com/weir-es/weir/internal/pace"
)

// horizon is the highest stored position at or below which nothing can still
// appear.
//
// Positions are drawn in the order of inserting and become visible in the order
// of committing, so a reader that has seen 102 may not have seen 101. Writers
// therefore register before they draw (register.sql). With L the last position
// drawn and F the lowest key registered, read in this order, everything up to
// min(L, F) is settled: a writer that registers later draws above L; one that
// registered before holds a key at or below F, or has ended and is visible.
// Numbers that were rolled back cost nothing, other programs' transactions are
// not seen, and there is no timeout in it.
//
// The horizon stops at a position that is stored. Numbers above the last stored
// one may be given out again after a crash, since nothing made the sequence
// durable; a reader that had gone on to them would miss their second use.
type horizon struct {
	mu      sync.Mutex
	at      weir.Position
	head    weir.Position
	err     error
	back    error         // once the log went back, nothing here is true any more
	changed chan struct{} // closed when at moves, and replaced
	wake    chan struct{}
	waiting int           // who wants to know when it moves
	wanted  chan struct{} // somebody began to
}

func (h *horizon) init() {
	h.changed = make(chan struct{})
	h.wake = make(chan struct{}, 1)
	h.wanted = make(chan struct{}, 1)
}

// poke makes the next look sooner. A lost poke costs one poll.
func (h *horizon) poke() {
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// await counts somebody who waits, until leave is called.
func (h *horizon) await() (leave func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.waiting++
	select {
	case h.wanted <- struct{}{}:
	default:
	}
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.waiting--
	}
}

func (h *horizon) isAwaited() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.waiting > 0
}

func (h *horizon) get() (weir.Position, <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.at, h.changed
}

// WentBackError says that the log is shorter than it was: the database was
// replaced by an older state under a running process. What the process knows of it
// is worth nothing; start it again.
type WentBackError struct{ Was, Is weir.Position }

func (e *WentBackError) Error() string {
	return fmt.Sprintf("the log went back from position %d to %d: the database was replaced by an older state; start this process again", e.Was, e.Is)
}

// set moves the horizon, never back, and returns it.
func (h *horizon) set(at, head weir.Position) weir.Position {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.head = max(h.head, head)
	if at > h.at {
		h.at = at
		crash.At(crash.HorizonMoved)
		close(h.changed)
		h.changed = make(chan struct{})
	}
	return h.at
}

// goBack remembers for good that the log went back: it may soon be as long as it
// was, with other events.
func (h *horizon) goBack(err error) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.back = err
	return err
}

func (h *horizon) wentBack() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.back
}

// note remembers what went wrong with the last look, if something did.
func (h *horizon) note(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.err = err
}

// Horizon is how far the log is complete, as last seen by Run.
func (s *Store) Horizon() weir.Position {
	at, _ := s.horizon.get()
	return at
}

// Head is the highest position stored and the horizon, and what went wrong when Run
// last looked, if something did.
func (s *Store) Head() (head, horizon weir.Position, err error) {
	s.horizon.mu.Lock()
	defer s.horizon.mu.Unlock()
	return s.horizon.head, s.horizon.at, s.horizon.err
}

// WaitHorizon returns once the horizon is above after, or with the error of ctx.
func (s *Store) WaitHorizon(ctx context.Context, after weir.Position) (weir.Position, error) {
	if at := s.Horizon(); at > after {
		return at, nil
	}
	defer s.horizon.await()()
	for {
		at, changed := s.horizon.get()
		if at > after {
			return at, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return at, ctx.Err()
		}
	}
}

// Run keeps the horizon up to date until ctx ends, for those who wait for it: at once
// after an append of this process, within Poll after one of another (sooner while events
// come), for at most a tenth of the time and 200 times a second. While nobody waits, it
// looks once in Poll. A database that is away is reported by Head and looked
// for again; one that went back ends Run with a *WentBackError. One per store.
func (s *Store) Run(ctx context.Context) error {
	pause := newPause(s.config.Poll)
	for {
		began := time.Now()
		moved, err := s.look(ctx)
		pause.took = time.Since(began)
		if ctx.Err() != nil {
			return nil
		}
		if back := (*WentBackError)(nil); errors.As(err, &back) {
			return back
		}
		if err != nil {
			s.config.Logger.Warn("cannot read the horizon", "error", err)
		}
		if !pause.wait(ctx, s.horizon.wake, moved, err) {
			return nil
		}
		if !s.horizon.isAwaited() {
			sleep(ctx, s.config.Poll, s.horizon.wanted)
		}
	}
}

// look reads the horizon once.
func (s *Store) look(ctx context.Context) (moved bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	before := s.Horizon()
	at, _, err := s.ReadHorizon(ctx)
	s.horizon.note(err)
	return at > before, err
}

// ReadHorizon asks the database for the horizon and the highest position stored.
// It does not depend on Run. What it returns never falls: a writer that took its
// key before a look and registered after it draws above what that look saw, so
// every answer stays true.
func (s *Store) ReadHorizon(ctx context.Context) (at, head weir.Position, err error) {
	if err := s.horizon.wentBack(); err != nil {
		return 0, 0, err
	}
	known := s.Horizon() // before the look, or somebody else's later one seems to be ahead of it
	var drawn weir.Position
	if err := s.pool.QueryRow(ctx, s.sql.HorizonHead).Scan(&drawn); err != nil {
		return 0, 0, fmt.Errorf("read the last position: %w", err)
	}
	switch {
	case drawn == known:
		return known, known, nil // nothing was drawn since
	case drawn < known:
		return 0, 0, s.horizon.goBack(&WentBackError{known, drawn})
	}
	if err := s.pool.QueryRow(ctx, s.sql.Horizon, s.lock, int64(drawn)).Scan(&at, &head); err != nil {
		return 0, 0, fmt.Errorf("read what is in flight: %w", err)
	}
	return s.horizon.set(at, head), head, nil
}

// pause spaces the looks: short while events come, longer and longer when none
// do, and backing off while the database is away.
type pause struct {
	idle    time.Duration
	next    time.Duration
	took    time.Duration // the last look
	backoff *backoff.ExponentialBackOff
}

func newPause(idle time.Duration) *pause {
	return &pause{idle: idle, next: longestRest, backoff: newBackOff()}
}

// The least time between two looks is ten times what a look takes, between these: an
// event waits for it on its way to every read model, and a database with much to do
// is not asked all the time.
const (
	shortestRest = 5 * time.Millisecond
	longestRest  = 20 * time.Millisecond
)

func (p *pause) rest() time.Duration {
	return max(shortestRest, min(10*p.took, longestRest))
}

// wait returns false when ctx ended.
func (p *pause) wait(ctx context.Context, wake <-chan struct{}, moved bool, err error) bool {
	switch {
	case err != nil:
		return sleep(ctx, p.backoff.NextBackOff(), nil)
	case moved:
		p.next = longestRest
	default:
		p.next = min(p.next*2, p.idle)
	}
	p.backoff.Reset()
	rest := p.rest()
	return sleep(ctx, rest, nil) && sleep(ctx, p.next-rest, wake)
}

// sleep waits for d, less when woken, and reports whether ctx still lives.
func sleep(ctx context.Context, d time.Duration, wake <-chan struct{}) bool {
	pace.Sleep(ctx, d, wake)
	return ctx.Err() == nil
}
