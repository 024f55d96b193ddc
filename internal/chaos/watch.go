package main

import (
	"context"
	_ "embed"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/eventstore"
)

//go:embed sql/chain_versions.sql
var chainVersions string

// watchEvery is how often the rows are looked at: latency is that much too long at
// most, and half of it on average.
const watchEvery = 20 * time.Millisecond

// place is an event as a row knows it.
type place struct {
	stream  weir.StreamID
	version weir.Version
}

// watch looks which events the rows of the view show, as any reader of its table
// would.
type watch struct {
	store *eventstore.Store

	// Owned by run.
	seen  map[weir.StreamID]weir.Version
	shown map[place]time.Time // when an event was seen first
}

func newWatch(store *eventstore.Store) *watch {
	return &watch{store: store, seen: map[weir.StreamID]weir.Version{}, shown: map[place]time.Time{}}
}

// run looks until over is closed, and then once more.
func (w *watch) run(ctx context.Context, over <-chan struct{}) error {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-over:
			return w.look(ctx)
		}
		if err := w.look(ctx); err != nil {
			return err
		}
	}
}

// look notes all events up to the versions of the rows, which have applied them.
func (w *watch) look(ctx context.Context) error {
	rows, _ := w.store.Pool().Query(ctx, w.store.Qualify(chainVersions))
	var stream weir.StreamID
	var version weir.Version
	var now time.Time
	_, err := pgx.ForEachRow(rows, []any{&stream, &version}, func() error {
		if now.IsZero() {
			now = time.Now()
		}
		w.note(place{stream, version}, now)
		return nil
	})
	return err
}

func (w *watch) note(upto place, now time.Time) {
	for w.seen[upto.stream] < upto.version {
		w.seen[upto.stream]++
		w.shown[place{upto.stream, w.seen[upto.stream]}] = now
	}
}

// latencies are the times from the publisher to the row, of all events.
func (w *watch) latencies(all []sent, stored []delivery) (took []time.Duration) {
	at := make(map[weir.ID]time.Time, len(all))
	for _, s := range all {
		at[s.ID] = s.At
	}
	for _, d := range stored {
		shown, ok := w.shown[place{d.stream, d.version}]
		if sent, known := at[d.id]; ok && known {
			took = append(took, max(0, shown.Sub(sent)))
		}
	}
	slices.Sort(took)
	return took
}
