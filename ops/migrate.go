package ops

import (
	"context"
	"io"
	"time"

	"github.com/weir-es/weir/eventstore"
)

// Schema is the state of the tables of a store.
type Schema struct {
	Schema string `json:"schema"`
	// Pending is how many migrations are still to be done.
	Pending    int            `json:"pending"`
	Migrations []MigrationRow `json:"migrations"`
}

// MigrationRow is one step.
type MigrationRow struct {
	Number   int       `json:"number"`
	Name     string    `json:"name"`
	State    string    `json:"state"`
	Applied  time.Time `json:"applied,omitzero"`
	Checksum string    `json:"checksum"`
}

func (s Schema) table() (rows []any) {
	for _, m := range s.Migrations {
		rows = append(rows, m)
	}
	return rows
}

// isForeign reports whether the schema was made by another program than this.
func (s Schema) isForeign() bool {
	for _, m := range s.Migrations {
		if m.State == eventstore.MigrationDiffers || m.State == eventstore.MigrationUnknown {
			return true
		}
	}
	return false
}

// MigrateUp creates the tables of a store or brings them up to date. Safe to
// repeat, and for any number of programs at once.
func MigrateUp(ctx context.Context, config eventstore.Config) (Schema, error) {
	config.NoMigrate = false
	store, err := eventstore.Open(ctx, config)
	if err != nil {
		return Schema{}, err
	}
	store.Close()
	return MigrateStatus(ctx, config)
}

// MigrateStatus says what is applied and what is pending. It changes nothing.
func MigrateStatus(ctx context.Context, config eventstore.Config) (Schema, error) {
	migrations, err := eventstore.Migrations(ctx, config)
	if err != nil {
		return Schema{}, err
	}
	s := Schema{Schema: config.Schema}
	if s.Schema == "" {
		s.Schema = "weir"
	}
	for _, m := range migrations {
		if m.State == eventstore.MigrationPending {
			s.Pending++
		}
		s.Migrations = append(s.Migrations, MigrationRow{m.Number, m.Name, m.State, m.Applied, m.Checksum})
	}
	return s, nil
}

type migrateVerbs struct {
	Up     migrateUp     `cmd:"" help:"Do what is pending."`
	Status migrateStatus `cmd:"" help:"Say what is applied and what is pending."`
	SQL    migrateSQL    `cmd:"" name:"sql" help:"Print what is pending as SQL, for somebody with more rights to run."`
}

type migrateUp struct {
	Shards int `placeholder:"N" help:"How many groups of streams a new store has; fixed from then on. Default 32."`
}

func (m *migrateUp) run(ctx context.Context, s *session) error {
	c, err := s.config()
	if err != nil {
		return err
	}
	c.Shards = m.Shards
	schema, err := MigrateUp(ctx, c)
	if err != nil {
		return err
	}
	return s.out.print(schema)
}

type migrateStatus struct{}

func (*migrateStatus) run(ctx context.Context, s *session) error {
	c, err := s.config()
	if err != nil {
		return err
	}
	schema, err := MigrateStatus(ctx, c)
	if err != nil {
		return &unableError{err}
	}
	if err := s.out.print(schema); err != nil || !schema.isForeign() {
		return err
	}
	return errProblems
}

type migrateSQL struct {
	Shards int `placeholder:"N" help:"How many groups of streams a new store has; fixed from then on. Default 32."`
}

// script is SQL as a result.
type script struct {
	SQL string `json:"sql"`
}

func (m *migrateSQL) run(ctx context.Context, s *session) error {
	c, err := s.config()
	if err != nil {
		return err
	}
	c.Shards = m.Shards
	text, err := eventstore.MigrationSQL(ctx, c)
	if err != nil {
		return err
	}
	if s.out.asJSON {
		return s.out.print(script{text})
	}
	if text == "" {
		text = "-- Nothing is pending.\n"
	}
	_, err = io.WriteString(s.out.w, text)
	return err
}
