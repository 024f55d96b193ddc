package transport

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	dialTimeout   = 2 * time.Second
	firstDialWait = 50 * time.Millisecond
	lastDialWait  = time.Second
	// drainTimeout is how long Close waits for answers to what was published.
	drainTimeout = 5 * time.Second
	// reviveEvery is how often at most a connection that stands is given up.
	reviveEvery = 30 * time.Second
)

// Conn is a connection to the broker. Safe for concurrent use.
type Conn struct {
	config  Config
	names   names
	log     *slog.Logger
	nats    *nats.Conn
	js      jetstream.JetStream
	courier *courier // of facts
	relay   *courier // of committed events

	life      context.Context // ends with Close
	end       context.CancelFunc
	closeOnce sync.Once
	parts     sync.WaitGroup // goroutines of this connection

	mu        sync.Mutex
	stretch   context.Context // ends when the connection is lost or back; then there is another
	snap      context.CancelFunc
	lastErr   error
	revived   time.Time
	receivers map[*receiver]struct{} // those that run
}

// Status is what a health page shows of a connection.
type Status struct {
	Connected bool
	// Server is its address, without user or password; empty while there is none.
	Server string
	// Reconnects counts the times that the connection came back.
	Reconnects uint64
	// LastError is what went wrong last, perhaps long ago.
	LastError error
}

// Connect connects to the broker. While nothing answers there it tries again,
// with pauses, for Config.ConnectTimeout or until ctx ends; then, or at once when
// the server refuses us, it returns a *ConnectError. A *ConfigError says what in
// config cannot be used. The caller closes the Conn.
func Connect(ctx context.Context, config Config) (*Conn, error) {
	config, err := config.complete()
	if err != nil {
		return nil, err
	}
	c := &Conn{
		config:    config,
		names:     names{config.Namespace, config.Shards, ingest},
		log:       config.Logger,
		receivers: map[*receiver]struct{}{},
	}
	c.life, c.end = context.WithCancel(context.Background())
	c.stretch, c.snap = context.WithCancel(c.life)
	if c.nats, err = c.dial(ctx); err != nil {
		c.end()
		return nil, err
	}
	if err := c.begin(); err != nil {
		c.end()
		c.hangUp()
		return nil, &ConnectError{Server: c.server(), Err: err}
	}
	return c, nil
}

// dial connects, or takes the caller's connection.
func (c *Conn) dial(ctx context.Context) (*nats.Conn, error) {
	if c.config.Conn != nil {
		return c.config.Conn, nil
	}
	started := time.Now()
	limit, cancel := context.WithTimeout(ctx, c.config.ConnectTimeout)
	defer cancel()
	for wait := firstDialWait; ; wait = min(2*wait, lastDialWait) {
		nc, err := c.dialOnce()
		if err == nil {
			return nc, nil
		}
		if hopeless(err) || !pause(limit, jitter(wait)) {
			return nil, &ConnectError{redacted(c.config.URL), time.Since(started), errors.Join(err, ctx.Err())}
		}
	}
}

func (c *Conn) dialOnce() (*nats.Conn, error) {
	options, err := c.options()
	if err != nil {
		return nil, err
	}
	return nats.Connect(c.config.URL, options...)
}

// errSetup marks what trying again cannot mend.
var errSetup = errors.New("cannot be used")

func hopeless(err error) bool {
	var certificate *tls.CertificateVerificationError
	var authority x509.UnknownAuthorityError
	for _, final := range []error{errSetup, nats.ErrAuthorization, nats.ErrAuthExpired, nats.ErrAuthRevoked,
		nats.ErrAccountAuthExpired, nats.ErrSecureConnWanted, nats.ErrNkeysNotSupported,
		fs.ErrNotExist, fs.ErrPermission} {
		if errors.Is(err, final) {
			return true
		}
	}
	return errors.As(err, &certificate) || errors.As(err, &authority)
}

func (c *Conn) options() ([]nats.Option, error) {
	options := []nats.Option{
		nats.Name(c.config.Name),
		nats.Timeout(dialTimeout),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(c.config.reconnectWait),
		nats.ReconnectJitter(c.config.reconnectWait/2, c.config.reconnectWait),
		// Off: it would send late and out of order, after the error was reported.
		nats.ReconnectBufSize(-1),
		nats.PingInterval(10 * time.Second),
		nats.MaxPingsOutstanding(3),
		nats.PermissionErrOnSubscribe(true),
		nats.DisconnectErrHandler(c.onDisconnect),
		nats.ReconnectHandler(c.onReconnect),
		nats.ErrorHandler(c.onError),
	}
	if c.config.InboxPrefix != "" {
		options = append(options, nats.CustomInboxPrefix(c.config.InboxPrefix))
	}
	if c.config.TLS != nil {
		options = append(options, nats.Secure(c.config.TLS))
	}
	if c.config.Credentials != "" {
		options = append(options, nats.UserCredentials(c.config.Credentials))
	}
	if c.config.NkeySeed != "" {
		seed, err := nats.NkeyOptionFromSeed(c.config.NkeySeed)
		if err != nil {
			return nil, fmt.Errorf("nkey seed file %s %w: %w", c.config.NkeySeed, errSetup, err)
		}
		options = append(options, seed)
	}
	return options, nil
}

// begin starts what a connection needs beside itself.
func (c *Conn) begin() (err error) {
	if c.js, err = jetstream.New(c.nats); err != nil {
		return err
	}
	if c.courier, err = newCourier(c, c.names); err != nil {
		return err
	}
	if c.relay, err = newCourier(c, c.outflow()); err != nil {
		return err
	}
	c.relay.inOrder = true
	events := c.nats.StatusChanged(nats.CONNECTED, nats.RECONNECTING, nats.CLOSED)
	c.parts.Go(func() { c.watch(events) })
	return nil
}

// watch tells everybody when the connection is lost or back, until Close.
func (c *Conn) watch(events chan nats.Status) {
	defer c.nats.RemoveStatusListener(events)
	for {
		select {
		case <-events:
			c.announce()
		case <-c.life.Done():
			return
		}
		if c.nats.IsClosed() {
			c.courier.close(nats.ErrConnectionClosed)
			c.relay.close(nats.ErrConnectionClosed)
			return
		}
	}
}

func (c *Conn) announce() {
	c.mu.Lock()
	c.snap()
	c.stretch, c.snap = context.WithCancel(c.life)
	c.mu.Unlock()
	c.courier.again()
	c.relay.again()
}

// outflow are the names for committed events of our own.
func (c *Conn) outflow() names { return names{c.config.Namespace, c.config.Shards, outflow} }

// unbroken ends with Close and the next time the connection is lost or back.
func (c *Conn) unbroken() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stretch
}

// both ends with a, whose values it has, or with b.
func both(a, b context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(a)
	stop := context.AfterFunc(b, cancel)
	return ctx, func() { stop(); cancel() }
}

// revive connects anew, perhaps to another server, where the connection stands but
// nothing is answered: a server that is cut off from its cluster, or has lost its
// JetStream, still answers pings. The caller's own connection is left alone.
func (c *Conn) revive() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.config.Conn != nil || time.Since(c.revived) < reviveEvery || !c.nats.IsConnected() {
		return
	}
	c.revived = time.Now()
	c.log.Warn("the broker does not answer, connecting anew", "server", c.server())
	_ = c.nats.ForceReconnect() // fails only on a closed connection
}

// Close ends the connection. It waits some seconds for answers to what was
// published; what is then unanswered may have been stored or not. A Receive that
// still runs delivers what it has and returns; acks after Close are lost, and
// their messages come again. The caller's own nats.Conn stays open. Safe to repeat.
func (c *Conn) Close() {
	c.closeOnce.Do(func() {
		if c.Connected() {
			c.courier.drain(drainTimeout)
			c.relay.drain(drainTimeout)
		}
		c.mu.Lock() // so that no Receive enters meanwhile
		c.end()
		c.mu.Unlock()
		c.parts.Wait()
		c.courier.close(ErrClosed)
		c.relay.close(ErrClosed)
		c.hangUp()
	})
}

func (c *Conn) hangUp() {
	if c.config.Conn != nil {
		return
	}
	if c.Connected() {
		_ = c.nats.FlushTimeout(drainTimeout) // acks on their way; those that are lost come again
	}
	c.nats.Close()
}

// Connected reports whether the server can be reached now.
func (c *Conn) Connected() bool { return c.nats.IsConnected() }

// Status says how the connection is.
func (c *Conn) Status() Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Status{c.nats.IsConnected(), c.server(), c.reconnects(), c.lastErr}
}

// server is the address of the server, empty while there is none.
func (c *Conn) server() string {
	if url := c.nats.ConnectedUrl(); url != "" {
		return redacted(url)
	}
	return ""
}

func (c *Conn) reconnects() uint64 { return c.nats.Stats().Reconnects }

func (c *Conn) onDisconnect(_ *nats.Conn, err error) {
	if err == nil {
		return // closed by us
	}
	c.remember(err)
	c.log.Warn("nats connection lost", "error", err)
}

func (c *Conn) onReconnect(*nats.Conn) { c.log.Info("nats connection is back", "server", c.server()) }

// onError hears what the server says out of turn. A subject that it forbids is
// reported to whoever waits for it; otherwise they would only time out.
func (c *Conn) onError(_ *nats.Conn, _ *nats.Subscription, err error) {
	c.remember(err)
	c.log.Warn("nats error", "error", err)
	if subject, ok := forbidden(err); ok {
		c.deny(subject, err)
	}
}

func (c *Conn) remember(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lastErr = err
}

func (c *Conn) deny(subject string, err error) {
	c.mu.Lock()
	for r := range c.receivers {
		r.deny(subject, err)
	}
	c.mu.Unlock()
	c.courier.deny(subject, err)
	c.relay.deny(subject, err)
}

// forbidden finds the subject in a permissions violation.
func forbidden(err error) (string, bool) {
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return "", false
	}
	_, rest, _ := strings.Cut(err.Error(), `"`)
	subject, _, ok := strings.Cut(rest, `"`)
	return subject, ok
}

// persist repeats an exchange with the broker's API while the connection or an
// answer is lost, until ctx ends.
func (c *Conn) persist(ctx context.Context, exchange func(context.Context) error) error {
	for try := 1; ; try++ {
		broken, err := c.try(ctx, exchange)
		switch {
		case err == nil:
			return nil
		case c.life.Err() != nil:
			return errors.Join(ErrClosed, err)
		case !broken && !transient(err):
			return err
		case !pause(ctx, retryWait(try)):
			return errors.Join(ctx.Err(), err)
		}
	}
}

// try does an exchange once and says whether the connection broke meanwhile. The
// exchange is not told when ctx will end: the client then gives each request some
// seconds, where it would wait all that time for an answer that was lost.
func (c *Conn) try(ctx context.Context, exchange func(context.Context) error) (broken bool, err error) {
	patient, cancel := both(context.WithoutCancel(ctx), ctx)
	defer cancel()
	stretch, release := both(patient, c.unbroken())
	defer release()
	err = c.explain(exchange(stretch))
	return stretch.Err() != nil, err
}

// transient reports whether the connection or the broker may do better in a moment.
func transient(err error) bool {
	if errors.Is(err, nats.ErrPermissionViolation) {
		return false
	}
	for _, passing := range []error{context.DeadlineExceeded, nats.ErrTimeout, nats.ErrNoResponders, nats.ErrDisconnected,
		nats.ErrReconnectBufExceeded, jetstream.ErrJetStreamNotEnabled} {
		if errors.Is(err, passing) {
			return true
		}
	}
	var api *jetstream.APIError
	return errors.As(err, &api) && api.Code == 503
}

// explain adds what the server forbade, since the call itself only timed out.
func (c *Conn) explain(err error) error {
	last := c.nats.LastError()
	if subject, ok := forbidden(last); ok && strings.HasPrefix(subject, "$JS.") && errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%w (%w)", err, last)
	}
	return err
}

// pause waits and reports whether ctx still runs.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// jitter spreads a wait over 0.75 to 1.25 of it.
func jitter(d time.Duration) time.Duration {
	return d*3/4 + rand.N(d/2+1)
}
