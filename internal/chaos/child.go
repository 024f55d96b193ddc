package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// childVariable is set in the environment of a process that is to be a producer.
const childVariable = "WEIR_CHAOS_PRODUCER"

func isChild() bool { return os.Getenv(childVariable) != "" }

// child is a producer as its parent sees it.
type child struct {
	errand
	command  *exec.Cmd
	orders   *json.Encoder
	words    *json.Decoder
	problems bytes.Buffer // what it says on standard error
	kill     context.CancelFunc
}

// spawn starts this program once more, as a producer. It is killed when ctx ends.
func spawn(ctx context.Context, e errand) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	ctx, kill := context.WithCancel(ctx)
	c := &child{errand: e, command: exec.CommandContext(ctx, self), kill: kill}
	c.command.Env = append(os.Environ(), childVariable+"=1")
	c.command.Stderr = &c.problems
	in, err := c.command.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := c.command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.orders, c.words = json.NewEncoder(in), json.NewDecoder(out)
	return c, c.command.Start()
}

// run hands over the errand, starts with the others, and returns what the producer
// says it sent.
func (c *child) run(ctx context.Context, l *line) ([]sent, error) {
	if err := c.orders.Encode(c.errand); err != nil {
		return nil, err
	}
	if err := c.words.Decode(new(string)); err != nil {
		return nil, fmt.Errorf("it was never ready: %w", err)
	}
	at, err := l.wait(ctx)
	if err != nil {
		return nil, err
	}
	if err := c.orders.Encode(at); err != nil {
		return nil, err
	}
	return c.listen()
}

// listen returns what a producer says until it ends.
func (c *child) listen() (all []sent, err error) {
	for err == nil {
		var s sent
		if err = c.words.Decode(&s); err == nil {
			all = append(all, s)
		}
	}
	if !errors.Is(err, io.EOF) {
		return nil, err
	}
	if len(all) != c.Events {
		return nil, fmt.Errorf("it sent %d of %d messages", len(all), c.Events)
	}
	return all, nil
}

// end waits for the process. Only one that ends well has had everything acknowledged.
func (c *child) end(err error) error {
	if err != nil {
		c.kill()
	}
	if err = errors.Join(err, c.command.Wait()); err == nil {
		return nil
	}
	return fmt.Errorf("producer %d: %w\n%s", c.Producer, err, c.problems.Bytes())
}

// lead is how long producers that are all ready wait before they start, together.
const lead = 200 * time.Millisecond

// line is where producers wait until all of them are ready.
type line struct {
	missing atomic.Int64
	open    chan struct{}
	at      time.Time // set before open is closed
}

// wait returns when to start, once the last producer is there.
func (l *line) wait(ctx context.Context) (time.Time, error) {
	if l.missing.Add(-1) == 0 {
		l.at = time.Now().Add(lead)
		close(l.open)
	}
	select {
	case <-l.open:
		return l.at, nil
	case <-ctx.Done():
		return time.Time{}, ctx.Err()
	}
}

// produceAll runs a process for each errand and gathers what they say they sent, all
// of which the broker has acknowledged. The first that fails ends the others.
func produceAll(ctx context.Context, errands []errand) ([]sent, error) {
	said := make([][]sent, len(errands))
	l := &line{open: make(chan struct{})}
	l.missing.Store(int64(len(errands)))
	g, ctx := errgroup.WithContext(ctx)
	for i, e := range errands {
		g.Go(func() error {
			c, err := spawn(ctx, e)
			if err != nil {
				return fmt.Errorf("producer %d: %w", e.Producer, err)
			}
			defer c.kill()
			said[i], err = c.run(ctx, l)
			return c.end(err)
		})
	}
	err := g.Wait()
	return slices.Concat(said...), err
}
