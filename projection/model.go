package projection

import (
	"context"
	"encoding/json"
	"iter"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/eventstore"
)

// Model is a View of any state, for whoever operates it without knowing the state.
type Model interface {
	Projection
	Rebuild(ctx context.Context, s *eventstore.Store, r Rebuild) (Rebuilt, error)
	RebuildKey(ctx context.Context, s *eventstore.Store, key string) error
	CancelRebuild(ctx context.Context, s *eventstore.Store) error
	Verify(ctx context.Context, s *eventstore.Store) (Verified, error)
	Explain(ctx context.Context, s *eventstore.Store, key string) iter.Seq2[weir.Event, error]
	// LookAt is GetAt with the state as JSON.
	LookAt(ctx context.Context, s *eventstore.Store, key string, when eventstore.Point) (json.RawMessage, error)
}

var _ Model = View[nothing]{}

type nothing struct{}

func (n nothing) Evolve(any) nothing { return n }

// LookAt is GetAt with the state as JSON.
func (v View[S]) LookAt(ctx context.Context, s *eventstore.Store, key string, when eventstore.Point) (json.RawMessage, error) {
	state, err := v.GetAt(ctx, s, key, when)
	if err != nil {
		return nil, err
	}
	return json.Marshal(state)
}
