package devserver

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// loopback is the only address our servers listen on.
const loopback = "127.0.0.1"

// Ports are drawn from below the range that systems give to outgoing
// connections. A port from that range could go to some client while its server
// is stopped, even to a client of that very server, and the server could not
// come back to it.
const (
	firstPort = 15000
	lastPort  = 31999
)

// errPortTaken says that something else listens on the port.
var errPortTaken = errors.New("port is taken")

// freePort returns a loopback port that nothing listens on. Another process may
// take it before it is used; whoever uses it must be ready to draw again.
func freePort() (int, error) {
	for range 100 {
		port := firstPort + rand.IntN(lastPort-firstPort+1)
		if probe(port) == nil {
			return port, nil
		}
	}
	return 0, fmt.Errorf("find a free port from %d to %d: none after 100 attempts", firstPort, lastPort)
}

// probe returns errPortTaken if port cannot be listened on.
func probe(port int) error {
	l, err := net.Listen("tcp", net.JoinHostPort(loopback, strconv.Itoa(port)))
	if err != nil {
		return fmt.Errorf("%w: %w", errPortTaken, err)
	}
	return l.Close()
}
