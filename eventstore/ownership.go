package eventstore

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/weir-es/weir"
)

// Holding is a lease as somebody sees it.
type Holding struct {
	Scope string
	Shard weir.Shard
	Owner weir.ID // zero: nobody
	Epoch int64
	Taken time.Time // zero: never
	// Beat is when the owner was last heard of, by the clock of the database.
	// Stale says that this is too long ago; its leases may be taken.
	Beat  time.Time
	Stale bool
}

// Ownership is what one look at leases shows.
type Ownership struct {
	Live     []weir.ID // instances of the same name, sorted
	Holdings []Holding // those that there are, by scope and shard
}

// Look sees who holds the leases of some scopes.
func (i *Instance) Look(ctx context.Context, scopes []string) (o Ownership, err error) {
	rows, err := i.s.pool.Query(ctx, i.s.sql.Ownership, i.name, scopes, Stale)
	if err != nil {
		return o, fmt.Errorf("look who holds the leases: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := o.scan(rows); err != nil {
			return o, fmt.Errorf("look who holds the leases: %w", err)
		}
	}
	if rows.Err() != nil {
		return o, fmt.Errorf("look who holds the leases: %w", rows.Err())
	}
	return o, nil
}

func (o *Ownership) scan(row pgx.Rows) error {
	var h Holding
	var live [][16]byte
	var owner *[16]byte
	var taken, beat pgtype.Timestamptz
	if err := row.Scan(&live, &h.Scope, &h.Shard, &owner, &h.Epoch, &taken, &beat, &h.Stale); err != nil {
		return err
	}
	o.Live = o.Live[:0]
	for _, id := range live {
		o.Live = append(o.Live, id)
	}
	if owner != nil {
		h.Owner = *owner
	}
	h.Beat = beat.Time.UTC()
	if taken.InfinityModifier == pgtype.Finite {
		h.Taken = taken.Time.UTC()
	}
	if h.Scope != "" {
		o.Holdings = append(o.Holdings, h)
	}
	return nil
}

// Give gives leases of a scope back, as far as they are still ours, so that another
// may take them at once. Whatever works on them must have ended.
func (i *Instance) Give(ctx context.Context, scope string, leases []Lease) error {
	shards, epochs := make([]weir.Shard, len(leases)), make([]int64, len(leases))
	for n, l := range leases {
		shards[n], epochs[n] = l.Shard, l.Epoch
	}
	if _, err := i.s.pool.Exec(ctx, i.s.sql.GiveLeases, scope, [16]byte(i.id), shards, epochs); err != nil {
		return fmt.Errorf("give back %d leases of %s: %w", len(leases), scope, err)
	}
	return nil
}
