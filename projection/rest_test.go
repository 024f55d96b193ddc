package projection_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/internal/testkit"
	"github.com/weir-es/weir/projection"
)

// TestWorkerRestsAfterALargeBatch: what was a while in the making is not followed at
// once, so that more events come together; see docs/decisions/0016.
func TestWorkerRestsAfterALargeBatch(t *testing.T) {
	t.Parallel()
	s := store(t)
	const took, rest = 60 * time.Millisecond, 100 * time.Millisecond
	begun, more := make(chan time.Time, 1), make(chan time.Time, 1)
	handled := 0
	h := projection.Handler{Name: "resting", WholeLog: true, Handle: func(context.Context, pgx.Tx, weir.Event, any) error {
		switch handled++; handled {
		case 1:
			begun <- time.Now()
			<-time.After(took)
		case 101:
			more <- time.Now()
		}
		return nil
	}}
	var facts []weir.Message
	for n := range 100 {
		facts = append(facts, add(weir.StreamID(fmt.Sprint("room-", n)), n))
	}
	ingest(t, s, facts...)
	start(t, s, h)
	ctx := testkit.Context(t)
	var began time.Time
	select {
	case began = <-begun:
	case <-ctx.Done():
		t.Fatal("no batch came")
	}
	ingest(t, s, add("room-1", 100))
	select {
	case at := <-more:
		if gap := at.Sub(began); gap < took+rest {
			t.Errorf("the next batch began %v after the first, want %v at least", gap, took+rest)
		}
	case <-ctx.Done():
		t.Fatal("no second batch came")
	}
}
