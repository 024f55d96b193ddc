package eventstore

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"io/fs"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

// migration is one numbered file, as written for the schema "weir".
type migration struct {
	Number   int
	Name     string
	Checksum string
	text     string
	at       time.Time // when it was applied
}

// migrations are all files in order. They are part of the program: a broken one
// is a broken build, so it panics.
func migrations() (all []migration) {
	entries, err := fs.ReadDir(migrationFiles, "migrations")
	if err != nil {
		panic(err)
	}
	for _, entry := range entries {
		text, err := migrationFiles.ReadFile("migrations/" + entry.Name())
		if err != nil {
			panic(err)
		}
		number, name, _ := strings.Cut(strings.TrimSuffix(entry.Name(), ".sql"), "_")
		n, err := strconv.Atoi(number)
		if err != nil || n != len(all)+1 {
			panic("migration " + entry.Name() + " is out of order")
		}
		sum := sha256.Sum256(text)
		all = append(all, migration{Number: n, Name: name, Checksum: hex.EncodeToString(sum[:]), text: string(text)})
	}
	return all
}

// Migrate creates the schema or brings it up to date, in one transaction under a
// lock, so any number of instances may start at once. A schema that a newer
// program made, or whose history differs, is refused and left alone. Safe to
// repeat; a schema that is up to date needs no right to create anything.
func (s *Store) Migrate(ctx context.Context) error {
	if done, err := s.upToDate(ctx); done || err != nil {
		return err
	}
	err := s.inTx(ctx, func(tx pgx.Tx) error { return s.migrate(ctx, tx) })
	if err != nil {
		return fmt.Errorf("migrate schema %q: %w", s.config.Schema, err)
	}
	s.pool.Reset() // plans made before the change would fail once each
	return nil
}

func (s *Store) upToDate(ctx context.Context) (bool, error) {
	applied, err := s.history(ctx)
	if err != nil {
		return false, err
	}
	todo, err := pending(migrations(), applied)
	return err == nil && len(todo) == 0, err
}

// history is what was done to the schema so far: nothing, if it does not exist.
func (s *Store) history(ctx context.Context) ([]migration, error) {
	applied, err := s.applied(ctx, s.pool)
	if isUndefined(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read migrations of schema %q: %w", s.config.Schema, err)
	}
	return applied, nil
}

func (s *Store) migrate(ctx context.Context, tx pgx.Tx) error {
	schema := pgx.Identifier{s.config.Schema}.Sanitize()
	if _, err := tx.Exec(ctx, "select pg_advisory_xact_lock($1)", migrationLock(s.config.Schema)); err != nil {
		return err
	}
	if err := createSchema(ctx, tx, s.config.Schema, schema); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, s.sql.CreateMigrations); err != nil {
		return err
	}
	applied, err := s.applied(ctx, tx)
	if err != nil {
		return err
	}
	todo, err := pending(migrations(), applied)
	if err != nil {
		return err
	}
	for _, m := range todo {
		if err := s.apply(ctx, tx, m); err != nil {
			return fmt.Errorf("%04d_%s: %w", m.Number, m.Name, err)
		}
	}
	_, err = tx.Exec(ctx, s.Qualify("insert into weir.settings (shards) values ($1) on conflict do nothing"), s.config.Shards)
	return err
}

// Create runs statements that create what a projection needs, in one transaction
// under the lock of migrations, so that any number of instances may start at once.
// "weir." before a name stands for the schema of the store. The statements must be
// safe to repeat.
func (s *Store) Create(ctx context.Context, sql string) error {
	return s.inTx(ctx, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "select pg_advisory_xact_lock($1)", migrationLock(s.config.Schema)); err != nil {
			return err
		}
		_, err := tx.Conn().PgConn().Exec(ctx, s.Qualify(sql)).ReadAll()
		return err
	})
}

// createSchema asks first, since "if not exists" still wants the right to create.
func createSchema(ctx context.Context, tx pgx.Tx, name, quoted string) error {
	there, err := hasSchema(ctx, tx, name)
	if err != nil || there {
		return err
	}
	_, err = tx.Exec(ctx, "create schema "+quoted)
	return err
}

func hasSchema(ctx context.Context, q Querier, name string) (bool, error) {
	rows, err := q.Query(ctx, "select exists (select from pg_namespace where nspname = $1)", name)
	if err != nil {
		return false, err
	}
	return pgx.CollectExactlyOneRow(rows, pgx.RowTo[bool])
}

func (s *Store) apply(ctx context.Context, tx pgx.Tx, m migration) error {
	if _, err := tx.Conn().PgConn().Exec(ctx, s.Qualify(m.text)).ReadAll(); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, s.sql.NoteMigration, m.Number, m.Name, m.Checksum)
	return err
}

func migrationLock(schema string) int64 {
	h := fnv.New64a()
	h.Write([]byte("weir.migrate." + schema))
	return int64(h.Sum64())
}

func (s *Store) applied(ctx context.Context, q Querier) ([]migration, error) {
	rows, err := q.Query(ctx, s.sql.AppliedMigrations)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (m migration, err error) {
		return m, row.Scan(&m.Number, &m.Name, &m.Checksum, &m.at)
	})
}

// pending is what is still to do, or why nothing may be done.
func pending(all, applied []migration) ([]migration, error) {
	if len(applied) > len(all) {
		return nil, fmt.Errorf("the schema is at migration %d, this program knows %d: run a newer version of it", len(applied), len(all))
	}
	for i, a := range applied {
		if a.Number != all[i].Number || a.Checksum != all[i].Checksum {
			return nil, fmt.Errorf("migration %d (%s) was applied with another text than this program has (%s)", a.Number, a.Name, all[i].Name)
		}
	}
	return all[len(applied):], nil
}
