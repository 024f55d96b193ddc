package transport

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"log/slog"
	"math"
	"net/url"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/weir-es/weir"
)

// Defaults of Config.
const (
	DefaultNamespace      = "weir"
	DefaultMaxBytes       = 1 << 30
	DefaultLogAge         = 24 * time.Hour
	DefaultPending        = 4000
	DefaultAckWait        = time.Minute
	DefaultMaxAckPending  = 50_000
	DefaultPrefetch       = 500
	DefaultConnectTimeout = 30 * time.Second
)

const (
	defaultReconnectWait = 250 * time.Millisecond
	defaultAnswerWait    = 5 * time.Second
)

// MaxShards is the most shards that a stream may be declared with.
const MaxShards = 1024

// Config says where the broker is and how to treat it. The zero value works
// against a broker on this machine.
type Config struct {
	// URL is the address of the broker, or several with commas between. Default
	// nats://127.0.0.1:4222.
	URL string
	// Conn is the caller's own connection, used instead of URL and never closed.
	// nats.ReconnectBufSize(-1) is recommended for it: without, what was
	// published during an outage is sent twice (and stored once).
	Conn *nats.Conn
	// Name is the client name that the server shows. Default "weir".
	Name string
	// Credentials is the path of a .creds file. It is read again on reconnect.
	Credentials string
	// NkeySeed is the path of a file with an nkey seed.
	NkeySeed string
	// TLS is the client side of an encrypted connection. Default: as the URL says.
	TLS *tls.Config
	// InboxPrefix is where replies to this client go, so that permissions can
	// be given for it alone. Default "_INBOX". Ignored with Conn.
	InboxPrefix string
	// ConnectTimeout is how long Connect goes on trying a server that is not
	// there. Default 30 s. Longer where the broker starts after us.
	ConnectTimeout time.Duration

	// Namespace begins every subject and stream name, so that several systems
	// can share a broker: 1 to 40 of a-z, 0-9 and '_'. Default "weir".
	Namespace string
	// Shards is how many groups the event streams are divided into. Fixed once
	// the stream is declared. Default weir.DefaultShards.
	Shards int
	// Replicas of the streams. Default 1; 3 in a cluster.
	Replicas int
	// MaxBytes is how much the ingest stream may hold, in bytes. When it is full,
	// producers wait. Default 1 GiB.
	MaxBytes int64

	// LogAge is how long committed events stay in the log stream for other services:
	// for as long may one of them be away and miss nothing. Default 24 h, at least
	// 2 minutes.
	LogAge time.Duration
	// LogBytes is how much the log stream may hold, in bytes; beyond, the oldest
	// events leave it before their time. Default no limit but LogAge.
	LogBytes int64

	// Pending is how many publishes may be unanswered at once, over all
	// publishers of the connection; then Send waits. Default 4000. Less limits
	// what has to be repeated after an outage; more only helps on a slow network.
	Pending int
	// MaxDataBytes is the largest payload. Default weir.MaxDataBytes (1 MiB). The
	// server's own max_payload, headers included, holds as well.
	MaxDataBytes int

	// AckWait is how long the broker waits for an ack or an extension before it
	// gives a message out again. Default 60 s. Receivers extend what is older than
	// a third of it.
	AckWait time.Duration
	// MaxAckPending is how many messages of a shard may be unacknowledged at
	// once. It caps throughput: at least 2 × rate × (window + flush) + Prefetch.
	// Default 50,000.
	MaxAckPending int
	// Prefetch is how many messages of a shard the client asks for ahead of
	// the caller. Default 500.
	Prefetch int

	// Tests are impatient: reconnectWait is the pause between tries to come back,
	// answerWait how long a publish may go unanswered before it is repeated.
	reconnectWait, answerWait time.Duration

	// Logger hears of lost connections and of publishes that have to wait.
	// Default slog.Default.
	Logger *slog.Logger
}

// complete fills in the defaults and checks the rest.
func (c Config) complete() (Config, error) {
	c.URL = cmp.Or(c.URL, nats.DefaultURL)
	c.Name = cmp.Or(c.Name, "weir")
	c.ConnectTimeout = cmp.Or(c.ConnectTimeout, DefaultConnectTimeout)
	c.Namespace = cmp.Or(c.Namespace, DefaultNamespace)
	c.Shards = cmp.Or(c.Shards, weir.DefaultShards)
	c.Replicas = cmp.Or(c.Replicas, 1)
	c.MaxBytes = cmp.Or(c.MaxBytes, DefaultMaxBytes)
	c.LogAge = cmp.Or(c.LogAge, DefaultLogAge)
	c.LogBytes = cmp.Or(c.LogBytes, -1)
	c.Pending = cmp.Or(c.Pending, DefaultPending)
	c.MaxDataBytes = cmp.Or(c.MaxDataBytes, weir.MaxDataBytes)
	c.AckWait = cmp.Or(c.AckWait, DefaultAckWait)
	c.MaxAckPending = cmp.Or(c.MaxAckPending, DefaultMaxAckPending)
	c.Prefetch = cmp.Or(c.Prefetch, DefaultPrefetch)
	c.reconnectWait = cmp.Or(c.reconnectWait, defaultReconnectWait)
	c.answerWait = cmp.Or(c.answerWait, defaultAnswerWait)
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c, c.check()
}

func (c Config) check() error {
	if !validNamespace(c.Namespace) {
		return &ConfigError{"Namespace", fmt.Sprintf("%q is not 1 to 40 of a-z, 0-9 and '_'", c.Namespace)}
	}
	if c.Conn == nil && !validURLs(c.URL) {
		// The address is not shown: what cannot be parsed may hold a password anywhere.
		return &ConfigError{"URL", "is not an address such as nats://host:4222"}
	}
	for _, n := range []struct {
		field       string
		value       int64
		least, most int64
	}{
		{"Shards", int64(c.Shards), 1, MaxShards},
		{"Replicas", int64(c.Replicas), 1, 5},
		{"MaxBytes", c.MaxBytes, 1, math.MaxInt64},
		{"LogAge", int64(c.LogAge), int64(duplicateWindow), math.MaxInt64},
		{"LogBytes", c.LogBytes, -1, math.MaxInt64},
		{"Pending", int64(c.Pending), 1, 1 << 20},
		{"MaxDataBytes", int64(c.MaxDataBytes), 1, 64 << 20},
		{"AckWait", int64(c.AckWait), int64(100 * time.Millisecond), math.MaxInt64},
		{"MaxAckPending", int64(c.MaxAckPending), 1, math.MaxInt32},
		{"Prefetch", int64(c.Prefetch), 1, 100_000},
		{"ConnectTimeout", int64(c.ConnectTimeout), 1, math.MaxInt64},
	} {
		if n.value < n.least || n.value > n.most {
			return &ConfigError{n.field, fmt.Sprintf("%d is not between %d and %d", n.value, n.least, n.most)}
		}
	}
	return nil
}

func validNamespace(s string) bool {
	return len(s) >= 1 && len(s) <= 40 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789_") == ""
}

func validURLs(urls string) bool {
	for one := range strings.SplitSeq(urls, ",") {
		if u, err := parseURL(one); err != nil || u.Hostname() == "" {
			return false
		}
	}
	return true
}

// redacted is the address without anything that could be a secret: user names
// go as well, since a token stands in their place.
func redacted(urls string) string {
	var shown []string
	for one := range strings.SplitSeq(urls, ",") {
		u, err := parseURL(one)
		if err != nil {
			shown = append(shown, "(an address that cannot be parsed)")
			continue
		}
		shown = append(shown, (&url.URL{Scheme: u.Scheme, Host: u.Host}).String())
	}
	return strings.Join(shown, ",")
}

func parseURL(one string) (*url.URL, error) {
	one = strings.TrimSpace(one)
	if !strings.Contains(one, "://") {
		one = "nats://" + one
	}
	return url.Parse(one)
}
