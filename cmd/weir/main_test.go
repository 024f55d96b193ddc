package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/devserver"
	"github.com/weir-es/weir/eventstore"
	"github.com/weir-es/weir/internal/testkit"
)

// server is what all scripts share.
var server *devserver.Postgres

// withServer runs the tests with a server.
type withServer struct{ *testing.M }

func (m withServer) Run() int {
	var err error
	server, err = devserver.StartPostgres(context.Background(), devserver.PostgresConfig{
		Settings: map[string]string{"max_prepared_transactions": "10"}})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer server.Close()
	return m.M.Run()
}

func TestMain(m *testing.M) {
	testscript.Main(withServer{m}, map[string]func(){"weir": main})
}

// TestScripts runs testdata/*.txtar, each in an empty database of its own, which
// WEIR_POSTGRES names.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup:               setUp,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": exits, "sql": sql, "hold": hold, "await": await, "as": as,
		},
	})
}

func setUp(env *testscript.Env) error {
	address, err := server.NewDatabase(context.Background())
	env.Setenv("WEIR_POSTGRES", address)
	_, host, _ := strings.Cut(address, "@")
	env.Setenv("HOST", host) // and what comes after it
	env.Setenv("ROLE", "role_"+strings.ToLower(weir.NewID().String()))
	return err
}

// exits runs a program that must end with a status: exits 3 weir append …
func exits(ts *testscript.TestScript, neg bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			ts.Fatalf("%v", err)
		}
		got = exit.ExitCode()
	}
	if got != want {
		ts.Fatalf("%q exited with %d, want %d", args[1:], got, want)
	}
}

func within(ts *testscript.TestScript, act func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	ts.Check(act(ctx))
}

// sql runs statements as the superuser: sql 'delete from weir.events'
func sql(ts *testscript.TestScript, neg bool, args []string) {
	within(ts, func(ctx context.Context) error {
		conn, err := pgx.Connect(ctx, ts.Getenv("WEIR_POSTGRES"))
		if err != nil {
			return err
		}
		defer conn.Close(ctx)
		_, err = conn.Exec(ctx, strings.Join(args, " "), pgx.QueryExecModeSimpleProtocol)
		return err
	})
}

// hold appends in a transaction that stays open until the end of the script.
// $HOLDER is its pid; with a name it is prepared: hold, hold NAME
func hold(ts *testscript.TestScript, neg bool, args []string) {
	within(ts, func(ctx context.Context) error {
		store, err := eventstore.Open(ctx, eventstore.Config{URL: ts.Getenv("WEIR_POSTGRES") + "&application_name=the_holder"})
		if err != nil {
			return err
		}
		ts.Defer(store.Close)
		tx, err := store.Pool().Begin(ctx)
		if err != nil {
			return err
		}
		ts.Defer(func() { tx.Rollback(context.Background()) })
		message := weir.Message{Type: "held", Data: []byte("{}")}
		_, err = store.AppendTx(ctx, tx, eventstore.Append{Stream: "hold-1", Expected: weir.AnyVersion, Messages: []weir.Message{message}})
		if err != nil {
			return err
		}
		ts.Setenv("HOLDER", fmt.Sprint(tx.Conn().PgConn().PID()))
		if len(args) == 1 {
			_, err = tx.Exec(ctx, "prepare transaction '"+args[0]+"'")
		}
		return err
	})
}

// await waits until a file matches: await out.txt 'seat-A1 .*held'
func await(ts *testscript.TestScript, neg bool, args []string) {
	matches := func() bool {
		text, err := os.ReadFile(ts.MkAbs(args[0]))
		return err == nil && regexp.MustCompile(`(?m)`+args[1]).Match(text)
	}
	if !testkit.Within(20*time.Second, matches) {
		ts.Fatalf("%s does not match %q:\n%s", args[0], args[1], ts.ReadFile(args[0]))
	}
}

// as makes the role $ROLE, which may do what is named, and sets $LIMITED to its
// URL: as select, as 'select, insert, update, delete'
func as(ts *testscript.TestScript, neg bool, args []string) {
	role := ts.Getenv("ROLE")
	sql(ts, false, []string{fmt.Sprintf(`create role %[1]s login password 's3cr3t';
		grant usage on schema weir to %[1]s;
		grant %[2]s on all tables in schema weir to %[1]s;
		grant select, usage on all sequences in schema weir to %[1]s`, role, args[0])})
	u, err := url.Parse(ts.Getenv("WEIR_POSTGRES"))
	ts.Check(err)
	u.User = url.UserPassword(role, "s3cr3t")
	ts.Setenv("LIMITED", u.String())
}
