package ops_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/eventstore"
	"github.com/weir-es/weir/internal/testkit"
	"github.com/weir-es/weir/ops"
)

// TestProgramInAnApplication: the application's own pool and schema, its own name,
// no flags and no variables.
func TestProgramInAnApplication(t *testing.T) {
	s := testkit.Store(t, eventstore.Config{Schema: "boxoffice"})
	t.Setenv("WEIR_POSTGRES", "")
	t.Setenv("WEIR_SCHEMA", "")
	var out, errs bytes.Buffer
	run := func(args ...string) int {
		out.Reset()
		errs.Reset()
		p := ops.Program{Name: "boxoffice ops", Version: "v7", Stdin: strings.NewReader(`{"n":1}`), Stdout: &out, Stderr: &errs,
			Store: eventstore.Config{Pool: s.Pool(), Schema: s.Schema()}}
		return p.Run(testkit.Context(t), args)
	}
	if status := run("append", "a-1", "t", "--expected", "new", "--data", "-"); status != ops.Done {
		t.Fatal(status, errs.String())
	}
	if status := run("append", "a-1", "t", "--expected", "new"); status != ops.Conflict || !strings.HasPrefix(errs.String(), "boxoffice ops: append") {
		t.Error(status, errs.String())
	}
	if status := run("stream", "a-1", "-o", "json"); status != ops.Done || !strings.Contains(out.String(), `"metadata":{"producer":"boxoffice ops"},"data":{"n":1}}`) {
		t.Error(status, out.String())
	}
	if status := run("version", "-o", "json"); status != ops.Done || !strings.Contains(out.String(), `"name":"boxoffice ops","version":"v7"`) {
		t.Error(status, out.String())
	}
	if status := run("migrate", "status", "-o", "json"); status != ops.Done || !strings.Contains(out.String(), `"schema":"boxoffice","pending":0`) {
		t.Error(status, out.String())
	}
	if status := run("completion", "bash"); status != ops.Done ||
		!strings.Contains(out.String(), `boxoffice ops __complete "${COMP_WORDS[@]:2:COMP_CWORD-2+1}"`) || !strings.Contains(out.String(), "-F _boxoffice_ops_complete boxoffice\n") {
		t.Error(status, out.String())
	}
	if status := run("--help"); status != ops.Done || !strings.Contains(out.String(), "Default boxoffice") {
		t.Error(status, out.String())
	}
	if s.Pool().Ping(testkit.Context(t)) != nil {
		t.Error("the pool of the application was closed")
	}
}

// TestInterrupted: a verb that is told to stop before it is done says so with its
// status.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	s := testkit.Store(t, eventstore.Config{})
	tx, err := s.Pool().Begin(testkit.Context(t))
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	if _, err := s.AppendTx(testkit.Context(t), tx, eventstore.Append{Stream: "a-1", Expected: weir.NewStream, Messages: []weir.Message{numbered(1)}}); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(testkit.Context(t))
	var out, errs bytes.Buffer
	status := make(chan int)
	go func() {
		p := ops.Program{Stdout: &out, Stderr: &errs, Store: eventstore.Config{Pool: s.Pool()}}
		status <- p.Run(ctx, []string{"doctor", "--patience", "2m"})
	}()
	testkit.Await(t, 20*time.Second, "the doctor looks at who is in flight", func() bool {
		var n int
		err := s.Pool().QueryRow(testkit.Context(t), "select count(*) from pg_stat_activity where datname = current_database() and query like '-- Who is in flight%'").Scan(&n)
		return err == nil && n > 0
	})
	stop()
	if got := <-status; got != ops.Interrupted || errs.String() != "weir: interrupted\n" || out.String() != "" {
		t.Errorf("status %d, %q, %q", got, errs.String(), out.String())
	}
}

// TestImportIsInterrupted while it waits for more, says how far it came, and goes on
// when it is run again.
func TestImportIsInterrupted(t *testing.T) {
	t.Parallel()
	s := testkit.Store(t, eventstore.Config{})
	ctx, stop := context.WithCancel(testkit.Context(t))
	stdin, source := io.Pipe()
	var out, errs bytes.Buffer
	status := make(chan int)
	go func() {
		p := ops.Program{Stdin: stdin, Stdout: &out, Stderr: &errs, Store: eventstore.Config{Pool: s.Pool()}}
		status <- p.Run(ctx, []string{"import", "--batch", "1"})
	}()
	line := func(n int) string {
		return fmt.Sprintf(`{"id":"01ARZ3NDEKTSV4RRFFQ69G5FB%d","stream":"x-1","type":"t","data":{}}`+"\n", n)
	}
	for n := range 4 {
		if _, err := io.WriteString(source, line(n)); err != nil {
			t.Fatal(err)
		}
	}
	testkit.Await(t, 20*time.Second, "something is stored", func() bool {
		c, err := s.Counts(testkit.Context(t))
		return err == nil && c.Events > 0
	})
	stop()
	if got := <-status; got != ops.Interrupted || !strings.Contains(errs.String(), "run it again to go on\nweir: interrupted\n") || out.String() != "" {
		t.Errorf("status %d, %q, %q", got, errs.String(), out.String())
	}
	source.Close()
	p := ops.Program{Stdin: strings.NewReader(line(0) + line(1) + line(2) + line(3) + line(4)), Stdout: &out, Stderr: &errs, Store: eventstore.Config{Pool: s.Pool()}}
	if got := p.Run(testkit.Context(t), []string{"import"}); got != ops.Done {
		t.Errorf("status %d: %s", got, errs.String())
	}
	if c, err := s.Counts(testkit.Context(t)); err != nil || c.Events != 5 {
		t.Errorf("%+v, %v", c, err)
	}
}

// TestVerbsAreFunctions with typed errors, for programs that need no command line.
func TestVerbsAreFunctions(t *testing.T) {
	t.Parallel()
	ctx := testkit.Context(t)
	config := eventstore.Config{URL: testkit.Empty(t)}
	before, err := ops.MigrateStatus(ctx, config)
	if err != nil || before.Pending != len(before.Migrations) || before.Pending < 2 {
		t.Fatalf("%+v, %v", before, err)
	}
	after, err := ops.MigrateUp(ctx, config)
	if err != nil || after.Pending != 0 || len(after.Migrations) != before.Pending {
		t.Fatalf("%+v, %v", after, err)
	}
	s := testkit.Store(t, config)
	row, err := ops.Append(ctx, s, ops.AppendOptions{Stream: "a-1", Type: "t", Data: []byte(`1`), Expected: weir.NewStream})
	if err != nil || row.Position != 1 || row.Version != 1 {
		t.Errorf("%+v, %v", row, err)
	}
	if _, err := ops.Append(ctx, s, ops.AppendOptions{Stream: "a-1", Type: "t", Data: []byte(`1`), Expected: 7}); !errors.Is(err, weir.ErrConflict) {
		t.Error(err)
	}
	for _, err := range ops.Stream(ctx, s, ops.StreamOptions{Stream: "b-1"}) {
		if !errors.Is(err, weir.ErrNotFound) {
			t.Error(err)
		}
	}
	for head, err := range ops.Streams(ctx, s, ops.StreamsOptions{}) {
		if err != nil || head.Stream != "a-1" || head.ID != row.ID {
			t.Errorf("%+v, %v", head, err)
		}
	}
	checkup, err := ops.Doctor(ctx, s, ops.DoctorOptions{})
	if err != nil || !checkup.OK || len(checkup.Checks) == 0 {
		t.Errorf("%+v, %v", checkup, err)
	}
	if text, err := json.Marshal(checkup); err != nil || !strings.HasPrefix(string(text), `{"ok":true,"checks":[{"check":"schema"`) {
		t.Errorf("%s, %v", text, err)
	}
}
