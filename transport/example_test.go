package transport_test

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/devserver"
	"github.com/weir-es/weir/transport"
)

// A fact goes to the broker, is received by the owner of its shard and
// acknowledged once it is stored.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	broker, err := devserver.StartNATS(ctx, devserver.NATSConfig{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = broker.Close() }()

	conn, err := transport.Connect(ctx, transport.Config{URL: broker.URL(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer conn.Close()
	if err := conn.Declare(ctx); err != nil {
		fmt.Println(err)
		return
	}

	held := weir.Message{ID: weir.NewID(), Stream: weir.Stream("seat", "A1"), Type: "seat.held", Data: []byte(`{"guest":"Ada"}`)}
	if err := conn.Publisher().Publish(ctx, held); err != nil {
		fmt.Println(err)
		return
	}

	err = conn.Receive(ctx, held.Stream.Shard(weir.DefaultShards), func(d *transport.Delivery) {
		fmt.Println(d.Message.Stream, d.Message.Type, string(d.Message.Data))
		// here it would be stored
		if err := d.Ack(); err != nil {
			fmt.Println(err)
		}
		stop()
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output: seat-A1 seat.held {"guest":"Ada"}
}
