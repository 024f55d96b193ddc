package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// diagnosis says what the broker holds and what each of its consumers has not done,
// for whoever wants to know why a day did not settle.
func (d *day) diagnosis(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	conn, err := nats.Connect(d.broker.url)
	if err != nil {
		return err.Error()
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		return err.Error()
	}
	stream, err := js.Stream(ctx, "WEIR_WEIR_INGEST")
	if err != nil {
		return err.Error()
	}
	var b strings.Builder
	state := stream.CachedInfo().State
	fmt.Fprintf(&b, "the broker holds %d messages of %d bytes, %d to %d", state.Msgs, state.Bytes, state.FirstSeq, state.LastSeq)
	consumers := stream.ListConsumers(ctx)
	for c := range consumers.Info() {
		if c.NumPending > 0 || c.NumAckPending > 0 || c.AckFloor.Stream < state.FirstSeq {
			fmt.Fprintf(&b, "\n%s: %d pending, %d not acknowledged, delivered %d, floor %d, %d redelivered, %d waiting",
				c.Name, c.NumPending, c.NumAckPending, c.Delivered.Stream, c.AckFloor.Stream, c.NumRedelivered, c.NumWaiting)
		}
	}
	return b.String()
}
