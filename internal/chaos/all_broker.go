package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/weir-es/weir/devserver"
)

// brokerTask says where a nats-server keeps its streams, and its port: 0 for any.
type brokerTask struct {
	Dir  string
	Port int
}

// brokerRole is a nats-server until it is told to end.
func brokerRole(ctx context.Context, task json.RawMessage, _ <-chan string, say func(word)) error {
	var t brokerTask
	if err := json.Unmarshal(task, &t); err != nil {
		return err
	}
	n, err := devserver.StartNATS(ctx, devserver.NATSConfig{Dir: t.Dir, Port: t.Port})
	if err != nil {
		return err
	}
	say(word{Say: "ready", Text: n.URL()})
	<-ctx.Done()
	return n.Close()
}

// broker is the nats-server of a bad day: a process that can be killed and started
// again, on the same port, with its streams, without, or with old ones.
type broker struct {
	dir string // holds what it stores now, and a copy of what it stored once
	url string

	mu      sync.Mutex // one thing at a time is done to it
	process *process
	copies  int
}

const brokerReady = 30 * time.Second

func startBroker(ctx context.Context, dir string) (*broker, error) {
	b := &broker{dir: dir}
	return b, b.start(ctx)
}

func (b *broker) start(ctx context.Context) error {
	port := 0
	if b.url != "" {
		u, err := url.Parse(b.url)
		if err != nil {
			return err
		}
		fmt.Sscan(u.Port(), &port)
	}
	p, err := launch(ctx, "broker", "broker", brokerTask{Dir: b.live(), Port: port})
	if err != nil {
		return err
	}
	w, err := p.await(ctx, "ready", brokerReady)
	if err != nil {
		return err
	}
	b.process, b.url = p, w.Text
	return nil
}

func (b *broker) live() string { return filepath.Join(b.dir, "live") }
func (b *broker) copy() string { return filepath.Join(b.dir, "copy") }

func (b *broker) address() string {
	u, _ := url.Parse(b.url)
	return net.JoinHostPort(u.Hostname(), u.Port())
}

// stop ends the server, gently or not.
func (b *broker) stop(gently bool) {
	if gently {
		b.process.command.Process.Signal(syscall.SIGTERM)
		select {
		case <-b.process.ended:
			return
		case <-time.After(10 * time.Second):
		}
	}
	b.process.kill()
}

// while does something while the server is down, and starts it again.
func (b *broker) while(ctx context.Context, gently bool, down time.Duration, do func() error) error {
	b.stop(gently)
	pause(ctx, down)
	var err error
	if do != nil {
		err = do()
	}
	return errors.Join(err, b.start(ctx))
}

// keep copies what is stored now, to come back to it. The server is down.
func (b *broker) keep() error {
	if err := os.RemoveAll(b.copy()); err != nil {
		return err
	}
	b.copies++
	return os.CopyFS(b.copy(), os.DirFS(b.live()))
}

// forget deletes everything. The server is down.
func (b *broker) forget() error { return os.RemoveAll(b.live()) }

// goBack puts the copy in the place of what is there. The server is down.
func (b *broker) goBack() error {
	if err := b.forget(); err != nil {
		return err
	}
	return os.CopyFS(b.live(), os.DirFS(b.copy()))
}
