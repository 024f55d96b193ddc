package eventstore

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// SchemaError says that a schema is not what this program needs and that the store
// was opened with NoMigrate.
type SchemaError struct {
	Schema string
	// Applied is how many migrations the schema has seen, Known how many there
	// are.
	Applied, Known int
}

func (e *SchemaError) Error() string {
	if e.Applied == 0 {
		return fmt.Sprintf("there is no store in schema %q of this database: create it with weir migrate up, or name another schema", e.Schema)
	}
	return fmt.Sprintf("schema %q is at migration %d, this program needs %d: bring it up to date with weir migrate up", e.Schema, e.Applied, e.Known)
}

// checkSchema is Migrate for those who only look.
func (s *Store) checkSchema(ctx context.Context) error {
	applied, err := s.history(ctx)
	if err != nil {
		return err
	}
	all := migrations()
	todo, err := pending(all, applied)
	if err == nil && len(todo) > 0 {
		err = &SchemaError{s.config.Schema, len(applied), len(all)}
	}
	if err != nil {
		return fmt.Errorf("open store: %w", err)
	}
	return nil
}

// What became of a migration in a schema.
const (
	MigrationApplied = "applied"
	MigrationPending = "pending"
	// MigrationDiffers: it was applied with another text than this program has.
	MigrationDiffers = "differs"
	// MigrationUnknown: a newer program applied it.
	MigrationUnknown = "unknown"
)

// Migration is one step of a schema.
type Migration struct {
	Number int
	Name   string
	// Checksum is the SHA-256 of the text as it was applied, in hex; of a
	// pending one, of the text that this program has.
	Checksum string
	// State is one of the constants above.
	State string
	// Applied is when it was done; zero when it was not.
	Applied time.Time
}

// Migrations tells what was done to the schema of a store and what is still to be
// done. It changes nothing and works where there is no schema yet.
func Migrations(ctx context.Context, config Config) (all []Migration, err error) {
	err = reach(ctx, config, func(s *Store) error {
		applied, err := s.history(ctx)
		all = compare(migrations(), applied)
		return err
	})
	return all, err
}

func compare(known, applied []migration) (all []Migration) {
	for i, a := range applied {
		state := MigrationApplied
		switch {
		case i >= len(known):
			state = MigrationUnknown
		case known[i].Number != a.Number || known[i].Checksum != a.Checksum:
			state = MigrationDiffers
		}
		all = append(all, Migration{a.Number, a.Name, a.Checksum, state, a.at.UTC()})
	}
	for _, k := range known[min(len(applied), len(known)):] {
		all = append(all, Migration{Number: k.Number, Name: k.Name, Checksum: k.Checksum, State: MigrationPending})
	}
	return all
}

// MigrationSQL is what Migrate would do to the schema now, as one transaction to
// be run by somebody with more rights, or nothing when it is up to date. Run after
// the schema has changed meanwhile it fails and changes nothing.
func MigrationSQL(ctx context.Context, config Config) (text string, err error) {
	err = reach(ctx, config, func(s *Store) (err error) {
		text, err = s.pendingSQL(ctx)
		return err
	})
	return text, err
}

// reach lends a store whose schema was not looked at.
func reach(ctx context.Context, config Config, act func(*Store) error) error {
	s, err := prepare(config)
	if err != nil {
		return err
	}
	defer s.Close()
	if err := s.connect(ctx); err != nil {
		return err
	}
	return act(s)
}

func (s *Store) pendingSQL(ctx context.Context) (string, error) {
	applied, err := s.history(ctx)
	if err != nil {
		return "", err
	}
	todo, err := pending(migrations(), applied)
	if err != nil || len(todo) == 0 {
		return "", err
	}
	there, err := hasSchema(ctx, s.pool, s.config.Schema)
	if err != nil {
		return "", fmt.Errorf("look for schema %q: %w", s.config.Schema, err)
	}
	return s.script(todo, there), nil
}

// script does what migrate does, in the same order.
func (s *Store) script(todo []migration, hasSchema bool) string {
	var b strings.Builder
	fmt.Fprintf(&b, "begin;\nselect pg_advisory_xact_lock(%d);\n\n", migrationLock(s.config.Schema))
	if !hasSchema {
		fmt.Fprintf(&b, "create schema %s;\n\n", pgx.Identifier{s.config.Schema}.Sanitize())
	}
	b.WriteString(strings.TrimSpace(s.sql.CreateMigrations) + ";\n\n")
	for _, m := range todo {
		fmt.Fprintf(&b, "-- Migration %04d_%s.\n%s\n\n", m.Number, m.Name, strings.TrimSpace(s.Qualify(m.text)))
		b.WriteString(s.Qualify(fmt.Sprintf("insert into weir.migrations (number, name, checksum) values (%d, '%s', '%s');\n\n", m.Number, m.Name, m.Checksum)))
	}
	b.WriteString(s.Qualify(fmt.Sprintf("insert into weir.settings (shards) values (%d) on conflict do nothing;\n", s.config.Shards)))
	b.WriteString("commit;\n")
	return b.String()
}
