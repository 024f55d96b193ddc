package projection

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/eventstore"
)

// View folds events into one row per key, in the table view_<Name> of the store's
// schema: key, state (the JSON of S), version, event_id, position, updated_at. The
// table is the user's to query and to index. A state with a method Deleted() bool
// that returns true has no row.
//
// Each event is applied once: the row's version (ByStream) or position (By) is the
// ledger, written in the transaction of the checkpoint.
type View[S weir.Evolver[S]] struct {
	// Name is 1 to 48 of a-z, 0-9 and _.
	Name string
	// Key is ByStream, or By of a function. Default ByStream.
	Key Key
	// Types limits the view to these event types. Default: every type that the
	// application registered. Events of other types touch no row.
	Types []string
	// Unknown is what to do with events of types that are not registered.
	// Default Skip.
	Unknown Unknown
	// Order is in which order the events of a stream are folded. Default
	// ByEventID. A view that is keyed By a function is folded in the order of
	// the log.
	Order Order
	// Inline folds the events of an append in its transaction, so that the row is
	// never behind its stream, for the price of slower appends: an append that
	// the view cannot fold fails with an *eventstore.InlineError. A worker
	// follows all the same, for events that were appended by programs without
	// the view, before it was there, or by an import; it parks facts that the
	// view cannot fold. For views that are keyed by stream.
	Inline bool
	// Guard is the rule for writes that come past the engine, through Write. Default
	// Sequence.
	Guard Guard
	// Schema is the version of the meaning of S. Raise it when the fold
	// changes, and rebuild: snapshots of another schema are passed over.
	Schema int
	// After is called for every event that is new to its row, once, in the
	// transaction that folds it, after the rows of the batch are written: for
	// what has to follow from a change. It is not called when a row is rewound
	// or the view rebuilt. Of several events of a row the row is the same: what
	// they all made together. Events come in the view's order. What After does
	// through tx is committed with the row or not at all; it must not commit or
	// roll back tx. Default nothing.
	After func(ctx context.Context, tx pgx.Tx, event weir.Event, row Row[S]) error
}

// ProjectionName returns Name.
func (v View[S]) ProjectionName() string { return v.Name }

// FollowsWholeLog is true for views that are not keyed by stream.
func (v View[S]) FollowsWholeLog() bool { return !v.Key.byStream() }

// knowsItsEvents: the version of a stream's row says which of its events it has seen.
func (v View[S]) knowsItsEvents() bool { return v.Key.byStream() }

func (v View[S]) wants() (typeSet, Unknown) { return v.Types, v.Unknown }

// check looks for what cannot work.
func (v View[S]) check() error {
	if v.Inline && !v.Key.byStream() {
		return fmt.Errorf("view %s: an inline view is keyed by stream, since appends to several streams would wait for each other at its rows", v.Name)
	}
	if v.Order != ByEventID && !v.Key.byStream() {
		return fmt.Errorf("view %s: an order is for views that are keyed by stream; others follow the order of the log", v.Name)
	}
	return checkName(v.Name)
}

var (
	//go:embed sql/get_row.sql
	getRow string
	//go:embed sql/all_rows.sql
	allRows string
)

// Row is a row of a view with what the engine knows about it.
type Row[S any] struct {
	Key   string
	State S
	// Version is the highest version applied (ByStream), or how many events
	// made the row (By).
	Version weir.Version
	// EventID is the highest order id applied.
	EventID weir.ID
	// Position is the highest position applied.
	Position weir.Position
	// Deleted is true in After where the fold has deleted the row.
	Deleted   bool
	UpdatedAt time.Time
}

// Get reads the state of one row, or gives weir.ErrNotFound.
func (v View[S]) Get(ctx context.Context, s *eventstore.Store, key string) (state S, err error) {
	row, err := v.Row(ctx, s, key)
	return row.State, err
}

// Row reads one row, or gives weir.ErrNotFound.
func (v View[S]) Row(ctx context.Context, s *eventstore.Store, key string) (Row[S], error) {
	rows, err := s.Pool().Query(ctx, v.tables(s).sql(getRow), key)
	if err != nil {
		return Row[S]{}, fmt.Errorf("get %q of view %s: %w", key, v.Name, err)
	}
	row, err := pgx.CollectExactlyOneRow(rows, scanRow[S])
	if errors.Is(err, pgx.ErrNoRows) {
		err = weir.ErrNotFound
	}
	if err != nil {
		return Row[S]{}, fmt.Errorf("get %q of view %s: %w", key, v.Name, err)
	}
	return row, nil
}

// pageRows is how many rows All reads at a time.
const pageRows = 1000

// All reads every row in the order of keys. It holds one page in memory and no
// connection while the loop runs, so it is no snapshot: rows may change between
// pages.
func (v View[S]) All(ctx context.Context, s *eventstore.Store) iter.Seq2[Row[S], error] {
	return func(yield func(Row[S], error) bool) {
		after, first := "", true
		for {
			page, err := v.page(ctx, s, after, first)
			if err != nil {
				yield(Row[S]{}, fmt.Errorf("read view %s after %q: %w", v.Name, after, err))
				return
			}
			for _, row := range page {
				if !yield(row, nil) {
					return
				}
			}
			if len(page) < pageRows {
				return
			}
			after, first = page[len(page)-1].Key, false
		}
	}
}

func (v View[S]) page(ctx context.Context, s *eventstore.Store, after string, first bool) ([]Row[S], error) {
	rows, err := s.Pool().Query(ctx, v.tables(s).sql(allRows), after, first, pageRows)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, scanRow[S])
}

func scanRow[S any](from pgx.CollectableRow) (row Row[S], err error) {
	var state []byte
	var id *[16]byte
	if err := from.Scan(&row.Key, &state, &row.Version, &id, &row.Position, &row.UpdatedAt); err != nil {
		return row, err
	}
	if id != nil {
		row.EventID = *id
	}
	return row, json.Unmarshal(state, &row.State)
}
