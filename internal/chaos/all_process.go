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
	"sync"
	"time"
)

// role is what a process of ours is for, when it is started as a child. It is given
// its task, then orders, and says words; it ends when its parent is gone.
type role func(ctx context.Context, task json.RawMessage, orders <-chan string, say func(word)) error

// roles by their names in the environment.
var roles = map[string]role{"broker": brokerRole, "instance": instanceRole, "feeder": feederRole}

// word is what a child has to say.
type word struct {
	Say     string `json:"say"`
	Text    string `json:"text,omitempty"`
	Refused int64  `json:"refused,omitempty"`
}

// playRole is the whole life of a child.
func playRole(ctx context.Context, play role, in io.Reader, out io.Writer) error {
	words := json.NewDecoder(in)
	var task json.RawMessage
	if err := words.Decode(&task); err != nil {
		return fmt.Errorf("read the task: %w", err)
	}
	orders := make(chan string, 16)
	go func() {
		for {
			var order string
			if words.Decode(&order) != nil {
				os.Exit(3) // the parent is gone
			}
			orders <- order
		}
	}()
	var mu sync.Mutex
	encoder := json.NewEncoder(out)
	return play(ctx, task, orders, func(w word) {
		mu.Lock()
		defer mu.Unlock()
		encoder.Encode(w)
	})
}

// process is a child as its parent sees it.
type process struct {
	name    string
	command *exec.Cmd
	words   chan word
	ended   chan struct{}
	err     error // how it ended, to be read after ended

	mu       sync.Mutex
	orders   *json.Encoder
	problems tail
}

// launch starts this program once more, in a role. It is killed when ctx ends.
func launch(ctx context.Context, role, name string, task any) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &process{name: name, command: exec.CommandContext(ctx, self), words: make(chan word, 64), ended: make(chan struct{})}
	p.command.Env = append(os.Environ(), childVariable+"="+role)
	p.command.Stderr = &p.problems
	in, err := p.command.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := p.command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.orders = json.NewEncoder(in)
	if err := p.command.Start(); err != nil {
		return nil, err
	}
	go p.follow(out)
	return p, p.orders.Encode(task)
}

// follow hears the words of a process until it ends.
func (p *process) follow(out io.Reader) {
	defer close(p.ended)
	words := json.NewDecoder(out)
	for {
		var w word
		if words.Decode(&w) != nil {
			break
		}
		p.words <- w
	}
	p.err = p.command.Wait()
}

func (p *process) order(what string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.orders.Encode(what); err != nil {
		return fmt.Errorf("tell %s to %s: %w", p.name, what, err)
	}
	return nil
}

// await returns when the process says this, and passes over what else it says.
func (p *process) await(ctx context.Context, say string, limit time.Duration) (word, error) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		select {
		case w := <-p.words:
			if w.Say == say {
				return w, nil
			}
		case <-p.ended:
			return word{}, fmt.Errorf("%s ended before it was %s: %w\n%s", p.name, say, errors.Join(p.err, io.ErrUnexpectedEOF), lastOf(p.problems.text(), 600))
		case <-timer.C:
			return word{}, fmt.Errorf("%s was not %s within %s\n%s", p.name, say, limit, lastOf(p.problems.text(), 600))
		case <-ctx.Done():
			return word{}, ctx.Err()
		}
	}
}

// tell gives an order and waits until it is done.
func (p *process) tell(ctx context.Context, what, done string, limit time.Duration) error {
	if err := p.order(what); err != nil {
		return err
	}
	_, err := p.await(ctx, done, limit)
	return err
}

func (p *process) kill() {
	p.command.Process.Kill()
	<-p.ended
}

// tail keeps the last of what is written to it.
type tail struct {
	mu   sync.Mutex
	last bytes.Buffer
}

const tailBytes = 64 << 10

// Write never fails.
func (t *tail) Write(text []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last.Write(text)
	if extra := t.last.Len() - tailBytes; extra > 0 {
		t.last.Next(extra)
	}
	return len(text), nil
}

func (t *tail) text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.last.String()
}
