package main

import (
	"context"
	_ "embed"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/eventstore"
)

var (
	//go:embed sql/create_twin.sql
	createTwin string
	//go:embed sql/copy_events.sql
	copyEvents string
)

// fresh is a store without events, and the twin's table.
var fresh = template{"fresh", func(ctx context.Context, url string) error {
	return prepare(ctx, url, nil, "")
}}

// grown is a store in which every stream that is appended to has an event, and a
// twin's table with the same ones.
func grown(streams int) template {
	return template{fmt.Sprint("grown", streams), func(ctx context.Context, url string) error {
		var first []weir.Message
		for i := range streams {
			first = append(first, fact(i))
		}
		return prepare(ctx, url, first, copyEvents)
	}}
}

// history is a store with n events to catch up with, and tables for the rows.
func history(n int) template {
	return template{fmt.Sprint("history", n), func(ctx context.Context, url string) error {
		return prepare(ctx, url, facts(n, streamsOf(n)), createTwinView)
	}}
}

// long is a store with a stream of longEvents events, and with as many of other
// streams in between.
var long = template{"long", func(ctx context.Context, url string) error {
	var events []weir.Message
	for i := range longEvents {
		events = append(events, fact(0), fact(1+i%1000))
	}
	return prepare(ctx, url, events, "")
}}

// prepare stores events in a new store, then makes what the twin needs.
func prepare(ctx context.Context, url string, events []weir.Message, last string) error {
	s, err := eventstore.Open(ctx, eventstore.Config{URL: url})
	if err != nil {
		return err
	}
	defer s.Close()
	if err := accounts.Prepare(ctx, s); err != nil {
		return err
	}
	if _, err := s.Import(ctx, each(events), eventstore.ImportOptions{}); err != nil {
		return err
	}
	return execute(ctx, url, createTwin, last, "vacuum analyze")
}

func execute(ctx context.Context, url string, statements ...string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	for _, statement := range statements {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}
