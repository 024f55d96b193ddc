package projection

import (
	"context"
	"fmt"
	"regexp"

	"github.com/jackc/pgx/v5"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/eventstore"
)

// Projection is a View or a Handler.
type Projection interface {
	// ProjectionName is unique in the application. It names the checkpoint and
	// the table, so renaming starts over.
	ProjectionName() string
	// FollowsWholeLog tells those that see all events in one order, under one
	// lease, from those that run shard by shard.
	FollowsWholeLog() bool
	// Prepare checks the definition and creates what it needs in the store.
	// Safe to repeat.
	Prepare(ctx context.Context, s *eventstore.Store) error

	wants() (typeSet, Unknown)
	begin(j *job, items []item) step
	// replay begins to catch up with one stream beside the others, without
	// writing anything.
	replay(ctx context.Context, j *job, stream weir.StreamID) (landing, error)
}

// step is one batch on its way through one projection: what is read together
// with the fence, what is written together with the checkpoint, and what follows
// before the commit.
type step interface {
	queueReads(b *pgx.Batch)
	finish(ctx context.Context, tx pgx.Tx, writes *pgx.Batch) error
	// hooked says that after has something to do before the commit.
	hooked() bool
	after(ctx context.Context, tx pgx.Tx) error
}

// Unknown says what a projection does with events of types that the application
// did not register. A projection that lists its Types is given no others, and
// applies this to those of its list.
type Unknown int

const (
	// Skip passes over them, as over types that the projection does not list.
	Skip Unknown = iota
	// Park stops at them: their streams are parked, the others go on.
	Park
	// Fail ends the service with an error, before anything after them is applied.
	Fail
)

var validName = regexp.MustCompile(`^[a-z][a-z0-9_]{0,47}$`)

func checkName(name string) error {
	if !validName.MatchString(name) {
		return fmt.Errorf("projection %q: a name is 1 to 48 of a-z, 0-9 and _, and begins with a letter", name)
	}
	return nil
}

// typeSet is a set of event types; nil is all of them.
type typeSet []string

func (t typeSet) has(name string) bool {
	if t == nil {
		return true
	}
	for _, one := range t {
		if one == name {
			return true
		}
	}
	return false
}
