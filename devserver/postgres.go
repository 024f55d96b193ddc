package devserver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	// superuser is the name of the user in every URL.
	superuser = "postgres"

	// postgresReady is how long a server may take until it answers queries,
	// recovery after a crash included.
	postgresReady = 2 * time.Minute

	// postgresGone is how long a server may take to end before it is killed.
	postgresGone = 10 * time.Second
)

// PostgresConfig says how a PostgreSQL runs. The zero value is a throw-away
// server.
type PostgresConfig struct {
	// Durable keeps the data on a disk and lets the server wait for the disk as
	// one in production does. Default false: data in memory where that is
	// possible, and nothing waits. Either way what was committed survives a crash
	// of the server. Set it for benchmarks.
	Durable bool

	// Settings are added to the server's own, by their names in postgresql.conf:
	// {"max_prepared_transactions": "10"}. They win over what is set here.
	Settings map[string]string

	// Dir is where the data, the log and the superuser's password are. Default a
	// temporary folder that Close removes. A folder named here stays, and a
	// server started with it later finds its data again.
	Dir string
}

// Postgres is a PostgreSQL server in a child process. Its methods may be called
// from several goroutines.
type Postgres struct {
	config  PostgresConfig
	bin     binaries
	as      *account
	folder  *folder
	cluster cluster
	port    int

	mu     sync.Mutex
	child  *child // nil before the first start
	closed bool

	templates templates
}

// StartPostgres starts a PostgreSQL and returns when it answers queries, in about
// half a second once an earlier start has prepared the ground. If there are no
// binaries and none can be had, the error is a *NoPostgresError that says what to
// install. The caller closes the server.
func StartPostgres(ctx context.Context, config PostgresConfig) (*Postgres, error) {
	as, err := serverAccount()
	if err != nil {
		return nil, err
	}
	bin, err := newFinder(as).find(ctx)
	if err != nil {
		return nil, err
	}
	return startPostgres(ctx, config, bin, as)
}

func startPostgres(ctx context.Context, config PostgresConfig, bin binaries, as *account) (*Postgres, error) {
	cache := cacheDir(cacheCandidates(), func(string) bool { return true })
	sweep(append(bases(), cache)...)
	p, err := tryPostgres(ctx, config, bin, as, cache)
	if err == nil || ctx.Err() != nil || config.Dir != "" {
		return p, err
	}
	// What an earlier start kept may be the trouble: caches lose files.
	if !discard(kept(cache, bin)) {
		return nil, err
	}
	return tryPostgres(ctx, config, bin, as, cache)
}

func tryPostgres(ctx context.Context, config PostgresConfig, bin binaries, as *account, cache string) (*Postgres, error) {
	p := &Postgres{config: config, bin: bin, as: as}
	var err error
	if p.folder, err = p.place(); err != nil {
		return nil, err
	}
	if p.cluster, err = newCluster(ctx, bin, p.folder.path, as, cache); err == nil {
		err = p.startFirst(ctx)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start postgres from %s: %w", bin.dir, err), p.folder.remove())
	}
	return p, nil
}

// place returns the folder the server will live in.
func (p *Postgres) place() (*folder, error) {
	if p.config.Dir == "" {
		base, err := dataBase(p.config.Durable, p.as)
		if err != nil {
			return nil, err
		}
		return newFolder(base, "")
	}
	f, err := newFolder("", p.config.Dir)
	if err != nil {
		return nil, err
	}
	if !p.as.reaches(filepath.Dir(f.path)) {
		return nil, fmt.Errorf("PostgreSQL does not run as root, and its own account cannot reach %s", f.path)
	}
	return f, nil
}

// startFirst starts the server on the first port that stays free long enough.
func (p *Postgres) startFirst(ctx context.Context) error {
	var err error
	for range attempts {
		if p.port, err = freePort(); err != nil {
			return err
		}
		if err = p.Resume(ctx); !errors.Is(err, errPortTaken) {
			return err
		}
	}
	return err
}

// URL is the address of the database postgres, for its superuser. It stays the
// same across Stop and Resume.
func (p *Postgres) URL() string { return p.url("postgres") }

func (p *Postgres) url(database string) string {
	u := url.URL{
		Scheme:   "postgres",
		User:     url.UserPassword(superuser, p.cluster.password),
		Host:     net.JoinHostPort(loopback, strconv.Itoa(p.port)),
		Path:     database,
		RawQuery: "sslmode=disable",
	}
	return u.String()
}

// Stop ends the server and keeps its port and its data for Resume. Mode "fast"
// rolls back what is open and writes everything out; mode "immediate" is a crash,
// after which the server recovers. It returns when the server is gone, or with
// ctx while it still runs. Stopping a stopped server does nothing.
func (p *Postgres) Stop(ctx context.Context, mode string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if mode != "fast" && mode != "immediate" {
		return fmt.Errorf("stop postgres: mode %q is neither fast nor immediate", mode)
	}
	if !p.child.alive() {
		return nil
	}
	if err := shutdown(p.child, p.bin, p.cluster.data(), mode); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop postgres: %w", err)
	}
	select {
	case <-p.child.ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stop postgres: still running: %w", context.Cause(ctx))
	}
}

// Resume starts a stopped server on the same port with the same data, and returns
// when it answers queries. Resuming a running server does nothing.
func (p *Postgres) Resume(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return errClosed
	}
	if p.child.alive() {
		return nil
	}
	c, err := p.spawn()
	if err != nil {
		return fmt.Errorf("start postgres: %w", err)
	}
	if err := p.ready(ctx, c); err != nil {
		c.kill()
		return errors.Join(fmt.Errorf("start postgres on port %d: %w\n%s", p.port, err, p.lastWords()), probe(p.port))
	}
	p.child = c
	return nil
}

// Restart stops the server in the given mode, "fast" or "immediate", and starts
// it again on the same port with the same data.
func (p *Postgres) Restart(ctx context.Context, mode string) error {
	if err := p.Stop(ctx, mode); err != nil {
		return err
	}
	return p.Resume(ctx)
}

// Close ends the server and removes its files, unless they are in a folder that
// the configuration named. It may be called again.
func (p *Postgres) Close() error {
	mode := "immediate" // nobody will miss the data
	if p.config.Dir != "" {
		mode = "fast"
	}
	ctx, cancel := context.WithTimeout(context.Background(), postgresGone)
	defer cancel()
	err := p.Stop(ctx, mode)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	if err != nil {
		p.child.kill()
	}
	return p.folder.remove()
}

// spawn starts the process.
func (p *Postgres) spawn() (*child, error) {
	log, err := os.OpenFile(p.cluster.log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(p.bin.program("postgres"), p.arguments()...)
	cmd.Dir, cmd.Env = p.cluster.dir, environment(p.cluster.dir)
	cmd.Stdout, cmd.Stderr = log, log
	return startChild(cmd, p.as)
}

func (p *Postgres) arguments() []string {
	settings := maps.Clone(common)
	if !p.config.Durable {
		maps.Copy(settings, careless)
	}
	settings["port"] = strconv.Itoa(p.port)
	maps.Copy(settings, p.config.Settings)
	arguments := []string{"-D", p.cluster.data()}
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		arguments = append(arguments, "-c", name+"="+settings[name])
	}
	return arguments
}

// common are the settings of every server.
var common = map[string]string{
	"listen_addresses":        loopback,
	"unix_socket_directories": "", // their paths may be 107 bytes long, temporary folders may be longer
	"max_connections":         "200",
	"timezone":                "UTC",
	"log_timezone":            "UTC",

	// Not in /dev/shm, which others clean and which in containers is small.
	"dynamic_shared_memory_type": "mmap",
}

// careless are the settings of a server whose data need not survive the machine.
// It must survive the server, which tests let crash, so commits are synchronous;
// that costs nothing where no disk is waited for.
var careless = map[string]string{
	"fsync":            "off",
	"full_page_writes": "off",
	"wal_level":        "minimal",
	"max_wal_senders":  "0",
	"max_wal_size":     "256MB", // it is in memory
	"shared_buffers":   "64MB",
}

// ready waits until the server answers a query.
func (p *Postgres) ready(ctx context.Context, c *child) error {
	ctx, cancel := context.WithTimeout(ctx, postgresReady)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !p.accepting(c) {
		select {
		case <-c.ended:
			return fmt.Errorf("the server ended: %w", c.err)
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
	return p.execute(ctx, "select 1")
}

// accepting says whether the status file in the data directory is of this very
// process and says so. Somebody else's server may answer on the port that this
// one could not get.
func (p *Postgres) accepting(c *child) bool {
	const pid, status, lines = 0, 7, 8
	text, err := os.ReadFile(filepath.Join(p.cluster.data(), "postmaster.pid"))
	if err != nil {
		return false
	}
	line := strings.Split(string(text), "\n")
	return len(line) >= lines && line[pid] == strconv.Itoa(c.process.Pid) && strings.TrimSpace(line[status]) == "ready"
}

// lastWords returns the end of the server's log.
func (p *Postgres) lastWords() string {
	const enough = 2000
	text, err := os.ReadFile(p.cluster.log())
	if err != nil {
		return ""
	}
	return string(text[max(0, len(text)-enough):])
}

// execute runs statements, each in a transaction of its own, in the database
// postgres.
func (p *Postgres) execute(ctx context.Context, statements ...string) error {
	conn, err := pgx.Connect(ctx, p.URL())
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	for _, statement := range statements {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}
