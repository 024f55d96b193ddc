package ops

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/app"
	"github.com/weir-es/weir/eventstore"
)

// Run is the command line of an application: what weir does, and what needs the
// application's own folds. args is what follows the word "ops". It needs PostgreSQL
// alone and no service that runs, changes the schema only when told to (migrate up),
// and returns the exit status:
//
//	if len(os.Args) > 1 && os.Args[1] == "ops" {
//		os.Exit(ops.Run(ctx, config, os.Args[2:]))
//	}
func Run(ctx context.Context, config app.Config, args []string) (status int) {
	p, err := Of(config)
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", p.Name, err)
		return Unable
	}
	return p.Run(ctx, args)
}

// Of is the command line of an application, for whoever wants to change something
// about it. Its Name is that of the binary and "ops". The error is that of
// weir.NewRegistry.
func Of(config app.Config) (Program, error) {
	p := Program{Name: filepath.Base(os.Args[0]) + " ops", Projections: config.Projections}
	types, err := weir.NewRegistry(config.Types)
	p.Store = eventstore.Config{URL: config.Postgres, Pool: config.Pool, Types: types, Logger: config.Logger,
		Schema: cmp.Or(config.Schema, config.Name), // as app does
		Shards: config.Shards, MaxDataBytes: config.MaxDataBytes}
	return p, err
}
