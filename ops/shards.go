package ops

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/eventstore"
)

// ShardRow is a lease as it is listed; see eventstore.Held. The shard of a scope that
// follows the whole log is -1.
type ShardRow struct {
	Scope string     `json:"scope"`
	Shard weir.Shard `json:"shard"`
	Owner weir.ID    `json:"owner,omitzero"` // nobody's: left out
	Name  string     `json:"name,omitempty"` // of the owner
	Epoch int64      `json:"epoch"`
	// Seconds since an instance took the lease, and since its owner was last heard
	// of; left out for never. Stale: so long that others may take it.
	TakenSeconds *float64 `json:"taken_seconds,omitempty"`
	BeatSeconds  *float64 `json:"heartbeat_seconds,omitempty"`
	Stale        bool     `json:"stale"`
	LagEvents    int64    `json:"lag_events"`
	LagSeconds   float64  `json:"lag_seconds"`
	Slowest      string   `json:"slowest,omitempty"` // the reader that lags
}

// shardCells are what a table says.
type shardCells struct {
	Scope      string     `json:"scope"`
	Shard      weir.Shard `json:"shard"`
	Owner      string     `json:"owner"`
	Epoch      int64      `json:"epoch"`
	Taken      string     `json:"taken"`
	Heartbeat  string     `json:"heartbeat"`
	LagEvents  int64      `json:"lag_events"`
	LagSeconds float64    `json:"lag_seconds"`
	Slowest    string     `json:"slowest"`
}

func (r ShardRow) table() []any {
	beat := ago(r.BeatSeconds)
	if r.Stale {
		beat = strings.TrimSpace(beat + " (stale)")
	}
	return []any{shardCells{r.Scope, r.Shard, ownerName(r.Name, r.Owner), r.Epoch, ago(r.TakenSeconds), beat,
		r.LagEvents, r.LagSeconds, r.Slowest}}
}

// ownerName is the name of an instance and the end of its id, by which --instance
// knows it.
func ownerName(name string, id weir.ID) string {
	if id == (weir.ID{}) {
		return "nobody"
	}
	text := id.String()
	return strings.TrimSpace(name + " " + text[len(text)-8:])
}

// ago is a number of seconds for people, nothing for never.
func ago(seconds *float64) string {
	if seconds == nil {
		return ""
	}
	d := time.Duration(*seconds * float64(time.Second))
	if d < time.Minute {
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

// Shards lists all leases of a store by scope and shard. It needs no code of the
// application.
func Shards(ctx context.Context, s *eventstore.Store) ([]ShardRow, error) {
	leases, err := s.Leases(ctx)
	rows := make([]ShardRow, len(leases))
	for i, l := range leases {
		rows[i] = ShardRow{l.Scope, l.Shard, l.Owner, l.Name, l.Epoch, since(l.Taken), since(l.Beat), l.IsStale(),
			l.LagEvents, *since(l.LagTime), l.Slowest}
	}
	return rows, err
}

// since is an age in seconds, nil for never.
func since(d time.Duration) *float64 {
	if d < 0 {
		return nil
	}
	seconds := math.Round(d.Seconds()*1000) / 1000
	return &seconds
}

// ReleaseOptions say which leases to release: those that fit all that is said.
type ReleaseOptions struct {
	Instance string       `placeholder:"ID" help:"Those of this instance: its id, or the end of it as shards shows it."`
	Scope    string       `placeholder:"NAME" help:"Those of this scope: shards, or view: and the name of a view."`
	Shard    []weir.Shard `placeholder:"N" help:"Those of this shard; may be given several times."`
	All      bool         `help:"All that are held."`
}

// errNoChoice says that nobody said which leases.
var errNoChoice = errors.New("say which leases: --instance, --scope, --shard, or --all")

// pick picks the leases that are held and fit.
func (o ReleaseOptions) pick(leases []eventstore.Held) (picked []eventstore.Held, err error) {
	if o.Instance == "" && o.Scope == "" && len(o.Shard) == 0 && !o.All {
		return nil, &unableError{errNoChoice}
	}
	owners := map[weir.ID]bool{}
	for _, l := range leases {
		if l.Owner != (weir.ID{}) && o.fits(l) {
			picked, owners[l.Owner] = append(picked, l), true
		}
	}
	switch {
	case len(picked) == 0:
		return nil, fmt.Errorf("release leases: nobody holds one of these: %w", weir.ErrNotFound)
	case o.Instance != "" && len(owners) > 1:
		return nil, fmt.Errorf("release leases: the ids of %d instances end in %.26s: say more of it", len(owners), o.Instance)
	}
	return picked, nil
}

func (o ReleaseOptions) fits(l eventstore.Held) bool {
	return strings.HasSuffix(l.Owner.String(), strings.ToUpper(o.Instance)) &&
		(o.Scope == "" || o.Scope == l.Scope) &&
		(len(o.Shard) == 0 || slices.Contains(o.Shard, l.Shard))
}

// ReleasedShardRow is a lease that was taken from its owner.
type ReleasedShardRow struct {
	Scope string     `json:"scope"`
	Shard weir.Shard `json:"shard"`
	Owner weir.ID    `json:"released_from"`
	Name  string     `json:"name,omitempty" table:"-"`
	Epoch int64      `json:"epoch"` // from now on
}

// ReleaseShards takes leases from their owners, so that any instance may take them; see
// eventstore.Store.ReleaseLeases. Leases that change hands meanwhile are left alone.
// It ends with an error that is weir.ErrNotFound if nobody holds such leases. Safe to
// repeat.
func ReleaseShards(ctx context.Context, s *eventstore.Store, o ReleaseOptions) ([]ReleasedShardRow, error) {
	leases, err := s.Leases(ctx)
	if err != nil {
		return nil, err
	}
	picked, err := o.pick(leases)
	if err != nil {
		return nil, err
	}
	return release(ctx, s, picked)
}

func release(ctx context.Context, s *eventstore.Store, picked []eventstore.Held) (rows []ReleasedShardRow, err error) {
	released, err := s.ReleaseLeases(ctx, picked...)
	for _, l := range released {
		was := picked[slices.IndexFunc(picked, func(p eventstore.Held) bool { return p.Scope == l.Scope && p.Shard == l.Shard })]
		rows = append(rows, ReleasedShardRow{l.Scope, l.Shard, was.Owner, was.Name, l.Epoch})
	}
	return rows, err
}

type shardsVerbs struct {
	List    shardsList    `cmd:"" default:"1" help:"List leases: who holds them, and how far their readers are. The default."`
	Release shardsRelease `cmd:"" help:"Take leases from their owners, so that any instance may take them."`
}

type shardsList struct{}

func (*shardsList) run(ctx context.Context, s *session) error {
	return s.withStore(ctx, func(store *eventstore.Store) error {
		rows, err := Shards(ctx, store)
		if err = errors.Join(printAll(s, rows), err); err != nil {
			return err
		}
		if len(rows) == 0 {
			fmt.Fprintf(s.Stderr, "the schema %s has no leases yet: an application makes them when it starts\n", store.Schema())
		}
		return nil
	})
}

type shardsRelease struct {
	ReleaseOptions
	Yes bool `help:"Do not ask."`
}

func (c *shardsRelease) run(ctx context.Context, s *session) error {
	return s.withStore(ctx, func(store *eventstore.Store) error {
		leases, err := store.Leases(ctx)
		if err != nil {
			return err
		}
		picked, err := c.pick(leases)
		if err != nil {
			return err
		}
		if err := s.consent(ctx, c.Yes, releasePlan(picked)); err != nil {
			return err
		}
		rows, err := release(ctx, store, picked)
		if err != nil {
			return err
		}
		for _, row := range rows {
			if err := s.out.print(row); err != nil {
				return err
			}
		}
		if left := len(picked) - len(rows); left > 0 {
			fmt.Fprintf(s.Stderr, "%d leases changed hands meanwhile, and were left alone\n", left)
		}
		return nil
	})
}

// releasePlan says what a release will do.
func releasePlan(picked []eventstore.Held) string {
	var owners []string
	for _, l := range picked {
		if name := ownerName(l.Name, l.Owner); !slices.Contains(owners, name) {
			owners = append(owners, name)
		}
	}
	return fmt.Sprintf("releasing %d leases takes them from %s; instances that live take them within a second, the same ones too",
		len(picked), strings.Join(owners, ", "))
}
