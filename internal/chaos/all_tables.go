package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/eventstore"
)

var (
	//go:embed sql/all_events.sql
	eventsSQL string
	//go:embed sql/all_heads.sql
	headsSQL string
	//go:embed sql/all_entries.sql
	entriesSQL string
	//go:embed sql/all_owners.sql
	ownersSQL string
	//go:embed sql/all_checkpoints.sql
	checkpointsSQL string
	//go:embed sql/all_left.sql
	leftSQL string
)

// tables are what the checker looks at, as it stands in the database: nothing here has
// gone through the code that is on trial.
type tables struct {
	events      []storedEvent // in the order of positions
	heads       map[string]int64
	views       map[string]map[string]viewRow
	entries     []entry
	owners      []ownership
	checkpoints map[string]map[int16]int64
	left        []string
	relayed     bool // handled are to be all events
	handled     []handledEvent
}

// storedEvent is a row of events.
type storedEvent struct {
	position int64
	id       weir.ID
	order    weir.ID
	stream   string
	version  int64
	shard    int16
	kind     string
	data     string
}

// viewRow is a row of a view.
type viewRow struct {
	state    string
	version  int64
	event    weir.ID
	position int64
}

// entry is a row of the handler.
type entry struct {
	id       weir.ID
	stream   string
	version  int64
	position int64
	shard    int16
	writer   string
	owner    string
	epoch    int64
}

// ownership is who had a lease under an epoch.
type ownership struct {
	scope string
	shard int16
	epoch int64
	owner string
}

// viewNames are the read models that are checked.
var viewNames = []string{"count", "ordered", "balance", "grouped"}

// readTables reads everything.
func readTables(ctx context.Context, q eventstore.Querier) (t tables, err error) {
	if t.events, err = collect(ctx, q, eventsSQL, func(e *storedEvent) []any {
		return []any{&e.position, (*[16]byte)(&e.id), (*[16]byte)(&e.order), &e.stream, &e.version, &e.shard, &e.kind, &e.data}
	}); err != nil {
		return t, fmt.Errorf("read events: %w", err)
	}
	if t.entries, err = collect(ctx, q, entriesSQL, func(e *entry) []any {
		return []any{(*[16]byte)(&e.id), &e.stream, &e.version, &e.position, &e.shard, &e.writer, &e.owner, &e.epoch}
	}); err != nil {
		return t, fmt.Errorf("read entries: %w", err)
	}
	if t.owners, err = collect(ctx, q, ownersSQL, func(o *ownership) []any {
		return []any{&o.scope, &o.shard, &o.epoch, &o.owner}
	}); err != nil {
		return t, fmt.Errorf("read owners: %w", err)
	}
	if t.left, err = collect(ctx, q, leftSQL, func(s *string) []any { return []any{s} }); err != nil {
		return t, fmt.Errorf("read what is left: %w", err)
	}
	if t.handled, err = collect(ctx, q, handledSQL, func(h *handledEvent) []any {
		return []any{(*[16]byte)(&h.id), &h.stream, &h.version}
	}); err != nil {
		return t, fmt.Errorf("read what was handled: %w", err)
	}
	if err = t.readHeads(ctx, q); err != nil {
		return t, err
	}
	return t, t.readViews(ctx, q)
}

func (t *tables) readHeads(ctx context.Context, q eventstore.Querier) error {
	type head struct {
		name    string
		version int64
	}
	heads, err := collect(ctx, q, headsSQL, func(h *head) []any { return []any{&h.name, &h.version} })
	if err != nil {
		return fmt.Errorf("read streams: %w", err)
	}
	t.heads = map[string]int64{}
	for _, h := range heads {
		t.heads[h.name] = h.version
	}
	type checkpoint struct {
		consumer string
		shard    int16
		position int64
	}
	points, err := collect(ctx, q, checkpointsSQL, func(c *checkpoint) []any { return []any{&c.consumer, &c.shard, &c.position} })
	if err != nil {
		return fmt.Errorf("read checkpoints: %w", err)
	}
	t.checkpoints = map[string]map[int16]int64{}
	for _, c := range points {
		if t.checkpoints[c.consumer] == nil {
			t.checkpoints[c.consumer] = map[int16]int64{}
		}
		t.checkpoints[c.consumer][c.shard] = c.position
	}
	return nil
}

func (t *tables) readViews(ctx context.Context, q eventstore.Querier) error {
	type keyed struct {
		key string
		row viewRow
	}
	t.views = map[string]map[string]viewRow{}
	for _, name := range viewNames {
		sql := "select key, coalesce(state::text, 'null'), coalesce(version, 0), coalesce(event_id, '00000000-0000-0000-0000-000000000000'), coalesce(position, 0) from weir.view_" + name
		rows, err := collect(ctx, q, sql, func(k *keyed) []any {
			return []any{&k.key, &k.row.state, &k.row.version, (*[16]byte)(&k.row.event), &k.row.position}
		})
		if err != nil {
			return fmt.Errorf("read view %s: %w", name, err)
		}
		t.views[name] = map[string]viewRow{}
		for _, k := range rows {
			t.views[name][k.key] = k.row
		}
	}
	return nil
}

func collect[T any](ctx context.Context, q eventstore.Querier, sql string, into func(*T) []any) ([]T, error) {
	rows, err := q.Query(ctx, sql)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (t T, err error) {
		return t, row.Scan(into(&t)...)
	})
}

// decode reads an event as the checker understands it.
func (e storedEvent) decode(into any) error { return json.Unmarshal([]byte(e.data), into) }
