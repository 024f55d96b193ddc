package eventstore

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"time"

	"github.com/weir-es/weir"
)

// maxAttempts is how often Execute decides before it gives up on a stream that
// others keep changing.
const maxAttempts = 50

// Execute loads the stream of a command, lets it decide, and appends what it
// decided at the version it saw. When somebody else appended in between it starts
// over, with what they decided in view. It returns the new events.
//
// Errors: what Decide returned, unwrapped by errors.Is and As; weir.ErrConflict
// after 50 attempts; those of Append. Not safe to repeat blindly when ctx ended:
// the command may have been executed, and Decide should notice.
func Execute[S weir.Evolver[S]](ctx context.Context, s *Store, command weir.Command[S]) ([]weir.Event, error) {
	stream := command.Stream()
	release, err := s.turns.take(ctx, stream)
	if err != nil {
		return nil, err
	}
	defer release()
	for attempt := 1; ; attempt++ {
		events, err := execute(ctx, s, command)
		if !errors.Is(err, weir.ErrConflict) || attempt == maxAttempts {
			return events, err
		}
		if err := pauseJitter(ctx, attempt); err != nil {
			return nil, err
		}
	}
}

func execute[S weir.Evolver[S]](ctx context.Context, s *Store, command weir.Command[S]) ([]weir.Event, error) {
	stream := command.Stream()
	a, err := load[S](ctx, s, stream)
	if err != nil {
		return nil, err
	}
	decided, err := command.Decide(a.state)
	if err != nil {
		return nil, fmt.Errorf("decide %T on %s at version %d: %w", command, stream, a.version, err)
	}
	if len(decided) == 0 {
		return nil, nil
	}
	messages := make([]weir.Message, len(decided))
	for i, event := range decided {
		if messages[i], err = s.names.Encode(stream, event); err != nil {
			return nil, err
		}
		messages[i].ID = weir.NewID()
	}
	return s.Append(ctx, stream, weir.Exactly(a.version), messages...)
}

// pauseJitter waits a little, up to twice as long with each attempt.
func pauseJitter(ctx context.Context, attempt int) error {
	most := min(time.Millisecond<<min(attempt, 6), 50*time.Millisecond)
	if !sleep(ctx, rand.N(most), nil) {
		return ctx.Err()
	}
	return nil
}

// turns lets the commands of one process on one stream run one after the other:
// deciding at the same time would only make conflicts. Streams share turns by hash.
type turns struct {
	seed  maphash.Seed
	lanes [256]chan struct{}
}

func (t *turns) init() {
	t.seed = maphash.MakeSeed()
	for i := range t.lanes {
		t.lanes[i] = make(chan struct{}, 1)
	}
}

func (t *turns) take(ctx context.Context, stream weir.StreamID) (release func(), err error) {
	lane := t.lanes[maphash.String(t.seed, string(stream))%uint64(len(t.lanes))]
	select {
	case lane <- struct{}{}:
		return func() { <-lane }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for a turn on %s: %w", stream, ctx.Err())
	}
}
