package eventstore

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/internal/crash"
)

// Stale is how long an owner may be silent, by the clock of the database, before
// its leases may be taken.
const Stale = 5 * time.Second

// fenceLimit is how long a statement under a fence may take, and how long its
// transaction may be idle.
const fenceLimit = 4 * time.Second

// heartbeatLimit is how long a heartbeat may take: a connection on which nothing comes
// back any more must not keep an instance from noticing that it is dead to others.
const heartbeatLimit = 3 * time.Second

// Lease is the right to write for a shard of a scope, until somebody else takes
// it with a higher epoch.
type Lease struct {
	Shard weir.Shard
	Epoch int64
}

// Instance is one start of one process. Heartbeat has a connection of its own, so
// that a busy pool does not make a healthy instance look dead.
type Instance struct {
	s    *Store
	id   weir.ID
	name string

	// Owned by the caller of Heartbeat.
	conn *pgx.Conn
}

// Join makes a new instance. It lives from its first Heartbeat on.
func (s *Store) Join(name string) *Instance {
	return &Instance{s: s, id: weir.NewID(), name: name}
}

// ID is unique to this start of this process.
func (i *Instance) ID() weir.ID { return i.id }

// Heartbeat says that the instance lives, and returns how many leases it holds.
// Repeat it every second, from one goroutine.
func (i *Instance) Heartbeat(ctx context.Context) (leases int, err error) {
	ctx, cancel := context.WithTimeout(ctx, heartbeatLimit)
	defer cancel()
	if i.conn == nil {
		i.conn, err = pgx.ConnectConfig(ctx, i.s.pool.Config().ConnConfig)
	}
	if err == nil {
		err = i.conn.QueryRow(ctx, i.s.sql.Heartbeat, [16]byte(i.id), i.name).Scan(&leases)
	}
	if err != nil {
		i.Disconnect(ctx)
		return 0, fmt.Errorf("heartbeat of %s: %w", i.name, err)
	}
	return leases, nil
}

// Disconnect closes the connection of Heartbeat, which opens another when called
// again.
func (i *Instance) Disconnect(ctx context.Context) {
	if i.conn != nil {
		i.conn.Close(ctx)
		i.conn = nil
	}
}

// Claim takes those of the shards that nobody else holds or whose owner is stale,
// and returns them. What this instance holds already it takes again, with a new
// epoch.
func (i *Instance) Claim(ctx context.Context, scope string, shards []weir.Shard) ([]Lease, error) {
	var leases []Lease
	err := i.s.inTx(ctx, func(tx pgx.Tx) (err error) {
		leases, err = i.claim(ctx, tx, scope, shards)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("claim leases of %s: %w", scope, err)
	}
	return leases, nil
}

func (i *Instance) claim(ctx context.Context, tx pgx.Tx, scope string, shards []weir.Shard) (leases []Lease, err error) {
	var b pgx.Batch
	b.Queue(i.s.sql.EnsureLeases, scope, shards)
	b.Queue(i.s.sql.LockLeases, scope, shards)
	b.Queue(i.s.sql.TakeLeases, scope, shards, [16]byte(i.id), Stale).Query(func(rows pgx.Rows) (err error) {
		leases, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (l Lease, err error) {
			return l, row.Scan(&l.Shard, &l.Epoch)
		})
		return err
	})
	defer crash.At(crash.LeaseClaiming)
	return leases, tx.SendBatch(ctx, &b).Close()
}

// Leave gives everything back, so that another may take it at once.
func (i *Instance) Leave(ctx context.Context) error {
	if _, err := i.s.pool.Exec(ctx, i.s.sql.LeaveInstance, [16]byte(i.id)); err != nil {
		return fmt.Errorf("leave as %s: %w", i.name, err)
	}
	return nil
}

// Fence guards the writes of a transaction by the leases of one scope.
type Fence struct {
	Scope  string
	Owner  weir.ID
	Epochs map[weir.Shard]int64
}

// Guard makes a fence of leases that this instance holds.
func (i *Instance) Guard(scope string, leases []Lease) Fence {
	f := Fence{Scope: scope, Owner: i.id, Epochs: map[weir.Shard]int64{}}
	for _, l := range leases {
		f.Epochs[l.Shard] = l.Epoch
	}
	return f
}

// QueueFence holds the leases of these shards to the end of the transaction that
// b belongs to. If one is not ours any more, the batch fails with
// weir.ErrLeaseLost and the transaction must be rolled back. No statement of the
// transaction may take longer than 4 s, and it may not be idle for longer.
func (s *Store) QueueFence(b *pgx.Batch, f Fence, shards []weir.Shard) {
	epochs := make([]int64, len(shards))
	for i, shard := range shards {
		epochs[i] = f.Epochs[shard]
	}
	b.Queue(s.sql.FenceLimits, strconv.FormatInt(fenceLimit.Milliseconds(), 10))
	b.Queue(s.sql.Fence, f.Scope, [16]byte(f.Owner), shards, epochs).Query(func(rows pgx.Rows) error {
		held := 0
		for rows.Next() {
			held++
		}
		if rows.Err() == nil && held != len(shards) {
			return fmt.Errorf("write for %d shards of %s, of which %d are ours: %w", len(shards), f.Scope, held, weir.ErrLeaseLost)
		}
		return rows.Err()
	})
}
