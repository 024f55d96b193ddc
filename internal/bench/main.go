// Command bench measures what Weir costs over the least native code that does
// the same work: each benchmark runs a twin of raw pgx, nats.go or plain Go in
// the same process, against the same servers, in alternating rounds. The measured
// paths and their twins live here, one file each; what they measure lives in the
// rooms, and docs/benchmarks.md says what came out.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		stop()
		os.Exit(1)
	}
}

// options are the flags.
type options struct {
	names   string
	json    bool
	rounds  int
	scale   float64
	profile string
}

func parse(args []string) (o options, err error) {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.StringVar(&o.names, "run", "all", "what to run: names or their first parts with commas between, or all")
	flags.BoolVar(&o.json, "json", false, "print one JSON object per line")
	flags.IntVar(&o.rounds, "rounds", 5, "how often each side runs; medians are reported")
	flags.Float64Var(&o.scale, "scale", 1, "multiplies the number of items of a round")
	flags.StringVar(&o.profile, "profile", "", "a `folder` for CPU profiles of what is measured, one per side and round")
	flags.Usage = func() {
		fmt.Fprintln(flags.Output(), "usage: bench [flags]; the benchmarks are", list(benchmarks)+", and by themselves latency and scale")
		flags.PrintDefaults()
	}
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("what does %q mean? Names come after -run", flags.Arg(0))
	}
	if o.rounds < 1 || o.scale <= 0 {
		return o, errors.New("-rounds and -scale must be above zero")
	}
	return o, nil
}

// run runs the benchmarks that args name, against servers that wait for the disk.
func run(ctx context.Context, args []string, out io.Writer) (err error) {
	o, err := parse(args)
	if err != nil {
		return err
	}
	l := newLab(ctx, true)
	defer func() { err = errors.Join(err, l.close()) }()
	switch o.names {
	case "latency":
		return runLatency(ctx, l, o, out)
	case "scale":
		return runScale(ctx, l, o, out)
	}
	chosen, err := choose(benchmarks, o.names)
	if err != nil {
		return err
	}
	for _, b := range chosen {
		r, err := b.run(ctx, l, o)
		if err != nil {
			return fmt.Errorf("%s: %w", b.name, err)
		}
		if err := r.print(out, o.json); err != nil {
			return err
		}
	}
	return nil
}
