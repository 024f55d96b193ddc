package eventstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	"github.com/jackc/pgx/v5"

	"github.com/weir-es/weir"
)

// aggregate is a folded stream.
type aggregate[S any] struct {
	state   S
	version weir.Version
	last    weir.ID // order id of the last event
}

// Load folds the events of a stream into a state, in the order of versions, and
// returns it with the version it is at; a stream without events gives the zero
// state and 0. Where the state wants snapshots it begins with one, and leaves one
// behind when it has become long since. The state is the caller's: changing it
// changes nothing else.
func Load[S weir.Evolver[S]](ctx context.Context, s *Store, stream weir.StreamID) (state S, version weir.Version, err error) {
	a, err := load[S](ctx, s, stream)
	return a.state, a.version, err
}

func load[S weir.Evolver[S]](ctx context.Context, s *Store, stream weir.StreamID) (aggregate[S], error) {
	a, err := loadSnapshot[S](ctx, s, stream)
	if err != nil {
		return a, err
	}
	began := a.version
	for event, err := range s.Stream(ctx, stream, a.version) {
		if err != nil {
			return a, err
		}
		if err := a.apply(s, event); err != nil {
			return a, err
		}
	}
	// What happens now sorts after what was seen. An id from the far future is
	// refused, and then the order id of the append puts it right.
	_ = weir.Observe(a.last)
	if every, _, wants := a.snapshots(); wants && a.version >= began+weir.Version(every) {
		a.save(ctx, s, stream)
	}
	return a, nil
}

func (a *aggregate[S]) apply(s *Store, event weir.Event) error {
	values, err := s.names.DecodeAll(event.Message)
	if err != nil && !errors.Is(err, weir.ErrUnknownType) {
		return fmt.Errorf("load %s: version %d: %w", event.Stream, event.Version, err)
	}
	for _, value := range values {
		a.state = any(a.state).(weir.Evolver[S]).Evolve(value)
	}
	a.version, a.last = event.Version, event.Order()
	return nil
}

func (a *aggregate[S]) snapshots() (every, schema int, wants bool) {
	p, ok := any(a.state).(weir.Snapshotter)
	if !ok {
		return 0, 0, false
	}
	every, schema = p.Snapshots()
	return every, schema, every > 0
}

// kind tells the states apart that are folded from one stream.
func (a *aggregate[S]) kind() string { return reflect.TypeFor[S]().String() }

// loadSnapshot begins with the snapshot, if there is one that can be used. One that
// cannot be read is as good as none.
func loadSnapshot[S weir.Evolver[S]](ctx context.Context, s *Store, stream weir.StreamID) (aggregate[S], error) {
	var a, none aggregate[S]
	_, schema, wants := a.snapshots()
	if !wants {
		return none, nil
	}
	var state []byte
	row := s.pool.QueryRow(ctx, s.sql.LoadSnapshot, string(stream), a.kind(), schema)
	err := row.Scan(&a.version, (*[16]byte)(&a.last), &state)
	if errors.Is(err, pgx.ErrNoRows) {
		return none, nil
	}
	if err != nil {
		return none, fmt.Errorf("load the snapshot of %s: %w", stream, err)
	}
	if err := json.Unmarshal(state, &a.state); err != nil {
		s.config.Logger.Warn("a snapshot cannot be read, folding all events", "stream", stream, "kind", a.kind(), "error", err)
		return none, nil
	}
	return a, nil
}

// save keeps a snapshot of what was just folded from stored events. If that fails
// the next load tries again.
func (a *aggregate[S]) save(ctx context.Context, s *Store, stream weir.StreamID) {
	_, schema, _ := a.snapshots()
	state, err := json.Marshal(a.state)
	if err == nil {
		_, err = s.pool.Exec(ctx, s.sql.SaveSnapshot, string(stream), a.kind(), schema, int64(a.version), [16]byte(a.last), string(state))
	}
	if err != nil {
		s.config.Logger.Warn("cannot keep a snapshot", "stream", stream, "kind", a.kind(), "error", err)
	}
}
