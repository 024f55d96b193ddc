// Command loans runs the whole of Weir on the log of a real process: it reads
// loan applications from an event log, lets three systems publish what happened
// to them through JetStream, stores every event once in PostgreSQL, folds two
// read models and shows what they say.
//
//	go run ./examples/loans
//	go run ./examples/loans -log bpic2012.xes.gz -duplicate 0.05 -jitter 200ms -kill 3
//
// Messages may be sent twice, overtake each other, and the app may be killed in
// the middle: the numbers stay the same. Without -log it makes a log up. It brings
// its own servers, unless WEIR_POSTGRES and WEIR_NATS name some.
//
// What it leaves in a database that lasts can be looked at and mended afterwards with
// "ops" and a verb, behind the flags that name the log:
//
//	export WEIR_POSTGRES=postgres://weir:weir@127.0.0.1:5432/weir
//	go run ./examples/loans -jitter 2s
//	go run ./examples/loans ops views
//	go run ./examples/loans ops verify trace
//	go run ./examples/loans ops explain trace 'case-loan 10000' # what made that row
//	go run ./examples/loans ops rewind trace 'case-loan 10000' --to 3
//	go run ./examples/loans ops rebuild trace
//
// What lives here is the example: the command, its messages, views and numbers.
// How a log is read lives in xes.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/weir-es/weir/devserver"
	"github.com/weir-es/weir/ops"
)

// Exit statuses.
const (
	exitDone        = 0
	exitFailed      = 1
	exitUsage       = 2
	exitInterrupted = 130
)

// options are the flags.
type options struct {
	log       string
	duplicate float64
	jitter    time.Duration
	seed      uint64
	kill      int
	json      bool
	// ops is the command line behind the word "ops"; nil: to run the log.
	ops []string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(execute(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// execute is the command: results go to stdout, everything else to stderr.
func execute(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, err := parse(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return exitDone
	}
	if err != nil {
		return exitUsage
	}
	if o.ops != nil {
		return operate(ctx, o, stdout, stderr)
	}
	result, err := load(ctx, o, stderr)
	switch {
	case ctx.Err() != nil:
		fmt.Fprintln(stderr, "loans: stopped before the end; what is stored stays")
		return exitInterrupted
	case err != nil:
		fmt.Fprintln(stderr, "loans:", oneLine(err))
		return exitFailed
	}
	if err := print(stdout, result, o.json); err != nil {
		fmt.Fprintf(stderr, "loans: write the result: %v\n", err)
		return exitFailed
	}
	return exitDone
}

// oneLine is an error without the line breaks that drivers put into theirs.
func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

func parse(args []string, stderr io.Writer) (o options, err error) {
	flags := flag.NewFlagSet("loans", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&o.log, "log", "", "event log in XES, plain or gzip (default a made-up one)")
	flags.Float64Var(&o.duplicate, "duplicate", 0.01, "share of the messages that is published twice, 0 to 1")
	flags.DurationVar(&o.jitter, "jitter", 20*time.Millisecond, "hold each message back for a random time up to this")
	flags.Uint64Var(&o.seed, "seed", 1, "of everything random")
	flags.IntVar(&o.kill, "kill", 0, "how often the app is killed in the middle and started again")
	flags.BoolVar(&o.json, "json", false, "print one JSON object")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	rest := flags.Args()
	if len(rest) > 0 && rest[0] == "ops" {
		o.ops, rest = rest[1:], nil
	}
	if err := o.check(rest); err != nil {
		fmt.Fprintf(stderr, "loans: %v\n", err)
		return o, err
	}
	return o, nil
}

// Limits of the flags.
const (
	maxJitter = time.Minute
	maxKills  = 100
)

func (o options) check(rest []string) error {
	switch {
	case len(rest) > 0:
		return fmt.Errorf("unexpected argument %q: a log is given as -log FILE", rest[0])
	case !(o.duplicate >= 0 && o.duplicate <= 1):
		return fmt.Errorf("-duplicate %v is not between 0 and 1", o.duplicate)
	case o.jitter < 0 || o.jitter > maxJitter:
		return fmt.Errorf("-jitter %s is not between 0 and %s", o.jitter, maxJitter)
	case o.kill < 0 || o.kill > maxKills:
		return fmt.Errorf("-kill %d is not between 0 and %d", o.kill, maxKills)
	}
	return nil
}

// generatedCases is how many cases a made-up log has.
const generatedCases = 2000

func (o options) source() (source, error) {
	if o.log == "" {
		return generatedSource(o.seed, generatedCases)
	}
	return fileSource(o.log)
}

// load checks the log, starts what servers are missing and runs everything on
// them.
func load(ctx context.Context, o options, stderr io.Writer) (result Result, err error) {
	log, err := o.source()
	if err != nil {
		return Result{}, err
	}
	found, err := log.check(ctx)
	if err != nil {
		return Result{}, err
	}
	servers, err := devserver.Start(ctx)
	if err != nil {
		return Result{}, fmt.Errorf("start servers: %w", err)
	}
	defer func() { err = errors.Join(err, servers.Close()) }()

	display := newDisplay(stderr, found.Events)
	run := &run{
		options:  o,
		log:      log,
		found:    found,
		postgres: servers.Postgres,
		nats:     servers.NATS,
		logger:   slog.New(slog.NewTextHandler(display, &slog.HandlerOptions{Level: slog.LevelWarn})),
		display:  display,
	}
	return run.all(ctx)
}

// operate runs a verb of the operator's on what an earlier run of the same log left.
// It needs the database alone.
func operate(ctx context.Context, o options, stdout, stderr io.Writer) int {
	program, err := o.program(ctx)
	if ctx.Err() != nil {
		fmt.Fprintln(stderr, "loans: interrupted")
		return exitInterrupted
	}
	if err != nil {
		fmt.Fprintln(stderr, "loans:", oneLine(err))
		return exitFailed
	}
	program.Name, program.Stdout, program.Stderr = "loans ops", stdout, stderr
	return program.Run(ctx, o.ops)
}

func (o options) program(ctx context.Context) (ops.Program, error) {
	log, err := o.source()
	if err != nil {
		return ops.Program{}, err
	}
	found, err := log.check(ctx)
	if err != nil {
		return ops.Program{}, err
	}
	return ops.Of((&run{found: found}).config())
}

func print(w io.Writer, result Result, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(w).Encode(result)
	}
	return writeTable(w, result)
}
