package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/weir-es/weir/projection"
)

//go:embed sql/spoil_view.sql
var spoilView string

// rebuildOurs makes a new edition of a view of which every row is wrong, until it
// serves.
func rebuildOurs(ctx context.Context, t *trial) error {
	s, end, err := t.store(ctx, history(t.n))
	if err != nil {
		return err
	}
	defer end()
	w, err := worker(ctx, s)
	if err != nil {
		return err
	}
	head, err := complete(ctx, s)
	if err != nil {
		return err
	}
	if err := catchUp(ctx, w, head); err != nil {
		return err
	}
	if _, err := s.Pool().Exec(ctx, spoilView); err != nil {
		return err
	}
	var done projection.Rebuilt
	err = t.measure(func() error {
		done, err = accounts.Rebuild(ctx, s, projection.Rebuild{})
		return err
	})
	if err != nil {
		return err
	}
	if done.Changed != done.Rows {
		return fmt.Errorf("the rebuild changed %d rows of %d", done.Changed, done.Rows)
	}
	return t.expectPayments(ctx, s.Pool().QueryRow(ctx, countView))
}

// rebuildTwin reads the log in pages over one connection, decodes, folds into a map,
// and copies all rows into an empty table at the end. It is the least because all rows
// are in memory, nobody else writes meanwhile, nothing is checked, and it begins again
// when it is interrupted.
func rebuildTwin(ctx context.Context, t *trial) error {
	conn, end, err := t.connection(ctx, history(t.n))
	if err != nil {
		return err
	}
	defer end()
	if err := t.measure(func() error { return foldAll(ctx, conn) }); err != nil {
		return err
	}
	return t.expectPayments(ctx, conn.QueryRow(ctx, countTwinView))
}

func foldAll(ctx context.Context, conn *pgx.Conn) error {
	names, err := readNames(ctx, conn)
	if err != nil {
		return err
	}
	all := map[int64]*folded{}
	for after := int64(0); ; {
		changed, last, err := foldPage(ctx, conn, after, names, all)
		if err != nil {
			return err
		}
		if len(changed) == 0 {
			return copyFolded(ctx, conn, all)
		}
		after = last
	}
}

func copyFolded(ctx context.Context, conn *pgx.Conn, all map[int64]*folded) error {
	var rows [][]any
	for _, row := range all {
		state, err := json.Marshal(row.state)
		if err != nil {
			return err
		}
		rows = append(rows, []any{row.name, string(state), row.version, row.last, row.position})
	}
	columns := []string{"key", "state", "version", "event_id", "position"}
	_, err := conn.CopyFrom(ctx, pgx.Identifier{"twin", "accounts"}, columns, pgx.CopyFromRows(rows))
	return err
}
