// Seats is the smallest whole service: facts about seats go through JetStream
// into the event store, and a read model follows. Servers are started here and
// thrown away.
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/app"
	"github.com/weir-es/weir/devserver"
	"github.com/weir-es/weir/projection"
)

// Facts: what happened, in the past tense.
type Held struct{ Guest string }
type Released struct{}

var types = weir.Types{
	"seat.held":     weir.EventOf[Held](),
	"seat.released": weir.EventOf[Released](),
}

// House is what we want to know about a seat: state and event give state.
type House struct {
	Guest   string
	Changes int
}

func (h House) Evolve(event any) House {
	switch e := event.(type) {
	case Held:
		return House{e.Guest, h.Changes + 1}
	case Released:
		return House{"", h.Changes + 1}
	}
	return h
}

var house = projection.View[House]{Name: "house", Key: projection.ByStream}

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	dev, err := devserver.Start(ctx)
	if err != nil {
		return err
	}
	defer dev.Close()
	a, err := app.New(ctx, app.Config{Name: "boxoffice", Postgres: dev.Postgres, NATS: dev.NATS, Types: types,
		Projections: []projection.Projection{house}})
	if err != nil {
		return err
	}
	defer a.Close()
	return a.Run(ctx, func(ctx context.Context) error {
		if err := a.Publish(ctx, weir.Stream("seat", "A1"), Held{"Ada"}, Released{}, Held{"Ben"}); err != nil {
			return err
		}
		if err := a.Settle(ctx); err != nil { // wait until every read model has seen it
			return err
		}
		seat, err := house.Get(ctx, a.Store, "seat-A1")
		fmt.Printf("seat A1: %s, after %d changes\n", seat.Guest, seat.Changes)
		return err
	})
}
