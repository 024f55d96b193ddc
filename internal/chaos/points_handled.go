package main

import (
	"context"
	_ "embed"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/app"
)

var (
	//go:embed sql/points_handled.sql
	handledSQL string
	//go:embed sql/points_handle.sql
	handleSQL string
)

// handledEvent is a row of the handler of relayed events.
type handledEvent struct {
	id      weir.ID
	stream  string
	version int64
}

// handled is that handler, as the process of a name runs it.
func handled(writer string) app.Handler {
	return app.Handler{Name: "handled", Handle: func(ctx context.Context, tx pgx.Tx, e weir.Event, _ any) error {
		_, err := tx.Exec(ctx, handleSQL, [16]byte(e.ID), e.Stream, e.Version, writer)
		return err
	}}
}

// checkHandled: where events are relayed, each was handled once, and those of a stream in
// the order of versions.
func (f *findings) checkHandled(t tables) {
	if !t.relayed {
		return
	}
	for _, text := range t.unhandled() {
		f.add("%s", text)
	}
	last, times := map[string]int64{}, map[weir.ID]int{}
	for _, h := range t.handled {
		if times[h.id]++; times[h.id] > 1 {
			f.add("event %s of %s was handled %d times", h.id, h.stream, times[h.id])
		} else if h.version != last[h.stream]+1 {
			f.add("version %d of %s was handled after version %d", h.version, h.stream, last[h.stream])
		}
		last[h.stream] = h.version
	}
}

// unhandled says what was relayed and not handled, if events are relayed.
func (t tables) unhandled() (all []string) {
	if !t.relayed {
		return nil
	}
	done := map[weir.ID]bool{}
	for _, h := range t.handled {
		done[h.id] = true
	}
	for _, e := range t.events {
		if !done[e.id] {
			all = append(all, fmt.Sprintf("event %s, version %d of %s, was not handled", e.id, e.version, e.stream))
		}
	}
	return all
}
