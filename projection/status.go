package projection

import (
	"context"
	_ "embed"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/eventstore"
)

// Status says how a view is doing, as every process sees it.
type Status struct {
	View      string
	Edition   int64
	Schema    int        // that the rows were folded with
	RebuiltAt *time.Time // nil: never
	// At is the position up to which everything is applied.
	At weir.Position
	// LagEvents are stored and not applied yet, the oldest of them for LagTime.
	LagEvents int64
	LagTime   time.Duration
	// Inversions are events that sorted below what their row had seen. For them
	// Rewinds rows were folded again, FromSnapshot of them not from the
	// beginning, which folded Replayed events.
	Inversions, Rewinds, FromSnapshot, Replayed int64
	Parked, Rewinding                           int64 // streams
	Rows, RowBytes                              int64 // rows as the planner estimates them; bytes with indexes
	Snapshots, SnapshotBytes                    int64 // the same
	// Rebuilding says how far an edition under way is, if there is one.
	Rebuilding *Progressed
}

//go:embed sql/statuses.sql
var statusesSQL string

// Statuses lists the views of a store in the order of their names. It asks the
// database alone, so it needs no code of the views. Its cost grows with what they lag
// behind, not with what they hold.
func Statuses(ctx context.Context, s *eventstore.Store) ([]Status, error) {
	rows, err := s.Pool().Query(ctx, s.Qualify(statusesSQL), s.Shards())
	if err != nil {
		return nil, fmt.Errorf("list views: %w", err)
	}
	all, err := pgx.CollectRows(rows, scanStatus)
	if err != nil {
		return nil, fmt.Errorf("list views: %w", err)
	}
	return all, nil
}

func scanStatus(row pgx.CollectableRow) (s Status, err error) {
	var phase *string
	var done, total *int64
	var lag float64
	err = row.Scan(&s.View, &s.Edition, &s.Schema, &s.RebuiltAt, &s.At, &s.LagEvents, &lag,
		&s.Inversions, &s.Rewinds, &s.FromSnapshot, &s.Replayed, &s.Parked, &s.Rewinding,
		&s.Rows, &s.RowBytes, &s.Snapshots, &s.SnapshotBytes, &phase, &done, &total)
	s.LagTime = time.Duration(lag * float64(time.Second))
	if phase != nil {
		s.Rebuilding = &Progressed{*phase, *done, *total}
	}
	return s, err
}
