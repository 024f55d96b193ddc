package projection_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/internal/testkit"
	"github.com/weir-es/weir/projection"
)

// mended says for each table whether its code can take the event that it failed at.
type mended struct{ atomic.Bool }

func (m *mended) check(n int) error {
	if n == 3 && !m.Load() {
		return errors.New("cannot take three")
	}
	return nil
}

var mendedList, mendedSums mended

type fragile struct{ Seen []int }

func (f fragile) Evolve(event any) fragile {
	n := event.(added).N
	if err := mendedList.check(n); err != nil {
		panic(err)
	}
	return fragile{append(slices.Clone(f.Seen), n)}
}

type fragileSum struct{ Sum, Count int }

func (f fragileSum) Evolve(event any) fragileSum {
	n := event.(added).N
	if err := mendedSums.check(n); err != nil {
		panic(err)
	}
	return fragileSum{f.Sum + n, f.Count + 1}
}

// TestP4P8_ReleasedStreams are caught up with in order, each event once, while the
// others and their own later events go on.
func TestP4P8_ReleasedStreams(t *testing.T) {
	t.Parallel()
	var handler mended
	ctx := testkit.Context(t)
	for _, c := range []struct {
		name  string
		p     projection.Projection
		mend  *mended
		wants string
	}{
		{"view", projection.View[fragile]{Name: "odd"}, &mendedList, `{"Seen": [1, 2, 3, 4, 5, 6]}`},
		{"by key", projection.View[fragileSum]{Name: "odd", Key: projection.By(func(e weir.Event, _ any) string { return e.Stream.Category() + "-1" })},
			&mendedSums, `{"Sum": 31, "Count": 7}`},
		{"handler", projection.Handler{Name: "odd", Handle: func(ctx context.Context, tx pgx.Tx, e weir.Event, value any) error {
			n := value.(added).N
			if err := handler.check(n); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, `insert into "weir".seen (stream, n) values ($1, $2)`, string(e.Stream), n)
			return err
		}}, &handler, "[1, 2, 3, 4, 5, 6]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := store(t)
			execute(t, s, "create table weir.seen (at serial, stream text, n int)")
			w, _ := start(t, s, c.p)
			parked := func(n int) {
				t.Helper()
				testkit.Await(t, 10*time.Second, fmt.Sprintf("%d streams are parked", n), func() bool {
					all, err := s.Parked(ctx, "odd")
					return err == nil && len(all) == n
				})
			}
			ingest(t, s, add("a-1", 1), add("a-1", 2), add("a-1", 3), add("a-1", 4), add("a-2", 10))
			settle(t, s, w)
			parked(1)
			ingest(t, s, add("a-1", 5))
			settle(t, s, w)

			released, err := s.Release(ctx, "odd", "a-1") // too early
			if err != nil || !released {
				t.Fatalf("released: %v, %v", released, err)
			}
			testkit.Await(t, 10*time.Second, "it is parked again", func() bool {
				all, err := s.Parked(ctx, "odd")
				return err == nil && len(all) == 1 && w.Progress().Parked == 2
			})
			c.mend.Store(true)
			if _, err := s.Release(ctx, "odd", "a-1"); err != nil {
				t.Fatal(err)
			}
			ingest(t, s, add("a-1", 6))
			got := "select state::text from weir.view_odd where key = 'a-1'"
			if c.name == "handler" {
				got = "select json_agg(n order by at)::text from weir.seen where stream = 'a-1'"
			}
			testkit.Await(t, 10*time.Second, "the stream is caught up with", func() bool {
				var text string
				err := s.Pool().QueryRow(ctx, s.Qualify(got)).Scan(&text)
				return err == nil && text == c.wants
			})
			parked(0)
			settle(t, s, w)
			if again, err := s.Release(ctx, "odd", "a-1"); again || err != nil {
				t.Errorf("released what is not parked: %v, %v", again, err)
			}
		})
	}
}
