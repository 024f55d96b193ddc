package app_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/app"
	"github.com/weir-es/weir/internal/testkit"
	"github.com/weir-es/weir/projection"
)

type held struct{ Guest string }

var types = weir.Types{"seat.held": weir.EventOf[held]()}

type seat struct{ Guests []string }

func (s seat) Evolve(event any) seat {
	if e, ok := event.(held); ok {
		return seat{append(slices.Clone(s.Guests), e.Guest)}
	}
	return s
}

type guest struct{ Seats int }

func (g guest) Evolve(any) guest { return guest{g.Seats + 1} }

var (
	seats  = projection.View[seat]{Name: "seats"}
	guests = projection.View[guest]{Name: "guests", Key: projection.By(func(_ weir.Event, value any) string { return value.(held).Guest })}
)

// service is a configuration of a service of its own: schema, namespace and all.
func service(t *testing.T) app.Config {
	name := strings.ToLower(strings.ReplaceAll(t.Name(), "/", "_"))
	return app.Config{Name: name[:min(len(name), 40)], Postgres: testkit.Database(t), NATS: testkit.NATS(t), Types: types,
		MaxIngestBytes: 64 << 20, Projections: []projection.Projection{seats, guests}}
}

func open(t *testing.T, config app.Config) *app.App {
	t.Helper()
	a, err := app.New(testkit.Context(t), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Close)
	return a
}

func TestPublishedFactsReachReadModels(t *testing.T) {
	t.Parallel()
	a := open(t, service(t))
	err := a.Run(testkit.Context(t), func(ctx context.Context) error {
		for n := range 20 {
			if err := a.Publish(ctx, weir.Stream("seat", fmt.Sprint(n%4)), held{fmt.Sprint("guest ", n)}); err != nil {
				return err
			}
		}
		if err := a.Settle(ctx); err != nil {
			return err
		}
		s, err := seats.Get(ctx, a.Store, "seat-1")
		if err != nil || !slices.Equal(s.Guests, []string{"guest 1", "guest 5", "guest 9", "guest 13", "guest 17"}) {
			t.Errorf("seat-1: %v, %v", s, err)
		}
		g, err := guests.Get(ctx, a.Store, "guest 7")
		if err != nil || g.Seats != 1 {
			t.Errorf("guest 7: %v, %v", g, err)
		}
		if h := a.Health(ctx); !h.Ready || h.Leases != h.Shared || h.Waiting != 0 || h.Behind["seats"].Positions != 0 {
			t.Errorf("health: %+v", h)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
