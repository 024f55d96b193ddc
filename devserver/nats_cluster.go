package devserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// NATSClusterConfig says how a cluster runs. The zero value is a throw-away
// cluster of three.
type NATSClusterConfig struct {
	// Nodes is how many servers there are, at least 2. Default 3, the least that
	// goes on without one of them.
	Nodes int

	// SyncAlways writes to the disk before each acknowledgement. Default false.
	SyncAlways bool

	// MaxStore limits what each node stores, in bytes. Default three quarters of
	// the free space of the disk.
	MaxStore int64
}

// NATSCluster is several NATS servers with JetStream in this process that keep
// their streams together. It is for tests of what happens when one of them goes.
// Its methods may be called from several goroutines.
type NATSCluster struct {
	nodes []*NATS
}

// StartNATSCluster starts a cluster and returns when it can make streams. The
// caller closes it.
func StartNATSCluster(ctx context.Context, config NATSClusterConfig) (*NATSCluster, error) {
	sweep(bases()...)
	var err error
	for range attempts {
		var c *NATSCluster
		if c, err = startNATSCluster(ctx, config); err == nil {
			return c, nil
		}
		if !errors.Is(err, errPortTaken) {
			break
		}
	}
	return nil, err
}

func startNATSCluster(ctx context.Context, config NATSClusterConfig) (*NATSCluster, error) {
	c := &NATSCluster{}
	if err := c.start(ctx, config); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func (c *NATSCluster) start(ctx context.Context, config NATSClusterConfig) error {
	if config.Nodes == 0 {
		config.Nodes = 3
	}
	if config.Nodes < 2 {
		return fmt.Errorf("start a cluster of %d: at least 2 make one", config.Nodes)
	}
	members, err := newMembers(config.Nodes)
	if err != nil {
		return err
	}
	for _, m := range members {
		port, err := freePort()
		if err != nil {
			return err
		}
		f, err := newFolder(os.TempDir(), "")
		if err != nil {
			return err
		}
		n := &NATS{config: NATSConfig{Port: port, SyncAlways: config.SyncAlways, MaxStore: config.MaxStore}, folder: f, member: m}
		c.nodes = append(c.nodes, n)
		if err := n.Resume(ctx); err != nil {
			return err
		}
	}
	return c.await(ctx, "a cluster that can make streams", c.isReady)
}

// Node is one of the servers, counted from 0, to be stopped and resumed by itself.
func (c *NATSCluster) Node(n int) *NATS { return c.nodes[n] }

// Nodes is how many servers there are, running or not.
func (c *NATSCluster) Nodes() int { return len(c.nodes) }

// URL is the addresses of all nodes with commas between, for clients.
func (c *NATSCluster) URL() string {
	var urls []string
	for _, n := range c.nodes {
		urls = append(urls, n.URL())
	}
	return strings.Join(urls, ",")
}

// Leader is the node that leads a stream, or -1 while none does.
func (c *NATSCluster) Leader(stream string) int {
	for i, n := range c.nodes {
		if s := n.running(); s != nil && s.JetStreamIsStreamLeader(server.DEFAULT_GLOBAL_ACCOUNT, stream) {
			return i
		}
	}
	return -1
}

// StepDown makes the leader of a stream give it up, and returns without waiting
// for the next one.
func (c *NATSCluster) StepDown(stream string) error {
	leader := c.Leader(stream)
	if leader < 0 {
		return fmt.Errorf("step down: nobody leads stream %s", stream)
	}
	s := c.nodes[leader].running()
	if s == nil {
		return fmt.Errorf("step down: node %d, which led stream %s, has stopped", leader, stream)
	}
	return s.JetStreamStepdownStream(server.DEFAULT_GLOBAL_ACCOUNT, stream)
}

// Await returns when a stream has a leader and every running node has all of it.
func (c *NATSCluster) Await(ctx context.Context, stream string) error {
	return c.await(ctx, "stream "+stream+" on every node", func() bool {
		return c.isReady() && c.Leader(stream) >= 0 && c.all(func(s *server.Server) bool {
			return s.JetStreamIsStreamCurrent(server.DEFAULT_GLOBAL_ACCOUNT, stream)
		})
	})
}

// Close ends all nodes and removes their files. It may be called again.
func (c *NATSCluster) Close() error {
	var errs []error
	for _, n := range c.nodes {
		errs = append(errs, n.Close())
	}
	return errors.Join(errs...)
}

// isReady: the running nodes know who leads them, and what there is.
func (c *NATSCluster) isReady() bool {
	leaders := 0
	current := c.all(func(s *server.Server) bool {
		if s.JetStreamIsLeader() {
			leaders++
		}
		return s.JetStreamIsCurrent()
	})
	return current && leaders == 1
}

// all asks every running node.
func (c *NATSCluster) all(yes func(*server.Server) bool) bool {
	all := true
	for _, n := range c.nodes {
		if s := n.running(); s != nil {
			all = yes(s) && all
		}
	}
	return all
}

// await asks again and again: the servers do not tell.
func (c *NATSCluster) await(ctx context.Context, what string, done func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w", what, ctx.Err())
		}
	}
	return nil
}

// member is a node's place in its cluster.
type member struct {
	name   string
	port   int // for the other nodes
	routes []*url.URL
}

// newMembers draws a port for each, and tells all of them where the others are.
func newMembers(n int) ([]*member, error) {
	members := make([]*member, n)
	var routes []*url.URL
	for i := range members {
		port, err := freePort()
		if err != nil {
			return nil, err
		}
		members[i] = &member{name: fmt.Sprint("weir-dev-", i), port: port}
		routes = append(routes, &url.URL{Scheme: "nats", Host: net.JoinHostPort(loopback, strconv.Itoa(port))})
	}
	for _, m := range members {
		m.routes = routes // also to itself, which it notices
	}
	return members, nil
}

// join makes a server a member.
func (m *member) join(o *server.Options) {
	if m == nil {
		return
	}
	o.ServerName = m.name
	o.Cluster = server.ClusterOpts{Name: "weir-dev", Host: loopback, Port: m.port}
	o.Routes = m.routes
}
