package transport

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/weir-es/weir/devserver"
)

func freePort(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).Port
}

// KurrentDB-Client-Dotnet#161, #140: a hot loop, or a hang, when the server was not
// there at the start.
func TestConnectWhereNothingListens(t *testing.T) {
	url := fmt.Sprintf("nats://ada:s3cr3t@127.0.0.1:%d", freePort(t))
	begin := time.Now()
	_, err := Connect(t.Context(), Config{URL: url, ConnectTimeout: 300 * time.Millisecond})
	var failed *ConnectError
	if !errors.As(err, &failed) || !errors.Is(err, nats.ErrNoServers) || strings.Contains(err.Error(), "s3cr3t") || strings.Contains(err.Error(), "ada") ||
		!strings.Contains(err.Error(), "127.0.0.1") {
		t.Errorf("Connect returned %v", err)
	}
	if took := time.Since(begin); took < 250*time.Millisecond || took > 10*time.Second {
		t.Errorf("it took %s", took)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Connect(ctx, Config{URL: url}); !errors.Is(err, context.Canceled) {
		t.Errorf("Connect returned %v", err)
	}
}

func TestConnectToAServerThatStartsLater(t *testing.T) {
	port := freePort(t)
	type result struct {
		conn *Conn
		err  error
	}
	results := make(chan result, 1)
	go func() {
		c, err := Connect(t.Context(), Config{URL: fmt.Sprintf("nats://127.0.0.1:%d", port)})
		results <- result{c, err}
	}()
	server, err := devserver.StartNATS(testContext(t), devserver.NATSConfig{Port: port})
	must(t, err)
	defer func() { _ = server.Close() }()
	r := <-results
	must(t, r.err)
	defer r.conn.Close()
	must(t, r.conn.Declare(testContext(t)))
}

func TestConfigsThatCannotBeUsed(t *testing.T) {
	for field, config := range map[string]Config{
		"Namespace": {Namespace: "Weir"},
		"URL":       {URL: "nats://ada:s3cr3t@[::1"},
		"Shards":    {Shards: -1},
		"MaxBytes":  {MaxBytes: -1},
		"Pending":   {Pending: -5},
		"Prefetch":  {Prefetch: 1_000_000},
		"AckWait":   {AckWait: time.Millisecond},
		"Replicas":  {Replicas: 7},
	} {
		_, err := Connect(t.Context(), config)
		var wrong *ConfigError
		if !errors.As(err, &wrong) || wrong.Field != field || strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("%s: %v", field, err)
		}
	}
	for _, namespace := range []string{"a.b", "a b", "*", ">", strings.Repeat("a", 41), "ä", "a-b"} {
		if _, err := Connect(t.Context(), Config{Namespace: namespace}); !errors.As(err, new(*ConfigError)) {
			t.Errorf("namespace %q: %v", namespace, err)
		}
	}
}

// goes and others: a connection URL with its password in the error text.
func TestSecretsAreNotShown(t *testing.T) {
	for url, want := range map[string]string{
		"nats://ada:s3cr3t@host:4222":                   "nats://host:4222",
		"nats://s3cr3t@host":                            "nats://host",
		"ada:s3cr3t@host:4222":                          "nats://host:4222",
		"nats://a:s3cr3t@one:1, tls://b:s3cr3t@two:2":   "nats://one:1,tls://two:2",
		"nats://ada:s3cr3t@host:port":                   "(an address that cannot be parsed)",
		"nats://host:4222/path?token=s3cr3t#s3cr3t":     "nats://host:4222",
		"wss://s3cr3t:s3cr3t@[2001:db8::1]:443/s3cr3t/": "wss://[2001:db8::1]:443",
	} {
		if got := redacted(url); got != want {
			t.Errorf("%s is shown as %s", url, got)
		}
	}
}

// secured is a server with users.
func secured(t testing.TB, options *server.Options) string {
	t.Helper()
	options.Host, options.Port, options.NoSigs = "127.0.0.1", -1, true
	options.JetStream, options.StoreDir = true, t.TempDir()
	s, err := server.NewServer(options)
	must(t, err)
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(patience) {
		t.Fatal("not ready")
	}
	return s.Addr().String()
}

func TestAPasswordIsInNoErrorAndNoLog(t *testing.T) {
	address := secured(t, &server.Options{Username: "ada", Password: "s3cr3t"})
	var log syncBuffer
	config := Config{URL: "nats://ada:s3cr3t@" + address, Logger: slog.New(slog.NewTextHandler(&log, nil)), reconnectWait: impatience}
	c, err := Connect(testContext(t), config)
	must(t, err)
	defer c.Close()
	must(t, c.nats.ForceReconnect())
	eventually(t, "it is back", func() bool { return c.Status().Reconnects == 1 && c.Connected() })
	eventually(t, "that is logged", func() bool { return strings.Contains(log.String(), address) })

	begin := time.Now()
	config.URL = "nats://ada:wr0ng@" + address
	_, err = Connect(testContext(t), config)
	if !errors.Is(err, nats.ErrAuthorization) || time.Since(begin) > 10*time.Second {
		t.Errorf("with a wrong password: %v", err)
	}
	shown := fmt.Sprint(err, c.Status(), log.String())
	if strings.Contains(shown, "s3cr3t") || strings.Contains(shown, "wr0ng") || strings.Contains(shown, "ada") {
		t.Errorf("shown: %s", shown)
	}
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func TestConnectWithAnNkey(t *testing.T) {
	user, err := nkeys.CreateUser()
	must(t, err)
	public, err := user.PublicKey()
	must(t, err)
	seed, err := user.Seed()
	must(t, err)
	file := filepath.Join(t.TempDir(), "seed")
	must(t, os.WriteFile(file, seed, 0o600))
	address := secured(t, &server.Options{Nkeys: []*server.NkeyUser{{Nkey: public}}})

	c, err := Connect(testContext(t), Config{URL: "nats://" + address, NkeySeed: file})
	must(t, err)
	c.Close()
	for name, config := range map[string]Config{
		"without it":   {},
		"seed missing": {NkeySeed: file + ".not"},
		"no creds":     {Credentials: file + ".not"},
	} {
		config.URL = "nats://" + address
		begin := time.Now()
		if _, err := Connect(testContext(t), config); !errors.As(err, new(*ConnectError)) || time.Since(begin) > 10*time.Second {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// permitted is a server whose user may do everything but what is denied.
func permitted(t testing.TB, deny ...string) string {
	t.Helper()
	return secured(t, &server.Options{Users: []*server.User{
		{Username: "admin", Password: "a"},
		{Username: "ada", Password: "a", Permissions: &server.Permissions{
			Publish:   &server.SubjectPermission{Allow: []string{">"}, Deny: deny},
			Subscribe: &server.SubjectPermission{Allow: []string{"_INBOX_ada.>"}},
		}},
	}})
}

func TestWhatIsForbiddenIsSaidAtOnce(t *testing.T) {
	address := permitted(t, "weir.t.ingest.*.secret.>", "$JS.API.CONSUMER.MSG.NEXT.*.shard-1", "$JS.API.STREAM.PURGE.>")
	admin, err := Connect(testContext(t), Config{URL: "nats://admin:a@" + address, Namespace: "t", Shards: 2})
	must(t, err)
	defer admin.Close()
	must(t, admin.Declare(testContext(t)))

	own, err := nats.Connect("nats://ada:a@"+address, nats.CustomInboxPrefix("_INBOX_ada"))
	must(t, err)
	defer own.Close()
	for name, config := range map[string]Config{
		"our connection":      {URL: "nats://ada:a@" + address, InboxPrefix: "_INBOX_ada"},
		"caller's connection": {Conn: own},
	} {
		t.Run(name, func(t *testing.T) {
			config.Namespace, config.Shards = "t", 2
			c, err := Connect(testContext(t), config)
			must(t, err)
			defer c.Close()
			must(t, c.Publisher().Publish(testContext(t), message("order-1", 1)))
			begin := time.Now()
			var refused *RefusedError
			if err := c.Publisher().Publish(testContext(t), message("secret-1", 1)); !errors.As(err, &refused) || !errors.Is(err, nats.ErrPermissionViolation) {
				t.Errorf("Publish returned %v", err)
			}
			if err := c.Receive(testContext(t), 1, func(*Delivery) {}); !errors.Is(err, nats.ErrPermissionViolation) {
				t.Errorf("Receive returned %v", err)
			}
			if took := time.Since(begin); config.Conn == nil && took > defaultAnswerWait {
				t.Errorf("it took %s", took)
			}
		})
	}
}

func TestAForbiddenInboxIsSaid(t *testing.T) {
	address := permitted(t)
	c, err := Connect(testContext(t), Config{URL: "nats://ada:a@" + address, InboxPrefix: "_INBOX_eve"})
	must(t, err)
	defer c.Close()
	if err := c.Publisher().Publish(testContext(t), message("order-1", 1)); !errors.Is(err, nats.ErrPermissionViolation) {
		t.Errorf("Publish returned %v", err)
	}
}

func TestTheCallersConnectionStaysOpen(t *testing.T) {
	server := startServer(t)
	own, err := nats.Connect(server.URL())
	must(t, err)
	defer own.Close()
	before := own.NumSubscriptions()
	c, err := Connect(testContext(t), Config{Conn: own})
	must(t, err)
	must(t, c.Declare(testContext(t)))
	must(t, c.Publisher().Publish(testContext(t), message("order-1", 1)))
	c.Close()
	c.Close()
	if !own.IsConnected() || own.NumSubscriptions() != before+1 { // the client's own for requests
		t.Errorf("after Close: connected %t, %d subscriptions", own.IsConnected(), own.NumSubscriptions())
	}
	own.Close()
	if _, err := Connect(testContext(t), Config{Conn: own}); !errors.As(err, new(*ConnectError)) {
		t.Errorf("with a closed connection: %v", err)
	}
}

func TestStatus(t *testing.T) {
	server := startServer(t)
	c := connect(t, server, Config{})
	if s := c.Status(); !s.Connected || s.Server != server.URL() || s.LastError != nil {
		t.Errorf("status %+v", s)
	}
	server.Stop()
	eventually(t, "it is lost", func() bool { return !c.Connected() && c.Status().LastError != nil })
	must(t, server.Resume(testContext(t)))
	eventually(t, "it is back", func() bool { return c.Connected() && c.Status().Reconnects == 1 })
}
