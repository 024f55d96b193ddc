package main

import (
	"errors"
	"net"
	"sync"
	"time"
)

// weather is what a link does to what goes through it.
type weather struct {
	// cut: connections are closed, and new ones as soon as they are there.
	cut bool
	// delay of each piece that goes through.
	delay time.Duration
	// stalled: what goes to the server, and what comes back, waits until the weather
	// changes. One of the two makes the link half open.
	stalled [2]bool
}

// link is a TCP proxy before one server, for one process.
type link struct {
	name   string
	server string
	port   net.Listener
	dial   net.Dialer

	mu      sync.Mutex
	weather weather
	changed chan struct{} // closed when the weather changes
	conns   map[net.Conn]bool
	closed  bool
	pumps   sync.WaitGroup
}

// newLink listens on a free port of the loopback address.
func newLink(name, server string) (*link, error) {
	port, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	l := &link{name: name, server: server, port: port, changed: make(chan struct{}), conns: map[net.Conn]bool{}}
	l.dial.Timeout = 5 * time.Second
	l.pumps.Go(l.accept)
	return l, nil
}

func (l *link) address() string { return l.port.Addr().String() }

// set changes the weather. A cut closes what is open.
func (l *link) set(w weather) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.weather = w
	close(l.changed)
	l.changed = make(chan struct{})
	if w.cut {
		for c := range l.conns {
			c.Close()
		}
	}
}

func (l *link) close() error {
	l.set(weather{cut: true})
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	err := l.port.Close()
	l.pumps.Wait()
	return err
}

func (l *link) now() (weather, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.weather, l.changed
}

func (l *link) accept() {
	for {
		client, err := l.port.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			l.pumps.Go(func() { l.join(client) })
		}
	}
}

// join carries a connection until one of its ends closes.
func (l *link) join(client net.Conn) {
	defer client.Close()
	server, err := l.dial.Dial("tcp", l.server)
	if err != nil {
		return
	}
	defer server.Close()
	if !l.keep(client, server) {
		return
	}
	defer l.forget(client, server)
	var both sync.WaitGroup
	both.Go(func() { l.pump(server, client, 0) })
	both.Go(func() { l.pump(client, server, 1) })
	both.Wait()
}

func (l *link) keep(conns ...net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.weather.cut || l.closed {
		return false
	}
	for _, c := range conns {
		l.conns[c] = true
	}
	return true
}

func (l *link) forget(conns ...net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range conns {
		delete(l.conns, c)
	}
}

// pump carries one direction.
func (l *link) pump(to, from net.Conn, direction int) {
	defer to.Close()
	defer from.Close()
	piece := make([]byte, 32<<10)
	for {
		n, err := from.Read(piece)
		if n > 0 && l.pass(direction) {
			if _, err := to.Write(piece[:n]); err != nil {
				return
			}
		}
		if err != nil {
			l.pass(direction) // an end does not get through either
			return
		}
	}
}

// pass waits until a piece may go on. It reports whether it may.
func (l *link) pass(direction int) bool {
	w, changed := l.now()
	for w.stalled[direction] && !w.cut {
		<-changed
		w, changed = l.now()
	}
	if w.delay > 0 {
		timer := time.NewTimer(w.delay)
		defer timer.Stop()
		<-timer.C
	}
	return !w.cut
}
