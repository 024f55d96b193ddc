package eventstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/internal/crash"
)

// Inline is what is done in the transaction of every append: a read model that is
// never behind.
type Inline interface {
	// Fold is given the events that a transaction stores, in the order of their
	// positions, once they are stored. When it fails, they are not. Everybody who
	// reads the log waits for it; between two statements of its own it may take 4 s.
	Fold(ctx context.Context, tx pgx.Tx, events []weir.Event) error
}

// InlineError says which read model refused an append. Nothing was stored.
type InlineError struct {
	Name string
	Err  error
}

func (e *InlineError) Error() string { return fmt.Sprintf("the inline view %s: %v", e.Name, e.Err) }

func (e *InlineError) Unwrap() error { return e.Err }

// inlines are the read models that are folded with every append, in the order of
// their names, so that transactions that write to several never wait for each other
// in a circle.
type inlines struct {
	mu  sync.RWMutex
	all []namedInline
}

type namedInline struct {
	name string
	Inline
}

// AddInline has i fold the events of every append from now on, and of AppendTx; in
// the place of what had that name before. Import and programs that do not know of it
// pass it by. An append that it refuses fails with an *InlineError; a fact that it
// refuses is stored all the same.
func (s *Store) AddInline(name string, i Inline) {
	s.inline.mu.Lock()
	defer s.inline.mu.Unlock()
	all := slices.DeleteFunc(slices.Clone(s.inline.all), func(other namedInline) bool { return other.name == name })
	all = append(all, namedInline{name, i})
	slices.SortFunc(all, func(a, b namedInline) int { return cmp.Compare(a.name, b.name) })
	s.inline.all = all
}

// now are those that there are at the moment.
func (i *inlines) now() []namedInline {
	i.mu.RLock()
	defer i.mu.RUnlock()
	return i.all
}

// fold folds the rows of a plan.
func (i *inlines) fold(ctx context.Context, tx pgx.Tx, rows []row) error {
	all := i.now()
	if len(all) == 0 || len(rows) == 0 {
		return nil
	}
	events := make([]weir.Event, len(rows))
	for n, r := range rows {
		events[n] = *r.event
	}
	for _, one := range all {
		if err := one.Fold(ctx, tx, events); err != nil {
			return &InlineError{one.name, err}
		}
	}
	return nil
}

// transactInline stores requests where something is folded with them.
func (s *Store) transactInline(ctx context.Context, requests []*request, careful bool) error {
	w := &writer{s: s, requests: requests, careful: careful}
	err := s.inTx(ctx, func(tx pgx.Tx) error {
		if err := w.run(ctx, tx, []string{limitIdleSQL}, nil); err != nil {
			return err
		}
		crash.At(crash.AppendInserted)
		if requests[0].apart {
			return s.foldApart(ctx, tx, w.plan.rows)
		}
		defer crash.At(crash.AppendFolded)
		return s.inline.fold(ctx, tx, w.plan.rows)
	})
	if err == nil {
		crash.At(crash.AppendCommitted)
		s.existing.add(w.plan.heads)
	}
	return err
}

// foldApart folds stream by stream, and leaves out those that cannot be folded. A fact
// has happened, whatever views can make of it.
func (s *Store) foldApart(ctx context.Context, tx pgx.Tx, rows []row) error {
	slices.SortStableFunc(rows, func(a, b row) int { return cmp.Compare(a.event.Stream, b.event.Stream) })
	for len(rows) > 0 {
		n := 1
		for n < len(rows) && rows[n].event.Stream == rows[0].event.Stream {
			n++
		}
		of := rows[:n]
		rows = rows[n:]
		err := pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error { return s.inline.fold(ctx, tx, of) })
		if isInline(err) && !isTransient(err) {
			s.config.Logger.Error("a fact is stored without an inline view", "stream", of[0].event.Stream, "error", err)
		} else if err != nil {
			return err
		}
	}
	return nil
}

// isInline reports that an inline view refused an append.
func isInline(err error) bool {
	var inline *InlineError
	return errors.As(err, &inline)
}
