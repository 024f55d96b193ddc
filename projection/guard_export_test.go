package projection

import (
	"context"

	"github.com/weir-es/weir/eventstore"
)

// EnsureWritten makes the table of a view ready for Write.
func (v View[S]) EnsureWritten(ctx context.Context, s *eventstore.Store) error {
	return v.tables(s).ensureWritten(ctx)
}
