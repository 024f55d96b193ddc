package ops

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/alecthomas/kong"

	"github.com/weir-es/weir/eventstore"
	"github.com/weir-es/weir/projection"
)

// Program is a command line with all verbs. The zero value is the weir program on
// the standard streams.
type Program struct {
	// Name is how users call it, such as "boxoffice ops". Default "weir".
	Name string
	// Version is what the verb version says. Default what the build says.
	Version string
	// Store is where the store is unless flags or variables say otherwise, and
	// how it is to be opened. Default nowhere.
	Store eventstore.Config
	// Projections are the read models of the application, as app.Config has them.
	// verify, explain, rebuild and rewind work on those that are views. Default
	// none.
	Projections []projection.Projection
	// Stdin, Stdout and Stderr default to those of the process.
	Stdin          io.Reader
	Stdout, Stderr io.Writer
}

func (p Program) withDefaults() Program {
	p.Name = cmp.Or(p.Name, "weir")
	if p.Stdin == nil {
		p.Stdin = os.Stdin
	}
	if p.Stdout == nil {
		p.Stdout = os.Stdout
	}
	if p.Stderr == nil {
		p.Stderr = os.Stderr
	}
	return p
}

// grammar is the command line.
type grammar struct {
	Postgres       string        `placeholder:"URL" env:"WEIR_POSTGRES" help:"Where PostgreSQL is. Prefer the variable: command lines are seen by others."`
	Schema         string        `placeholder:"NAME" env:"WEIR_SCHEMA" help:"The schema of the store. Default ${schema}."`
	ConnectTimeout time.Duration `default:"10s" help:"How long to go on trying a server that is not there."`
	Output         string        `short:"o" enum:"table,json" default:"table" help:"table for people, json for programs: an object, or one per line where there are many."`

	Migrate    migrateVerbs      `cmd:"" help:"Create the tables of a store, or bring them up to date."`
	Streams    StreamsOptions    `cmd:"" help:"List streams, in the order of their names."`
	Stream     StreamOptions     `cmd:"" help:"Print the events of a stream."`
	Tail       TailOptions       `cmd:"" help:"Print the end of the log, and follow it."`
	Append     appendCommand     `cmd:"" help:"Append one event to a stream."`
	Import     importCommand     `cmd:"" help:"Store events from lines of JSON, each once."`
	Export     exportCommand     `cmd:"" help:"Write events as lines of JSON."`
	Views      viewsCommand      `cmd:"" help:"List views: how far they are, what they lag behind, what came late."`
	Verify     verifyCommand     `cmd:"" help:"Compare the rows of views with the log."`
	Explain    explainCommand    `cmd:"" help:"Print the events that made a row of a view."`
	Rebuild    rebuildCommand    `cmd:"" help:"Fold the log into a new edition of a view, and swap it in."`
	Rewind     rewindCommand     `cmd:"" help:"Print what a row of a view was at an earlier moment. Nothing is written."`
	Shards     shardsVerbs       `cmd:"" help:"Say who holds which lease, and how far its readers are; take leases away."`
	Parked     parkedVerbs       `cmd:"" help:"Look after streams that views and handlers stopped at."`
	Relay      relayCommand      `cmd:"" help:"Say how far committed events are published, or publish them again."`
	Doctor     DoctorOptions     `cmd:"" help:"Look whether the store is in order, and say what to do where it is not."`
	Version    versionCommand    `cmd:"" help:"Print the version of this program."`
	Completion completionCommand `cmd:"" help:"Print a script that makes a shell complete words of this program."`
}

// verb is a command of the grammar.
type verb interface {
	run(ctx context.Context, s *session) error
}

// Run runs one command line, without the name of the program, and returns the exit
// status; see the constants. It ends when ctx does.
func (p Program) Run(ctx context.Context, args []string) (status int) {
	p = p.withDefaults()
	if len(args) > 0 && args[0] == completeVerb {
		return p.complete(args[1:])
	}
	err := p.run(ctx, args)
	if err == nil {
		return Done
	}
	status = statusOf(ctx, err)
	if !errors.Is(err, errProblems) {
		fmt.Fprintf(p.Stderr, "%s: %s\n", p.Name, explain(ctx, err))
	}
	return status
}

func (p Program) run(ctx context.Context, args []string) error {
	var g grammar
	helped := false
	parser, err := p.parser(&g, func(int) { helped = true })
	if err != nil {
		return err
	}
	parsed, err := parser.Parse(args)
	switch {
	case helped:
		return nil
	case err != nil:
		return p.misused(err)
	}
	s := &session{Program: p, flags: &g, out: newPrinter(p.Stdout, g.Output == "json")}
	err = parsed.Selected().Target.Addr().Interface().(verb).run(ctx, s)
	return errors.Join(err, s.out.flush())
}

func (p Program) parser(g *grammar, exit func(int)) (*kong.Kong, error) {
	return kong.New(g, kong.Name(p.Name), kong.Writers(p.Stdout, p.Stderr), kong.Exit(exit),
		kong.Vars{"schema": cmp.Or(p.Store.Schema, "weir")},
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}), kong.Description(description))
}

const description = `Looks after a Weir event store in PostgreSQL.

Exit status: 0 done, 1 there is a problem or it was refused, 2 it could not be tried, 3 the stream is at another version, 130 interrupted.`

// misused is a command line that cannot be understood.
func (p Program) misused(err error) error {
	name := p.Name
	var parse *kong.ParseError
	if errors.As(err, &parse) && parse.Context.Selected() != nil {
		name = parse.Context.Selected().FullPath()
	}
	return &unableError{fmt.Errorf("%w\nrun %s --help for what there is", err, name)}
}

// session is one run of one verb.
type session struct {
	Program
	flags *grammar
	out   *printer
}

// config says where the store is.
func (s *session) config() (eventstore.Config, error) {
	c := s.Store
	if s.flags.Postgres != "" {
		c.URL, c.Pool = s.flags.Postgres, nil
	}
	c.Schema = cmp.Or(s.flags.Schema, c.Schema)
	c.ConnectTimeout = s.flags.ConnectTimeout
	if c.Logger == nil {
		c.Logger = slog.New(slog.NewTextHandler(redactor{s.Stderr}, &slog.HandlerOptions{Level: slog.LevelWarn}))
	}
	if c.URL == "" && c.Pool == nil {
		return c, &unableError{errors.New("say where PostgreSQL is: set WEIR_POSTGRES to its URL, or give --postgres")}
	}
	return c, nil
}

// open opens the store without changing its schema.
func (s *session) open(ctx context.Context) (*eventstore.Store, error) {
	c, err := s.config()
	if err != nil {
		return nil, err
	}
	c.NoMigrate = true
	store, err := eventstore.Open(ctx, c)
	if err != nil {
		return nil, &unableError{err}
	}
	return store, nil
}

// withStore lends an open store.
func (s *session) withStore(ctx context.Context, act func(*eventstore.Store) error) error {
	store, err := s.open(ctx)
	if err != nil {
		return err
	}
	defer store.Close()
	return act(store)
}
