package main

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/weir-es/weir"
)

// gossipEvery is how often a producer tells the others an id, so that each of them
// knows how late it is, as it would from whatever it reads of the others' doing.
const gossipEvery = 10 * time.Millisecond

// gossip tells others new ids of a generator and lets it observe theirs, until ctx
// ends or end is called.
func gossip(ctx context.Context, url string, ids *weir.Generator) (end func(), err error) {
	conn, err := nats.Connect(url)
	if err != nil {
		return nil, fmt.Errorf("gossip: %w", err)
	}
	_, err = conn.Subscribe("chaos.ids", func(m *nats.Msg) {
		var id weir.ID
		if id.UnmarshalBinary(m.Data) == nil {
			ids.Observe(id) // what is absurd is refused, and then wrong for us to follow
		}
	})
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("gossip: %w", err)
	}
	go func() {
		for conn.Publish("chaos.ids", ids.New().Bytes()) == nil && conn.Flush() == nil && pause(ctx, gossipEvery) {
		}
	}()
	return conn.Close, nil
}
