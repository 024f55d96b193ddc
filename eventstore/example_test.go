package eventstore_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/jackc/pgx/v5"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/devserver"
	"github.com/weir-es/weir/eventstore"
)

// Held and Released are events, House a state, Hold a command.
type (
	Held     struct{ Guest string }
	Released struct{}
	House    struct {
		Guest   string
		Changes int
	}
	Hold struct{ Seat, Guest string }
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

var errTaken = errors.New("the seat is taken")

func (c Hold) Stream() weir.StreamID { return weir.Stream("seat", c.Seat) }

func (c Hold) Decide(h House) ([]any, error) {
	switch h.Guest {
	case c.Guest:
		return nil, nil // nothing to do
	case "":
		return []any{Held{c.Guest}}, nil
	}
	return nil, errTaken
}

// withStore runs an example on a store in a throw-away PostgreSQL.
func withStore(example func(ctx context.Context, s *eventstore.Store, types *weir.Registry) error) {
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
	if err := example(ctx, s, types); err != nil {
		log.Fatal(err)
	}
}

func encode(types *weir.Registry, stream weir.StreamID, event any) weir.Message {
	m, err := types.Encode(stream, event)
	if err != nil {
		log.Fatal(err)
	}
	m.ID = weir.NewID()
	return m
}

func ExampleStore_Append() {
	withStore(func(ctx context.Context, s *eventstore.Store, types *weir.Registry) error {
		held := encode(types, "seat-A1", Held{"Ada"})
		events, err := s.Append(ctx, "seat-A1", weir.NewStream, held)
		if err != nil {
			return err
		}
		fmt.Println("stored as version", events[0].Version)

		again, err := s.Append(ctx, "seat-A1", weir.NewStream, held) // the same id
		if err != nil {
			return err
		}
		fmt.Println("again:", again[0].Version)

		_, err = s.Append(ctx, "seat-A1", weir.NewStream, encode(types, "seat-A1", Held{"Ben"}))
		var conflict *weir.ConflictError
		fmt.Println("conflict:", errors.As(err, &conflict), "at version", conflict.Actual)
		return nil
	})
	// Output:
	// stored as version 1
	// again: 1
	// conflict: true at version 1
}

func ExampleStore_AppendAll() {
	withStore(func(ctx context.Context, s *eventstore.Store, types *weir.Registry) error {
		// Ada moves from A1 to A2: both or neither.
		_, err := s.AppendAll(ctx,
			eventstore.Append{Stream: "seat-A1", Expected: weir.NewStream, Messages: []weir.Message{encode(types, "seat-A1", Released{})}},
			eventstore.Append{Stream: "seat-A2", Expected: weir.Exactly(7), Messages: []weir.Message{encode(types, "seat-A2", Held{"Ada"})}})
		fmt.Println(errors.Is(err, weir.ErrConflict))
		counts, err := s.Counts(ctx)
		fmt.Println(counts.Events, "events")
		return err
	})
	// Output:
	// true
	// 0 events
}

func ExampleStore_AppendTx() {
	withStore(func(ctx context.Context, s *eventstore.Store, types *weir.Registry) error {
		if _, err := s.Pool().Exec(ctx, "create table guests (name text primary key)"); err != nil {
			return err
		}
		// The caller's rows and the event are one transaction.
		err := pgx.BeginFunc(ctx, s.Pool(), func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "insert into guests values ('Ada')"); err != nil {
				return err
			}
			held := []weir.Message{encode(types, "seat-A1", Held{"Ada"})}
			_, err := s.AppendTx(ctx, tx, eventstore.Append{Stream: "seat-A1", Expected: weir.NewStream, Messages: held})
			return err
		})
		fmt.Println(err)
		return nil
	})
	// Output:
	// <nil>
}

func ExampleExecute() {
	withStore(func(ctx context.Context, s *eventstore.Store, types *weir.Registry) error {
		for _, command := range []Hold{{"A1", "Ada"}, {"A1", "Ada"}, {"A1", "Ben"}} {
			events, err := eventstore.Execute(ctx, s, command)
			fmt.Println(len(events), "events, taken:", errors.Is(err, errTaken))
		}
		house, version, err := eventstore.Load[House](ctx, s, "seat-A1")
		fmt.Println(house.Guest, "at version", version)
		return err
	})
	// Output:
	// 1 events, taken: false
	// 0 events, taken: false
	// 0 events, taken: true
	// Ada at version 1
}

func ExampleStore_ReadStream() {
	withStore(func(ctx context.Context, s *eventstore.Store, types *weir.Registry) error {
		for _, event := range []any{Held{"Ada"}, Released{}, Held{"Ben"}} {
			if _, err := s.Append(ctx, "seat-A1", weir.AnyVersion, encode(types, "seat-A1", event)); err != nil {
				return err
			}
		}
		newest := eventstore.Read{Backward: true, Types: []string{"seat.held"}}
		for event, err := range s.ReadStream(ctx, "seat-A1", newest) {
			if err != nil {
				return err
			}
			fmt.Println(event.Version, string(event.Data))
		}
		return nil
	})
	// Output:
	// 3 {"Guest":"Ben"}
	// 1 {"Guest":"Ada"}
}

func ExampleStore_ReadLog() {
	withStore(func(ctx context.Context, s *eventstore.Store, types *weir.Registry) error {
		facts := []weir.Message{encode(types, "seat-A1", Held{"Ada"}), encode(types, "seat-A2", Held{"Ben"}), encode(types, "table-7", Held{"Cem"})}
		if _, err := s.Ingest(ctx, false, facts...); err != nil {
			return err
		}
		for event, err := range s.ReadLog(ctx, eventstore.Read{Categories: []string{"seat"}}) {
			if err != nil {
				return err
			}
			value, err := types.Decode(event.Message)
			if err != nil {
				return err
			}
			fmt.Println(event.Stream, value)
		}
		return nil
	})
	// Output:
	// seat-A1 {Ada}
	// seat-A2 {Ben}
}

func ExampleStore_Ingest() {
	withStore(func(ctx context.Context, s *eventstore.Store, types *weir.Registry) error {
		fact := encode(types, "seat-A1", Held{"Ada"})
		for range 2 {
			done, err := s.Ingest(ctx, false, fact)
			if err != nil {
				return err
			}
			fmt.Printf("%+v\n", done)
		}
		return nil
	})
	// Output:
	// {Stored:1 Duplicates:0}
	// {Stored:0 Duplicates:1}
}
