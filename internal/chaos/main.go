// Command chaos does to an event store what a bad day does, counts what its readers
// were given, and compares that with what is stored: how it is written to, read and
// disturbed lives here, one scenario a file. What is proven lives in the rooms.
//
//	go run ./internal/chaos -run horizon -seed 1 -seconds 20 -json
//	go run ./internal/chaos -run all -instances 4 -seed 1 -seconds 60 -json
//	go run ./internal/chaos -run points -json
//	go run ./internal/chaos -run fan-in -producers 5 -events 50000 -skew 2s -delay 0..2s -seed 1 -json
//
// It starts servers of its own. It exits with 1 when something was lost, came twice
// or out of order, or made a read model wrong.
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

	"github.com/weir-es/weir"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := start(ctx); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		stop()
		os.Exit(1)
	}
}

// start is what this process is for.
func start(ctx context.Context) error {
	if play, ok := roles[os.Getenv(childVariable)]; ok {
		return playRole(ctx, play, os.Stdin, os.Stdout)
	}
	if isChild() {
		return produce(ctx, os.Stdin, os.Stdout)
	}
	return run(ctx, os.Args[1:], os.Stdout)
}

// scenario is one kind of bad day.
type scenario struct {
	name, about string
	play        func(context.Context, options) (outcome, error)
}

// outcome is what came of it. It is worth printing even if it is a complaint.
type outcome interface {
	print(io.Writer, options) error
	complaint() error
}

var scenarios = []scenario{
	{"horizon", "16 writers of every kind against readers of every kind: nothing is skipped", horizon},
	{"last", "the same against a reader that follows the last position drawn, to see what the horizon is for", last},
	{"fan-in", "processes with wrong clocks publish to shared streams, late and out of order: every row is a sorted fold", fanIn},
	{"all", "processes, servers and links that fail in every way: what was promised is stored, and every read model is its fold", all},
	{"failover", "instances are killed, and others stopped cleanly: how long it takes until somebody goes on with what they had", handOver},
	{"zombie", "an owner is stopped inside its transaction for 15 s, another takes over: its write is refused", zombie},
	{"points", "processes kill themselves at every named point between two steps: somebody goes on, and nothing is lost or done twice", sweep},
	{"stall", "leases are given back while the link to the broker stalls: somebody works on each of them afterwards", stall},
}

// options are the flags.
type options struct {
	name    string
	seed    uint64
	seconds float64
	json    bool

	// Of fan-in.
	producers, events, rate, turns int
	skew                           time.Duration
	delay                          span
	windows                        string
	observe                        bool

	// Of all and failover.
	allOptions
}

func (o options) length() time.Duration { return time.Duration(o.seconds * float64(time.Second)) }

func parse(args []string) (o options, err error) {
	flags := flag.NewFlagSet("chaos", flag.ContinueOnError)
	flags.StringVar(&o.name, "run", "horizon", "what to run")
	flags.Uint64Var(&o.seed, "seed", 1, "throws the dice of all actors; their timing stays the machine's")
	flags.Float64Var(&o.seconds, "seconds", 20, "how long to write, but for fan-in")
	flags.BoolVar(&o.json, "json", false, "print one JSON object")
	o.fanInFlags(flags)
	o.allOptions.flags(flags)
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
	return o, o.check()
}

func (o *options) fanInFlags(flags *flag.FlagSet) {
	o.delay = span{0, 2 * time.Second}
	flags.IntVar(&o.producers, "producers", 5, "fan-in: how many processes publish")
	flags.IntVar(&o.events, "events", 50_000, "fan-in: how many events they publish together")
	flags.IntVar(&o.rate, "rate", 1250, "fan-in: events in a second, together")
	flags.IntVar(&o.turns, "turns", 7, "fan-in: in how many groups streams take turns of a second of being busy; 1 is no rest for any")
	flags.DurationVar(&o.skew, "skew", 2*time.Second, "fan-in: how far clocks are ahead or behind at most")
	flags.Var(&o.delay, "delay", "fan-in: how long each message is held back, drawn from this range")
	flags.StringVar(&o.windows, "windows", "adaptive", "fan-in: those of the inbox: adaptive, fixed or off")
	flags.BoolVar(&o.observe, "observe", true, "fan-in: producers observe each other's ids")
}

// maxSkew keeps the ids of the fastest clock within what the slowest one takes for
// possible.
const maxSkew = weir.MaxAhead / 3

func (o options) check() error {
	_, isPolicy := policies[o.windows]
	switch {
	case o.seconds < 1 || o.seconds > 3600:
		return errors.New("-seconds must be between 1 and 3600")
	case o.producers < 1 || o.producers > 50:
		return errors.New("-producers must be between 1 and 50")
	case o.events < o.producers || o.events > 10_000_000:
		return errors.New("-events must be between one for each producer and 10000000")
	case o.rate < 1 || o.rate > 100_000:
		return errors.New("-rate must be between 1 and 100000")
	case o.turns < 1 || o.turns > fanStreams:
		return fmt.Errorf("-turns must be between 1 and %d", fanStreams)
	case o.skew < 0 || o.skew > maxSkew:
		return fmt.Errorf("-skew must be between 0 and %s", maxSkew)
	case !isPolicy:
		return fmt.Errorf("-windows are adaptive, fixed or off, not %q", o.windows)
	}
	return o.allOptions.check()
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
