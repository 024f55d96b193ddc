package devserver_test

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"

	"github.com/weir-es/weir/devserver"
)

func Example() {
	ctx := context.Background()
	dev, err := devserver.Start(ctx)
	if err != nil {
		panic(err)
	}
	defer dev.Close()

	db, err := pgx.Connect(ctx, dev.Postgres)
	if err != nil {
		panic(err)
	}
	defer db.Close(ctx)
	var answer int
	if err := db.QueryRow(ctx, "select 6 * 7").Scan(&answer); err != nil {
		panic(err)
	}

	broker, err := nats.Connect(dev.NATS)
	if err != nil {
		panic(err)
	}
	defer broker.Close()
	fmt.Println(answer, broker.Status())
	// Output: 42 CONNECTED
}

// Each test gets a copy of a database that is prepared once.
func ExamplePostgres_CloneDatabase() {
	ctx := context.Background()
	server, err := devserver.StartPostgres(ctx, devserver.PostgresConfig{})
	if err != nil {
		panic(err)
	}
	defer server.Close()

	migrate := func(ctx context.Context, url string) error {
		fmt.Println("migrated once")
		return nil
	}
	for range 3 {
		if _, err := server.CloneDatabase(ctx, "orders", migrate); err != nil {
			panic(err)
		}
	}
	// Output: migrated once
}
