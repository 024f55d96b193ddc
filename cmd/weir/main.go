// Command weir looks after a Weir event store in PostgreSQL: its tables, its
// streams, its log and its health. What needs an application's own code is not
// here; see package ops. docs/cli.md has a page for people.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/weir-es/weir/ops"
)

func main() { os.Exit(run()) }

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // who asks twice does not want to wait
	return ops.Program{}.Run(ctx, os.Args[1:])
}
