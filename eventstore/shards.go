package eventstore

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-es/weir"
)

// Held is a lease, who holds it, and how its work is doing. Ages are by the clock of the
// database.
type Held struct {
	Scope string
	Shard weir.Shard // WholeLog: that of a consumer that follows the whole log
	Owner weir.ID    // zero: nobody
	Name  string     // of the owner; empty where it is not known any more
	Epoch int64
	// Taken is how long ago an instance took it, and Beat how long ago its owner
	// was last heard of. Negative: never.
	Taken, Beat time.Duration
	// LagEvents are stored and not applied by the slowest reader of the shard,
	// Slowest, the oldest of them for LagTime.
	LagEvents int64
	LagTime   time.Duration
	Slowest   string
}

// IsStale reports that the owner has been silent for so long that others may take the
// lease. The lease of nobody is not stale.
func (h Held) IsStale() bool { return h.Owner != weir.ID{} && (h.Beat < 0 || h.Beat > Stale) }

// Leases lists all leases by scope and shard. Its cost grows with what the slowest
// reader lags behind.
func (s *Store) Leases(ctx context.Context) ([]Held, error) {
	rows, err := s.pool.Query(ctx, s.sql.Leases)
	if err != nil {
		return nil, fmt.Errorf("list leases: %w", err)
	}
	all, err := pgx.CollectRows(rows, scanHeld)
	if err != nil {
		return nil, fmt.Errorf("list leases: %w", err)
	}
	return all, nil
}

func scanHeld(row pgx.CollectableRow) (h Held, err error) {
	var owner *[16]byte
	var taken, beat *float64
	var lag float64
	err = row.Scan(&h.Scope, &h.Shard, &owner, &h.Name, &h.Epoch, &taken, &beat, &h.LagEvents, &lag, &h.Slowest)
	if owner != nil {
		h.Owner = *owner
	}
	h.Taken, h.Beat, h.LagTime = age(taken), age(beat), age(&lag)
	return h, err
}

// age is a number of seconds, -1 ns for none.
func age(seconds *float64) time.Duration {
	if seconds == nil {
		return -1
	}
	return max(0, time.Duration(*seconds*float64(time.Second)))
}

// ReleaseLeases takes leases from their owners, as far as each is still at the epoch that was
// seen, and returns those that it took, with the new epoch and without an owner. From
// then on the old owners' writes fail with weir.ErrLeaseLost; one that is under way is
// waited for, up to 4 s. Any instance may take the leases at once, those that had them
// too. Nothing is lost or doubled: whoever follows begins at the checkpoint. Safe to
// repeat.
func (s *Store) ReleaseLeases(ctx context.Context, leases ...Held) ([]Held, error) {
	scopes, shards, epochs := make([]string, len(leases)), make([]weir.Shard, len(leases)), make([]int64, len(leases))
	for n, l := range leases {
		scopes[n], shards[n], epochs[n] = l.Scope, l.Shard, l.Epoch
	}
	rows, err := s.pool.Query(ctx, s.sql.ReleaseLeases, scopes, shards, epochs)
	if err != nil {
		return nil, fmt.Errorf("release %d leases: %w", len(leases), err)
	}
	released, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (h Held, err error) {
		h.Taken, h.Beat = -1, -1
		return h, row.Scan(&h.Scope, &h.Shard, &h.Epoch)
	})
	if err != nil {
		return nil, fmt.Errorf("release %d leases: %w", len(leases), err)
	}
	slices.SortFunc(released, func(a, b Held) int { return cmp.Or(cmp.Compare(a.Scope, b.Scope), cmp.Compare(a.Shard, b.Shard)) })
	return released, nil
}
