package transport

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/weir-es/weir"
)

// Backlog is what the broker still holds of the facts that producers sent.
type Backlog struct {
	// Messages are in the stream, acked or not.
	Messages uint64
	// Waiting were not given to any receiver yet.
	Waiting uint64
	// Unacked were given out and not acked.
	Unacked uint64
}

// IsDone reports whether everything published was acked.
func (b Backlog) IsDone() bool { return b.Waiting == 0 && b.Unacked == 0 }

// Backlog asks the broker what is left. Everything whose publish was answered
// before the call is counted. It costs two requests, and one more per shard when
// nothing seems to be left. A lost connection is waited for until ctx ends. A
// *GoneError says that the stream or a consumer is missing.
func (c *Conn) Backlog(ctx context.Context) (b Backlog, err error) {
	err = c.persist(ctx, func(ctx context.Context) error {
		v, err := c.look(ctx)
		if err == nil {
			b, err = c.count(ctx, v)
		}
		return err
	})
	if err != nil {
		return Backlog{}, fmt.Errorf("backlog: %w", err)
	}
	return b, nil
}

func (c *Conn) count(ctx context.Context, v view) (b Backlog, err error) {
	b = Backlog{Messages: v.messages}
	for _, info := range v.shards {
		b.Waiting += info.NumPending
		b.Unacked += uint64(info.NumAckPending)
	}
	if b.IsDone() && b.Messages > 0 {
		b.Waiting, err = c.unseen(ctx, v)
	}
	return b, err
}

// view is the stream and its consumers, in this order: whatever the consumers
// say is newer than last.
type view struct {
	stream   jetstream.Stream
	messages uint64
	last     uint64 // sequence
	shards   []*jetstream.ConsumerInfo
}

func (c *Conn) look(ctx context.Context) (view, error) {
	stream, err := c.js.Stream(ctx, c.names.stream())
	if err != nil {
		return view{}, c.missing(err)
	}
	infos, err := c.consumers(ctx, stream)
	if err != nil {
		return view{}, err
	}
	state := stream.CachedInfo().State
	v := view{stream, state.Msgs, state.LastSeq, make([]*jetstream.ConsumerInfo, c.config.Shards)}
	for shard := range v.shards {
		name := c.names.consumer(weir.Shard(shard))
		if v.shards[shard] = infos[name]; v.shards[shard] == nil {
			return view{}, &GoneError{c.names.stream() + " consumer " + name, "is not there", nil}
		}
	}
	return v, nil
}

// floors says for each shard up to where everything of it is acked.
//
// An idle consumer's ack floor stays at its own last message, so it says too
// little; and its pending count says too much, since the server counts a message
// some time after it has answered its publish. What is certain is the stream
// itself: if the last message of the shard lies at or below the floor, all of the
// shard up to v.last is acked.
func (c *Conn) floors(ctx context.Context, v view) ([]uint64, error) {
	floors := make([]uint64, len(v.shards))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(declareAtOnce)
	for shard, info := range v.shards {
		floors[shard] = min(info.AckFloor.Stream, v.last)
		if info.NumPending > 0 || info.NumAckPending > 0 {
			continue
		}
		group.Go(func() error {
			last, err := c.lastOf(ctx, v.stream, weir.Shard(shard))
			if err == nil && last <= info.AckFloor.Stream {
				floors[shard] = v.last
			}
			return err
		})
	}
	return floors, group.Wait()
}

// lastOf is the sequence of the last message of a shard, 0 without any.
func (c *Conn) lastOf(ctx context.Context, stream jetstream.Stream, shard weir.Shard) (uint64, error) {
	m, err := stream.GetLastMsgForSubject(ctx, c.names.filter(shard))
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return 0, nil
	case err != nil:
		return 0, fmt.Errorf("last message of shard %d: %w", shard, err)
	}
	return m.Sequence, nil
}

// unseen counts the shards that have a message the server has not counted yet.
func (c *Conn) unseen(ctx context.Context, v view) (uint64, error) {
	floors, err := c.floors(ctx, v)
	var n uint64
	for _, floor := range floors {
		if floor < v.last {
			n++
		}
	}
	return n, err
}

// Purge removes from the stream what every shard has acked, less the last grace
// messages, and returns how many it removed. Run it now and then, so that a full
// stream means that consumers are behind and never a standstill. Safe to repeat
// and to run in several processes. Errors are those of Backlog.
func (c *Conn) Purge(ctx context.Context, grace uint64) (n uint64, err error) {
	err = c.persist(ctx, func(ctx context.Context) error {
		v, err := c.look(ctx)
		if err == nil {
			n, err = c.purgeView(ctx, v, grace)
		}
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("purge: %w", err)
	}
	return n, nil
}

func (c *Conn) purgeView(ctx context.Context, v view, grace uint64) (uint64, error) {
	if v.messages == 0 {
		return 0, nil
	}
	floors, err := c.floors(ctx, v)
	if err != nil {
		return 0, err
	}
	acked := slices.Min(floors)
	if acked <= grace {
		return 0, nil
	}
	return c.purge(ctx, acked-grace)
}

// purge removes everything up to and with a sequence.
func (c *Conn) purge(ctx context.Context, upTo uint64) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, apiWait)
	defer cancel()
	request, err := json.Marshal(jetstream.StreamPurgeRequest{Sequence: upTo + 1})
	if err != nil {
		return 0, err
	}
	reply, err := c.nats.RequestWithContext(ctx, "$JS.API.STREAM.PURGE."+c.names.stream(), request)
	if err != nil {
		return 0, err
	}
	var answer struct {
		Error  *jetstream.APIError `json:"error"`
		Purged uint64              `json:"purged"`
	}
	if err := json.Unmarshal(reply.Data, &answer); err != nil {
		return 0, err
	}
	if answer.Error != nil {
		return 0, answer.Error
	}
	return answer.Purged, nil
}
