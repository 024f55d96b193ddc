package projection_test

import (
	"context"
	"fmt"
	"log"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/devserver"
	"github.com/weir-es/weir/eventstore"
	"github.com/weir-es/weir/projection"
)

// Held and Released are events, House the state of a seat.
type (
	Held     struct{ Guest string }
	Released struct{}
	House    struct {
		Guest   string
		Changes int
	}
)

func (h House) Evolve(event any) House {
	switch e := event.(type) {
	case Held:
		return House{e.Guest, h.Changes + 1}
	case Released:
		return House{"", h.Changes + 1}
	}
	return h
}

// house is inline, so that the examples need no worker.
var house = projection.View[House]{Name: "house", Inline: true}

// withHouse runs an example on a store in a throw-away PostgreSQL.
func withHouse(example func(ctx context.Context, s *eventstore.Store, append func(events ...any) []weir.Event) error) {
	ctx := context.Background()
	types, err := weir.NewRegistry(weir.Types{"seat.held": weir.EventOf[Held](), "seat.released": weir.EventOf[Released]()})
	if err != nil {
		log.Fatal(err)
	}
	server, err := devserver.StartPostgres(ctx, devserver.PostgresConfig{})
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	s, err := eventstore.Open(ctx, eventstore.Config{URL: server.URL(), Types: types})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	if err := house.Prepare(ctx, s); err != nil {
		log.Fatal(err)
	}
	err = example(ctx, s, func(events ...any) []weir.Event {
		var messages []weir.Message
		for _, event := range events {
			m, err := types.Encode("seat-A1", event)
			if err != nil {
				log.Fatal(err)
			}
			m.ID = weir.NewID()
			messages = append(messages, m)
		}
		stored, err := s.Append(ctx, "seat-A1", weir.AnyVersion, messages...)
		if err != nil {
			log.Fatal(err)
		}
		return stored
	})
	if err != nil {
		log.Fatal(err)
	}
}

func ExampleView() {
	withHouse(func(ctx context.Context, s *eventstore.Store, append func(events ...any) []weir.Event) error {
		append(Held{"Ada"}, Released{}, Held{"Ben"})
		seat, err := house.Get(ctx, s, "seat-A1")
		if err != nil {
			return err
		}
		fmt.Printf("%s after %d changes\n", seat.Guest, seat.Changes)
		for event, err := range house.Explain(ctx, s, "seat-A1") {
			if err != nil {
				return err
			}
			fmt.Println(event.Version, event.Type)
		}
		return nil
	})
	// Output:
	// Ben after 3 changes
	// 1 seat.held
	// 2 seat.released
	// 3 seat.held
}

func ExampleView_GetAt() {
	withHouse(func(ctx context.Context, s *eventstore.Store, append func(events ...any) []weir.Event) error {
		append(Held{"Ada"}, Released{}, Held{"Ben"})
		seat, err := house.GetAt(ctx, s, "seat-A1", eventstore.AtVersion(1))
		fmt.Println("at version 1:", seat.Guest)
		return err
	})
	// Output: at version 1: Ada
}

func ExampleView_Verify() {
	withHouse(func(ctx context.Context, s *eventstore.Store, append func(events ...any) []weir.Event) error {
		append(Held{"Ada"})
		if _, err := s.Pool().Exec(ctx, s.Qualify(`update weir.view_house set state = '{"Guest": "Eve"}'`)); err != nil {
			return err
		}
		found, err := house.Verify(ctx, s)
		if err != nil {
			return err
		}
		for _, d := range found.Differences {
			fmt.Println("differs from its log:", d.Key)
		}
		return house.RebuildKey(ctx, s, "seat-A1")
	})
	// Output: differs from its log: seat-A1
}

func ExampleWrite() {
	withHouse(func(ctx context.Context, s *eventstore.Store, append func(events ...any) []weir.Event) error {
		stored := append(Held{"Ada"}, Held{"Ben"})
		for _, after := range stored[:1] { // somebody who knows the first event only
			o, err := projection.Write(ctx, s.Pool(), s, house,
				projection.Row[House]{Key: "seat-A1", State: House{Guest: "Ada, corrected"}, EventID: after.ID, Position: after.Position})
			if err != nil {
				return err
			}
			fmt.Println("written:", o.Written, "skipped:", o.Skipped)
		}
		return nil
	})
	// Output: written: [] skipped: [seat-A1]
}
