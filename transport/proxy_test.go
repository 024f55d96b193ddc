package transport

import (
	"io"
	"net"
	"strings"
	"sync"
	"testing"
)

// proxy stands between a client and a server and can break the connection.
type proxy struct {
	listener net.Listener
	wait     sync.WaitGroup

	mu     sync.Mutex
	target string
	conns  map[net.Conn]bool
}

func startProxy(t testing.TB, url string) *proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	p := &proxy{listener: listener, conns: map[net.Conn]bool{}}
	p.redirect(url)
	p.wait.Go(p.accept)
	t.Cleanup(func() {
		_ = listener.Close()
		p.cut()
		p.wait.Wait()
	})
	return p
}

func (p *proxy) url() string { return "nats://" + p.listener.Addr().String() }

// redirect leads new connections to another server.
func (p *proxy) redirect(url string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = strings.TrimPrefix(url, "nats://")
}

func (p *proxy) to() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.target
}

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.to())
		if err != nil {
			_ = client.Close()
			continue
		}
		p.add(client, server)
		p.wait.Go(func() { p.copy(client, server) })
		p.wait.Go(func() { p.copy(server, client) })
	}
}

func (p *proxy) copy(dst, src net.Conn) {
	_, _ = io.Copy(dst, src)
	_ = dst.Close()
	_ = src.Close()
}

func (p *proxy) add(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		p.conns[c] = true
	}
}

// cut breaks all connections; what is on its way is lost. New ones are let in.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		if tcp, ok := c.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
		_ = c.Close()
	}
	clear(p.conns)
}
