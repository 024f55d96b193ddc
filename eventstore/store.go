package eventstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weir-es/weir"
)

// Config says where a store is. Only URL or Pool must be given.
type Config struct {
	// URL is how to reach PostgreSQL, in any form that pgx takes. Where it sets
	// pool_max_conns, that holds.
	URL string
	// Connections is how many the pool of URL may have. Default 16, since idle
	// ones cost little and a worker that waits for one costs latency.
	Connections int
	// Pool is used instead of URL, and never closed by the store.
	Pool *pgxpool.Pool
	// Schema is where the tables live. Default "weir". Any name will do.
	Schema string
	// Shards is how many groups of streams the store is created with; fixed
	// from then on. Default weir.DefaultShards.
	Shards int
	// Types decode events. Default none: the store itself keeps bytes.
	Types *weir.Registry
	// MaxDataBytes is the largest payload. Default weir.MaxDataBytes (1 MiB).
	MaxDataBytes int
	// Poll is how often the horizon looks for appends of other processes when
	// nothing happens. Default 250 ms.
	Poll time.Duration
	// NoMigrate makes Open leave the schema alone: where it is missing or older
	// than this program, Open fails with a *SchemaError. For programs that only
	// look. Default: Open brings it up to date.
	NoMigrate bool
	// ConnectTimeout is how long Open goes on trying a server that is not
	// there yet. Default 30 s.
	ConnectTimeout time.Duration
	// RetryTimeout is how long an append goes on when the database is away or
	// its answer was lost. Default 15 s.
	RetryTimeout time.Duration
	// Logger is told what an operator should know. Default slog.Default.
	Logger *slog.Logger
}

const defaultConnections = 16

func (c Config) withDefaults() Config {
	c.Schema = orDefault(c.Schema, "weir")
	c.Shards = orDefault(c.Shards, weir.DefaultShards)
	c.MaxDataBytes = orDefault(c.MaxDataBytes, weir.MaxDataBytes)
	c.Poll = orDefault(c.Poll, 250*time.Millisecond)
	c.ConnectTimeout = orDefault(c.ConnectTimeout, 30*time.Second)
	c.RetryTimeout = orDefault(c.RetryTimeout, 15*time.Second)
	c.Logger = orDefault(c.Logger, slog.Default())
	return c
}

func orDefault[T comparable](value, otherwise T) T {
	if value == *new(T) {
		return otherwise
	}
	return value
}

// Store is an event store in one schema of one database. Safe for concurrent
// use.
type Store struct {
	config Config
	pool   *pgxpool.Pool
	own    bool // the pool is ours to close
	sql    statements
	lock   int32  // what in-flight locks of this store have in common
	table  string // what the trigger on events wants to see registered
	shards int

	horizon  horizon
	group    group
	turns    turns
	existing existing
	inline   inlines
	names    *weir.Registry

	qualified sync.Map // statements of other packages, by their text
}

// Open connects to the store and brings its schema up to date, unless the
// configuration says NoMigrate. It goes on trying for ConnectTimeout while the
// server is not there, and gives up at once on what waiting cannot mend, such as a
// wrong password. Safe to repeat.
func Open(ctx context.Context, config Config) (*Store, error) {
	s, err := prepare(config)
	if err != nil {
		return nil, err
	}
	if err := s.connect(ctx); err != nil {
		s.Close()
		return nil, err
	}
	if err := s.readySchema(ctx); err != nil {
		s.Close()
		return nil, err
	}
	if err := s.load(ctx); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func (s *Store) readySchema(ctx context.Context) error {
	if s.config.NoMigrate {
		return s.checkSchema(ctx)
	}
	return s.Migrate(ctx)
}

func prepare(config Config) (*Store, error) {
	s := &Store{config: config.withDefaults(), pool: config.Pool, names: config.Types}
	if name := s.config.Schema; len(name) > 63 || strings.ContainsRune(name, 0) {
		return nil, fmt.Errorf("open store: schema %.80q: a name has 1 to 63 bytes and no NUL", name)
	}
	s.sql = newStatements(s.config.Schema)
	s.horizon.init()
	s.group.init()
	s.turns.init()
	s.existing.forget()
	if s.names == nil {
		s.names, _ = weir.NewRegistry(nil)
	}
	if s.pool != nil {
		return s, checkMode(s.pool)
	}
	if config.URL == "" {
		return nil, errors.New("open store: say where PostgreSQL is, by URL or Pool")
	}
	pc, err := pgxpool.ParseConfig(config.URL)
	if err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	if !strings.Contains(config.URL, "pool_max_conns") {
		pc.MaxConns = max(pc.MaxConns, int32(orDefault(config.Connections, defaultConnections)))
	}
	pc.ConnConfig.ConnectTimeout = orDefault(pc.ConnConfig.ConnectTimeout, min(5*time.Second, s.config.ConnectTimeout/2))
	pc.PingTimeout = time.Second
	if asksNobody(pc.ConnConfig.DefaultQueryExecMode) {
		tellTypes(pc)
	}
	s.own = true
	s.pool, err = pgxpool.NewWithConfig(context.Background(), pc)
	return s, err
}

// asksNobody is true for the query modes that do not ask the server for the types of
// parameters.
func asksNobody(mode pgx.QueryExecMode) bool {
	return mode == pgx.QueryExecModeExec || mode == pgx.QueryExecModeSimpleProtocol
}

// tellTypes makes such a mode work for the connections of a pool. Those beside it, as
// that of a heartbeat, are told nothing, so they ask.
func tellTypes(pc *pgxpool.Config) {
	mode := pc.ConnConfig.DefaultQueryExecMode
	pc.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	pc.BeforeConnect = func(_ context.Context, c *pgx.ConnConfig) error {
		c.DefaultQueryExecMode = mode
		return nil
	}
	pc.AfterConnect = registerTypes
}

// checkMode refuses a pool of the caller's that cannot send ids.
func checkMode(pool *pgxpool.Pool) error {
	if mode := pool.Config().ConnConfig.DefaultQueryExecMode; asksNobody(mode) {
		return fmt.Errorf("open store: a pool in the query mode %q cannot send ids; use one in the mode cache_describe, which suits a pooler too, or give the store a URL", mode)
	}
	return nil
}

// inTx runs act in a transaction in which every statement sees what was committed
// before it, whatever the database's default is: who waited for a lock must see
// what the holder did.
func (s *Store) inTx(ctx context.Context, act func(pgx.Tx) error) error {
	return pgx.BeginTxFunc(ctx, s.pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, act)
}

// connect waits for the server.
func (s *Store) connect(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.config.ConnectTimeout)
	defer cancel()
	var last error // what was wrong when there was no time left to try again
	ping := func() (struct{}, error) {
		err := s.pool.Ping(ctx)
		if err == nil || ctx.Err() == nil {
			last = err
		}
		if err != nil && !isTransient(err) {
			return struct{}{}, backoff.Permanent(err)
		}
		return struct{}{}, err
	}
	notify := func(err error, next time.Duration) {
		s.config.Logger.Warn("waiting for PostgreSQL", "error", err, "retry_after", next)
	}
	_, err := backoff.Retry(ctx, ping, backoff.WithBackOff(newBackOff()),
		backoff.WithMaxElapsedTime(s.config.ConnectTimeout), backoff.WithNotify(notify))
	if err != nil {
		return fmt.Errorf("connect to PostgreSQL (is it running there, and does it accept this user?): %w", cmp.Or(last, err))
	}
	return nil
}

func newBackOff() *backoff.ExponentialBackOff {
	b := backoff.NewExponentialBackOff()
	b.InitialInterval = 50 * time.Millisecond
	b.MaxInterval = 2 * time.Second
	return b
}

// load reads what was fixed when the schema was created.
func (s *Store) load(ctx context.Context) error {
	var last, drawn weir.Position
	row := s.pool.QueryRow(ctx, s.sql.Settings, pgx.Identifier{s.config.Schema, "events"}.Sanitize())
	if err := row.Scan(&s.shards, &s.lock, &s.table, &last, &drawn); err != nil {
		return fmt.Errorf("read settings of schema %q: %w", s.config.Schema, err)
	}
	if drawn < last {
		return &SequenceBehindError{Schema: s.config.Schema, Drawn: drawn, Last: last}
	}
	if s.config.Shards != s.shards && s.config.Shards != weir.DefaultShards {
		return fmt.Errorf("open store: schema %q was created with %d shards, not %d; the number cannot change", s.config.Schema, s.shards, s.config.Shards)
	}
	return nil
}

// SequenceBehindError says that positions would be given out a second time, as
// after a restore that forgot the sequence. Nothing is appended or read until it is
// mended.
type SequenceBehindError struct {
	Schema      string
	Drawn, Last weir.Position
}

func (e *SequenceBehindError) Error() string {
	return fmt.Sprintf("schema %q: the sequence of positions is at %d, but position %d is stored, as after an incomplete restore; mend it with: %s",
		e.Schema, e.Drawn, e.Last, e.Mend())
}

// Mend is the statement that mends it.
func (e *SequenceBehindError) Mend() string {
	sequence := pgx.Identifier{e.Schema, "position"}.Sanitize()
	return fmt.Sprintf("select setval('%s', %d)", strings.ReplaceAll(sequence, "'", "''"), e.Last)
}

// Close closes the pool, unless it was the caller's.
func (s *Store) Close() {
	if s.own {
		s.pool.Close()
	}
}

// Pool is the store's connection pool, for the caller's own statements.
func (s *Store) Pool() *pgxpool.Pool { return s.pool }

// Schema is the name of the schema, unquoted.
func (s *Store) Schema() string { return s.config.Schema }

// Shards is how many groups of streams this store has.
func (s *Store) Shards() int { return s.shards }

// Types are the registered types.
func (s *Store) Types() *weir.Registry { return s.names }

// Logger is where the store reports.
func (s *Store) Logger() *slog.Logger { return s.config.Logger }

// Qualify replaces "weir." before a name by the quoted schema of this store.
func (s *Store) Qualify(sql string) string {
	if known, ok := s.qualified.Load(sql); ok {
		return known.(string)
	}
	fresh := qualify(sql, s.config.Schema)
	s.qualified.Store(sql, fresh)
	return fresh
}

// Counts says how much the store holds.
type Counts struct {
	Events  int64
	Streams int64
}

// Counts counts events and streams. Cost grows with the number of streams.
func (s *Store) Counts(ctx context.Context) (c Counts, err error) {
	if err := s.pool.QueryRow(ctx, s.sql.Counts).Scan(&c.Events, &c.Streams); err != nil {
		return c, fmt.Errorf("count events: %w", err)
	}
	return c, nil
}
