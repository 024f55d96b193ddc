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
	if err := o.check(flags.Args()); err != nil {
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

func print(w io.Writer, result Result, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(w).Encode(result)
	}
	return writeTable(w, result)
}
