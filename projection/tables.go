package projection

import (
	"context"
	_ "embed"
	"fmt"
	"strings"

	"github.com/weir-es/weir/eventstore"
)

// tables are where an edition of a view is: its rows, and its snapshots if it keeps
// any.
type tables struct {
	store *eventstore.Store
	rows  string
	shots string
}

// tables are those of the edition that serves.
func (v View[S]) tables(s *eventstore.Store) tables {
	return tables{s, "view_" + v.Name, "snap_" + v.Name}
}

// next are those of the edition that a rebuild makes.
func (v View[S]) next(s *eventstore.Store) tables { return tables{s, "next_" + v.Name, ""} }

// sql puts the names of the schema and of the tables in.
func (t tables) sql(text string) string {
	return t.store.Qualify(strings.NewReplacer("view_name", t.rows, "snap_name", t.shots).Replace(text))
}

// both is sql for a statement on two editions.
func (t tables) both(text string, next tables) string {
	return t.sql(strings.ReplaceAll(text, "next_name", next.rows))
}

var (
	//go:embed sql/create_view.sql
	createView string
	//go:embed sql/create_snapshots.sql
	createSnapshots string
	//go:embed sql/view_columns.sql
	viewColumns string
	//go:embed sql/add_fingerprint.sql
	addFingerprint string
	//go:embed sql/first_edition.sql
	firstEdition string
)

// Prepare creates the tables of the view where they are not there: view_<Name> for
// its rows, next_<Name> for those of a rebuild, snap_<Name> for snapshots.
func (v View[S]) Prepare(ctx context.Context, s *eventstore.Store) error {
	if err := v.check(); err != nil {
		return err
	}
	live, next := v.tables(s), v.next(s)
	for _, one := range []struct {
		table, create string
	}{{live.rows, live.unqualified(createView)}, {next.rows, next.unqualified(createView)}, {live.shots, live.unqualified(createSnapshots)}} {
		if err := ensure(ctx, s, one.table, one.create); err != nil {
			return fmt.Errorf("create the tables of view %s: %w", v.Name, err)
		}
	}
	if err := live.ensureWritten(ctx); err != nil {
		return fmt.Errorf("make view %s ready for writes past the engine: %w", v.Name, err)
	}
	if _, err := s.Pool().Exec(ctx, s.Qualify(firstEdition), v.Name, v.Schema); err != nil {
		return fmt.Errorf("note the edition of view %s: %w", v.Name, err)
	}
	if v.Inline {
		s.AddInline(v.Name, inline[S]{v, s})
	}
	return nil
}

func (t tables) unqualified(text string) string {
	return strings.NewReplacer("view_name", t.rows, "snap_name", t.shots).Replace(text)
}

// ensure creates a table, or brings one of an earlier version of this package up to
// date. It asks first, so that a role without the right to create can run.
func ensure(ctx context.Context, s *eventstore.Store, table, create string) error {
	var there, current bool
	if err := s.Pool().QueryRow(ctx, s.Qualify(viewColumns), table).Scan(&there, &current); err != nil {
		return err
	}
	switch {
	case !there:
		return s.Create(ctx, create)
	case !current:
		return s.Create(ctx, strings.ReplaceAll(addFingerprint, "view_name", table))
	}
	return nil
}
