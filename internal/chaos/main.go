// Command chaos does to an event store what a bad day does, counts what its readers
// were given, and compares that with what is stored: how it is written to, read and
// disturbed lives here, one scenario a file. What is proven lives in the rooms.
//
//	go run ./internal/chaos -run horizon -seed 1 -seconds 20 -json
//
// It starts a PostgreSQL of its own. It exits with 1 when something was lost, came
// twice or out of order.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		stop()
		os.Exit(1)
	}
}

// scenario is one kind of bad day.
type scenario struct {
	name, about string
	play        func(context.Context, options) (report, error)
}

var scenarios = []scenario{
	{"horizon", "16 writers of every kind against readers of every kind: nothing is skipped", horizon},
	{"last", "the same against a reader that follows the last position drawn, to see what the horizon is for", last},
}

// options are the flags.
type options struct {
	name    string
	seed    uint64
	seconds float64
	json    bool
}

func (o options) length() time.Duration { return time.Duration(o.seconds * float64(time.Second)) }

func parse(args []string) (o options, err error) {
	flags := flag.NewFlagSet("chaos", flag.ContinueOnError)
	flags.StringVar(&o.name, "run", "horizon", "what to run")
	flags.Uint64Var(&o.seed, "seed", 1, "throws the dice of all actors; their timing stays the machine's")
	flags.Float64Var(&o.seconds, "seconds", 20, "how long to write")
	flags.BoolVar(&o.json, "json", false, "print one JSON object")
	flags.Usage = func() {
		fmt.Fprintln(flags.Output(), "usage: chaos [flags]; the scenarios are")
		for _, s := range scenarios {
			fmt.Fprintf(flags.Output(), "  %-8s %s\n", s.name, s.about)
		}
		flags.PrintDefaults()
	}
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("what does %q mean? Names come after -run", flags.Arg(0))
	}
	if o.seconds < 1 || o.seconds > 3600 {
		return o, errors.New("-seconds must be between 1 and 3600")
	}
	return o, nil
}

func find(name string) (scenario, error) {
	var names []string
	for _, s := range scenarios {
		if s.name == name {
			return s, nil
		}
		names = append(names, s.name)
	}
	return scenario{}, fmt.Errorf("no scenario is called %q; there are %s", name, strings.Join(names, ", "))
}

func run(ctx context.Context, args []string, out io.Writer) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	s, err := find(o.name)
	if err != nil {
		return err
	}
	r, err := s.play(ctx, o)
	if err != nil {
		return fmt.Errorf("%s, seed %d: %w", s.name, o.seed, err)
	}
	if err := r.print(out, o); err != nil {
		return err
	}
	return r.complaint()
}
