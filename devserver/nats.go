package devserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// attempts is how often a server is started on another port after somebody took
// the one it was to have.
const attempts = 5

// errClosed is what starting a closed server gives.
var errClosed = errors.New("the server is closed")

// natsReady is how long a NATS server may take from listening to accepting.
const natsReady = 10 * time.Second

// NATSConfig says how a NATS server runs. The zero value is a throw-away server.
type NATSConfig struct {
	// Dir is where JetStream keeps its streams. Default a temporary folder that
	// Close removes. A folder named here stays, and a server started with it
	// later finds its streams again.
	Dir string

	// Port on the loopback address. Default a free one. Name one to start a
	// server where an earlier one was.
	Port int

	// SyncAlways writes to the disk before each acknowledgement, as a server in
	// production should. Default false: every two minutes, so what was
	// acknowledged survives the process but not the machine.
	SyncAlways bool

	// MaxStore limits what JetStream stores, in bytes. Default three quarters of
	// the free space of the disk. Set it to see what a full server does.
	MaxStore int64
}

// NATS is a NATS server with JetStream in this process. Its methods may be
// called from several goroutines.
type NATS struct {
	config NATSConfig
	folder *folder
	member *member // of a cluster, or nil

	mu     sync.Mutex
	server *server.Server // nil while stopped
	closed bool
}

// StartNATS starts a NATS server with JetStream and returns when it accepts
// connections. The caller closes it.
func StartNATS(ctx context.Context, config NATSConfig) (*NATS, error) {
	sweep(bases()...)
	f, err := newFolder(os.TempDir(), config.Dir)
	if err != nil {
		return nil, err
	}
	n := &NATS{config: config, folder: f}
	if err := n.startFirst(ctx); err != nil {
		return nil, errors.Join(err, f.remove())
	}
	return n, nil
}

// startFirst starts the server on its port or, if none is configured, on the
// first that stays free long enough.
func (n *NATS) startFirst(ctx context.Context) error {
	if n.config.Port != 0 {
		return n.Resume(ctx)
	}
	var err error
	for range attempts {
		if n.config.Port, err = freePort(); err != nil {
			return err
		}
		if err = n.Resume(ctx); !errors.Is(err, errPortTaken) {
			return err
		}
	}
	return err
}

// URL is the address for clients. It stays the same across Stop and Resume.
func (n *NATS) URL() string {
	return "nats://" + net.JoinHostPort(loopback, strconv.Itoa(n.config.Port))
}

// Stop ends the server and keeps its port and its streams for Resume. Clients
// are disconnected. Stopping a stopped server does nothing.
func (n *NATS) Stop() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.stop()
}

func (n *NATS) stop() {
	if n.server == nil {
		return
	}
	n.server.Shutdown()
	n.server.WaitForShutdown()
	n.server = nil
}

// Resume starts a stopped server on the same port with the same streams, and
// returns when it accepts connections. Resuming a running server does nothing.
func (n *NATS) Resume(ctx context.Context) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return errClosed
	}
	if n.server != nil {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("start nats: %w", err)
	}
	s, err := runNATS(n.options())
	if err != nil {
		return fmt.Errorf("start nats on port %d: %w", n.config.Port, err)
	}
	n.server = s
	return nil
}

// Restart stops the server and starts it again on the same port with the same
// streams.
func (n *NATS) Restart(ctx context.Context) error {
	n.Stop()
	return n.Resume(ctx)
}

// Close ends the server and removes its files, unless they are in a folder that
// the configuration named. It may be called again.
func (n *NATS) Close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.closed = true
	n.stop()
	return n.folder.remove()
}

func (n *NATS) options() *server.Options {
	o := &server.Options{
		ServerName:        "weir-dev",
		Host:              loopback,
		Port:              n.config.Port,
		NoSigs:            true, // signals belong to the application
		JetStream:         true,
		StoreDir:          filepath.Join(n.folder.path, "nats"),
		SyncAlways:        n.config.SyncAlways,
		JetStreamMaxStore: n.config.MaxStore,
	}
	n.member.join(o)
	return o
}

// running is the server, or nil while it is stopped.
func (n *NATS) running() *server.Server {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.server
}

// runNATS starts a server and returns when it accepts connections.
func runNATS(options *server.Options) (*server.Server, error) {
	s, err := server.NewServer(options)
	if err != nil {
		return nil, err
	}
	log := &failure{}
	s.SetLogger(log, false, false)
	s.Start()
	err = log.first()
	if err == nil && s.ReadyForConnections(natsReady) {
		return s, nil
	}
	s.Shutdown()
	s.WaitForShutdown()
	if err == nil {
		err = fmt.Errorf("not ready after %s", natsReady)
	}
	err = errors.Join(err, probe(options.Port))
	if options.Cluster.Port != 0 {
		err = errors.Join(err, probe(options.Cluster.Port))
	}
	return nil, err
}

// failure is a log that keeps nothing but why the server could not start.
type failure struct {
	mu  sync.Mutex
	err error
}

// first returns the first reason, or nil.
func (f *failure) first() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

func (f *failure) Fatalf(format string, v ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil {
		f.err = fmt.Errorf(format, v...)
	}
}

func (f *failure) Noticef(string, ...any) {}
func (f *failure) Warnf(string, ...any)   {}
func (f *failure) Errorf(string, ...any)  {}
func (f *failure) Debugf(string, ...any)  {}
func (f *failure) Tracef(string, ...any)  {}
