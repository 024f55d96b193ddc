package projection

import (
	"context"
	_ "embed"
	"fmt"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/eventstore"
)

//go:embed sql/reached.sql
var reachedSQL string

// Reached reports whether a projection has applied everything up to a position,
// whoever does it, as its checkpoints say. They are noted a second late where there
// was nothing to apply.
func Reached(ctx context.Context, s *eventstore.Store, p Projection, position weir.Position) (done bool, err error) {
	shards := s.Shards()
	if p.FollowsWholeLog() {
		shards = 1
	}
	row := s.Pool().QueryRow(ctx, s.Qualify(reachedSQL), p.ProjectionName(), shards, int64(position))
	if err := row.Scan(&done); err != nil {
		return false, fmt.Errorf("look how far %s is: %w", p.ProjectionName(), err)
	}
	return done, nil
}
