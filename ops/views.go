package ops

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/eventstore"
	"github.com/weir-es/weir/projection"
)

// ViewRow is a view as it is listed; see projection.Status.
type ViewRow struct {
	View       string        `json:"view"`
	Edition    int64         `json:"edition"`
	Schema     int           `json:"schema" table:"-"`
	RebuiltAt  time.Time     `json:"rebuilt_at,omitzero" table:"-"`
	Position   weir.Position `json:"position"`
	LagEvents  int64         `json:"lag_events"`
	LagSeconds float64       `json:"lag_seconds"`
	Inversions int64         `json:"inversions"`
	Rewinds    RewindCount   `json:"rewinds"`
	Replayed   int64         `json:"replayed"`
	Parked     int64         `json:"parked"`
	Rewinding  int64         `json:"rewinding"`
	// Rows and Snapshots are estimates.
	Rows          int64           `json:"rows"`
	RowBytes      int64           `json:"row_bytes" table:"-"`
	Snapshots     int64           `json:"snapshots"`
	SnapshotBytes int64           `json:"snapshot_bytes"`
	Rebuild       *RebuildRunning `json:"rebuild,omitempty"`
}

// RewindCount counts rewinds by where they began.
type RewindCount struct {
	Snapshot int64 `json:"snapshot"` // from a snapshot
	Full     int64 `json:"full"`     // from the beginning
}

func (r RewindCount) String() string {
	if r == (RewindCount{}) {
		return "0"
	}
	return fmt.Sprintf("%d+%d full", r.Snapshot, r.Full)
}

// RebuildRunning says how far an edition under way is.
type RebuildRunning struct {
	Phase string `json:"phase"`
	Done  int64  `json:"done"`
	Total int64  `json:"total"`
}

func (r *RebuildRunning) String() string {
	if r == nil {
		return ""
	}
	return fmt.Sprintf("%s: %d of %d events", r.Phase, r.Done, r.Total)
}

// Views lists the views of a store in the order of their names. It needs no code of
// theirs.
func Views(ctx context.Context, s *eventstore.Store) ([]ViewRow, error) {
	statuses, err := projection.Statuses(ctx, s)
	rows := make([]ViewRow, len(statuses))
	for i, status := range statuses {
		rows[i] = viewRow(status)
	}
	return rows, err
}

func viewRow(s projection.Status) ViewRow {
	row := ViewRow{
		View: s.View, Edition: s.Edition, Schema: s.Schema,
		Position: s.At, LagEvents: s.LagEvents, LagSeconds: math.Round(s.LagTime.Seconds()*1000) / 1000,
		Inversions: s.Inversions, Rewinds: RewindCount{s.FromSnapshot, s.Rewinds - s.FromSnapshot}, Replayed: s.Replayed,
		Parked: s.Parked, Rewinding: s.Rewinding,
		Rows: s.Rows, RowBytes: s.RowBytes, Snapshots: s.Snapshots, SnapshotBytes: s.SnapshotBytes,
	}
	if s.RebuiltAt != nil {
		row.RebuiltAt = *s.RebuiltAt
	}
	if r := s.Rebuilding; r != nil {
		row.Rebuild = &RebuildRunning{r.Phase, r.Done, r.Total}
	}
	return row
}

type viewsCommand struct{}

func (*viewsCommand) run(ctx context.Context, s *session) error {
	return s.withStore(ctx, func(store *eventstore.Store) error {
		rows, err := Views(ctx, store)
		if err = errors.Join(printAll(s, rows), err); err != nil {
			return err
		}
		if len(rows) == 0 {
			fmt.Fprintf(s.Stderr, "the schema %s has no views yet: an application makes their tables when it starts\n", store.Schema())
		}
		return nil
	})
}
