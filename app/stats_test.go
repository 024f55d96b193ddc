package app_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/internal/testkit"
)

// TestP3_StatsCountEachFactOnce although many of them come twice.
func TestP3_StatsCountEachFactOnce(t *testing.T) {
	t.Parallel()
	a := open(t, service(t))
	const facts = 5000
	err := a.Run(testkit.Context(t), func(ctx context.Context) error {
		for n := range facts {
			m, err := a.Message(weir.Stream("seat", fmt.Sprint(n%500)), held{"x"})
			if err != nil {
				return err
			}
			if err := a.Publisher().Send(ctx, m); err != nil {
				return err
			}
		}
		return a.Settle(ctx)
	})
	if err != nil {
		t.Fatal(err)
	}
	c, err := a.Store.Counts(testkit.Context(t))
	if err != nil || c.Events != facts {
		t.Errorf("%d events, %v", c.Events, err)
	}
	s := a.Stats()
	if s.Stored != facts || s.Duplicates != 0 || s.Views["seats"].Applied < facts || s.Views["guests"].Applied != facts {
		t.Errorf("stats: %+v", s)
	}
}
