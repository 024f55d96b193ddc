package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/weir-es/weir/examples/loans/xes"
)

// TestOperate_LooksAfterWhatARunLeft, with the database alone: what the run stored is
// verified, explained, looked back at and mended.
func TestOperate_LooksAfterWhatARunLeft(t *testing.T) {
	database := newDatabase(t)
	t.Setenv("WEIR_POSTGRES", database)
	path := filepath.Join(t.TempDir(), "log.xes")
	var file bytes.Buffer
	if err := xes.Write(&file, generate(12, 30)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, file.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(want int, args ...string) string {
		t.Helper()
		var stdout bytes.Buffer
		if status := execute(t.Context(), append([]string{"-log", path}, args...), &stdout, t.Output()); status != want {
			t.Fatalf("%q: status %d, want %d\n%s", args, status, want, &stdout)
		}
		return stdout.String()
	}
	has := func(text string, parts ...string) {
		t.Helper()
		for _, part := range parts {
			if !strings.Contains(text, part) {
				t.Errorf("%q is not in\n%s", part, text)
			}
		}
	}
	t.Setenv("WEIR_NATS", startNATS(t).URL())
	run(exitDone)
	t.Setenv("WEIR_NATS", "nats://127.0.0.1:1")

	has(run(exitDone, "ops", "views", "-o", "json"), `"view":"activity"`, `"view":"trace"`)
	has(run(exitDone, "ops", "verify", "trace", "-o", "json"), `"view":"trace","ok":true,"rows":30,`)
	has(run(exitDone, "ops", "verify"), "activity  ok")
	has(run(exitDone, "ops", "explain", "trace", "case-loan 10000"), "loan.A_SUBMITTED")
	has(run(exitDone, "ops", "rewind", "trace", "case-loan 10000", "--to", "1", "-o", "json"), `{"events":1,"last":"A_SUBMITTED`)
	scribble(t, database)
	has(run(exitFailed, "ops", "verify", "trace"), `- "case-loan 10000" differs in its state`)
	has(run(exitDone, "ops", "rebuild", "trace", "--yes", "-o", "json"), `"changed":1`)
	has(run(exitDone, "ops", "verify", "trace"), "trace  ok")
}

// scribble changes a row behind the back of the view.
func scribble(t *testing.T, database string) {
	t.Helper()
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, database)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	var table string
	if err := conn.QueryRow(ctx, "select oid::regclass::text from pg_class where relname = 'view_trace'").Scan(&table); err != nil {
		t.Fatal(err)
	}
	tag, err := conn.Exec(ctx, "update "+table+` set state = '{}' where key = 'case-loan 10000'`)
	if err != nil || tag.RowsAffected() != 1 {
		t.Fatalf("%s: %v", tag, err)
	}
}
