package main

import (
	"sync"
	"time"

	"github.com/weir-es/weir"
)

// ledger is what the writers were told: which events are stored, since when, and
// which are not. What it does not know has an unknown outcome.
type ledger struct {
	mu    sync.Mutex
	acked map[weir.ID]time.Time
	gone  map[weir.ID]bool
}

func newLedger() *ledger {
	return &ledger{acked: map[weir.ID]time.Time{}, gone: map[weir.ID]bool{}}
}

// ack notes events whose commit was acknowledged just now.
func (l *ledger) ack(messages ...weir.Message) {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, m := range messages {
		l.acked[m.ID] = now
	}
}

// lose notes events that were rolled back.
func (l *ledger) lose(messages ...weir.Message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, m := range messages {
		l.gone[m.ID] = true
	}
}
