package eventstore_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/eventstore"
	"github.com/weir-es/weir/internal/testkit"
)

// standstill stops the first append that comes to it within its transaction.
type standstill struct {
	calls         atomic.Int32
	reached, goOn chan struct{}
}

func (s *standstill) Fold(context.Context, pgx.Tx, []weir.Event) error {
	if s.calls.Add(1) == 1 {
		close(s.reached)
		<-s.goOn
	}
	return nil
}

// TestP6P7_AStoppedAppendHoldsNobodyForLong: a process that stops between two statements
// of an append keeps what is behind it from being read for seconds, not for as long as
// it is stopped. When it goes on, it appends again, and what it has to store is stored
// once.
func TestP6P7_AStoppedAppendHoldsNobodyForLong(t *testing.T) {
	t.Parallel()
	url := testkit.Database(t)
	stopped := testkit.Store(t, eventstore.Config{URL: url})
	other := testkit.Store(t, eventstore.Config{URL: url, Poll: 10 * time.Millisecond})
	s := &standstill{reached: make(chan struct{}), goOn: make(chan struct{})}
	stopped.AddInline("standstill", s)
	appended := make(chan error, 1)
	go func() {
		_, err := stopped.Append(testkit.Context(t), "a-1", 0, messages("a-1", 1)...)
		appended <- err
	}()
	<-s.reached
	behind := appendOne(t, other, "b-1")
	ctx, cancel := context.WithTimeout(testkit.Context(t), 30*time.Second)
	defer cancel()
	if at, err := other.WaitHorizon(ctx, behind.Position-1); err != nil {
		t.Errorf("while an append is stopped the horizon stands at %d of %d: %v", at, behind.Position, err)
	}
	close(s.goOn)
	if err := <-appended; err != nil {
		t.Errorf("the append that went on: %v", err)
	}
	var stored int
	for range other.ReadStream(testkit.Context(t), "a-1", eventstore.Read{}) {
		stored++
	}
	if stored != 1 {
		t.Errorf("%d events of the append that was stopped are stored, want 1", stored)
	}
}
