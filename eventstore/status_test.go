package eventstore_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-es/weir/eventstore"
	"github.com/weir-es/weir/internal/testkit"
)

// states are the states of the migrations, in order.
func states(t *testing.T, config eventstore.Config) (all []string) {
	t.Helper()
	migrations, err := eventstore.Migrations(testkit.Context(t), config)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range migrations {
		all = append(all, m.State)
		if (m.State == eventstore.MigrationPending) != m.Applied.IsZero() || m.Checksum == "" {
			t.Errorf("%+v", m)
		}
	}
	return all
}

// TestLookingMigratesNothing: a store that is opened with NoMigrate wants what
// this program needs, and says how to get it.
func TestLookingMigratesNothing(t *testing.T) {
	t.Parallel()
	config := eventstore.Config{URL: testkit.Empty(t), NoMigrate: true}
	_, err := eventstore.Open(testkit.Context(t), config)
	var wrong *eventstore.SchemaError
	if !errors.As(err, &wrong) || wrong.Applied != 0 || wrong.Known < 2 || !strings.Contains(err.Error(), "weir migrate up") {
		t.Fatalf("without a schema: %v", err)
	}
	for _, state := range states(t, config) {
		if state != eventstore.MigrationPending {
			t.Errorf("a migration is %s before there is a schema", state)
		}
	}
	admin := testkit.Store(t, eventstore.Config{URL: config.URL})
	exec(t, admin, "delete from weir.migrations where number > 1")
	if _, err = eventstore.Open(testkit.Context(t), config); !errors.As(err, &wrong) || wrong.Applied != 1 {
		t.Errorf("with an older schema: %v", err)
	}
	if got := states(t, config); got[0] != eventstore.MigrationApplied || got[1] != eventstore.MigrationPending {
		t.Errorf("states of an older schema: %s", got)
	}
	exec(t, admin, "insert into weir.migrations (number, name, checksum) select n, 'x', 'x' from generate_series(2, $1) n", wrong.Known+1)
	if got := states(t, config); got[1] != eventstore.MigrationDiffers || got[wrong.Known] != eventstore.MigrationUnknown {
		t.Errorf("states of a foreign schema: %s", got)
	}
	if _, err = eventstore.Open(testkit.Context(t), config); err == nil || errors.As(err, &wrong) {
		t.Errorf("with a foreign schema: %v", err)
	}
}

// TestMigrationSQLDoesWhatMigrateDoes, in a schema of any name, and only once.
func TestMigrationSQLDoesWhatMigrateDoes(t *testing.T) {
	t.Parallel()
	for _, schema := range []string{"weir", `we"ird Schéma`, "it's", "$1", "weir."} {
		t.Run(schema, func(t *testing.T) {
			t.Parallel()
			ctx := testkit.Context(t)
			config := eventstore.Config{URL: testkit.Empty(t), Schema: schema, Shards: 7, NoMigrate: true}
			script, err := eventstore.MigrationSQL(ctx, config)
			if err != nil {
				t.Fatal(err)
			}
			dba, err := pgx.Connect(ctx, config.URL)
			if err != nil {
				t.Fatal(err)
			}
			defer dba.Close(ctx)
			for again := range 2 {
				_, err := dba.Exec(ctx, script, pgx.QueryExecModeSimpleProtocol)
				if (err == nil) != (again == 0) {
					t.Fatalf("run %d: %v", again, err)
				}
				dba.Exec(ctx, "rollback")
			}
			s := testkit.Store(t, config)
			if appendOne(t, s, "seat-A1").Position != 1 || s.Shards() != 7 {
				t.Errorf("%d shards", s.Shards())
			}
			if again, err := eventstore.MigrationSQL(ctx, config); again != "" || err != nil {
				t.Errorf("still to do: %q, %v", again, err)
			}
			compareSchemas(t, dba, schema)
		})
	}
}

// compareSchemas compares a schema with one that Migrate made beside it.
func compareSchemas(t *testing.T, dba *pgx.Conn, schema string) {
	t.Helper()
	ctx := testkit.Context(t)
	ours := eventstore.Config{URL: dba.Config().ConnString(), Schema: "migrated"}
	s, err := eventstore.Open(ctx, ours)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	const objects = `select coalesce(string_agg(c.relkind::text || c.relname || '.' || coalesce(a.attname, '') || format_type(a.atttypid, a.atttypmod), ',' order by c.relname, a.attnum), '')
	  from pg_class c join pg_namespace n on n.oid = c.relnamespace left join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 where n.nspname = $1`
	var a, b string
	if err := dba.QueryRow(ctx, objects, schema).Scan(&a); err != nil {
		t.Fatal(err)
	}
	if err := dba.QueryRow(ctx, objects, "migrated").Scan(&b); err != nil {
		t.Fatal(err)
	}
	if a != b || len(a) < 1000 {
		t.Errorf("by the script:\n%s\nby Migrate:\n%s", a, b)
	}
}

// TestMigrationSQLFitsTheSchemaThatIsThere: only what is pending, no schema that
// exists already.
func TestMigrationSQLFitsTheSchemaThatIsThere(t *testing.T) {
	t.Parallel()
	ctx := testkit.Context(t)
	config := eventstore.Config{URL: testkit.Database(t), ConnectTimeout: time.Second}
	s := testkit.Store(t, config)
	exec(t, s, "delete from weir.migrations where number > 1")
	script, err := eventstore.MigrationSQL(ctx, config)
	if err != nil || strings.Contains(script, "create schema") || strings.Contains(script, "0001_store") || !strings.Contains(script, "0002_guard") {
		t.Errorf("%v:\n%s", err, script)
	}
}
