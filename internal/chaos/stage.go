package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/devserver"
	"github.com/weir-es/weir/eventstore"
)

var (
	//go:embed sql/stored.sql
	storedSQL string
	//go:embed sql/kill_writer.sql
	killWriter string
	//go:embed sql/prepared.sql
	preparedSQL string
)

// happened is the one event there is.
type happened struct{}

var types = weir.Types{"chaos.happened": weir.EventOf[happened]()}

// stage is a database and who plays on it. What it calls a process is a store with
// connections and a horizon of its own.
type stage struct {
	options
	server   *devserver.Postgres
	url      string
	registry *weir.Registry
	ledger   *ledger
	timeline timeline
	killed   int

	// head is the last position there will be, once the writers are done.
	head atomic.Int64

	processes sync.WaitGroup
	stop      context.CancelFunc // ends the processes
	mu        sync.Mutex
	stores    []*eventstore.Store
	failures  []error
}

func newStage(ctx context.Context, o options) (*stage, error) {
	registry, err := weir.NewRegistry(types)
	if err != nil {
		return nil, err
	}
	server, err := devserver.StartPostgres(ctx, devserver.PostgresConfig{Settings: map[string]string{"max_prepared_transactions": "10"}})
	if err != nil {
		return nil, err
	}
	s := &stage{options: o, server: server, registry: registry, ledger: newLedger()}
	if s.url, err = server.NewDatabase(ctx); err != nil {
		return nil, errors.Join(err, server.Close())
	}
	return s, nil
}

// close ends everything, and says what went wrong meanwhile.
func (s *stage) close() error {
	if s.stop != nil {
		s.stop()
	}
	s.processes.Wait()
	for _, store := range s.stores {
		store.Close()
	}
	return errors.Join(append(s.failures, s.server.Close())...)
}

// fail notes an error that no kill explains.
func (s *stage) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failures = append(s.failures, err)
}

// process opens a store under a name that the killer knows it by, and keeps its
// horizon up to date.
func (s *stage) process(ctx context.Context, name string) (*eventstore.Store, error) {
	store, err := eventstore.Open(ctx, eventstore.Config{URL: s.named(name), Types: s.registry, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	s.stores = append(s.stores, store)
	s.processes.Go(func() {
		if err := store.Run(ctx); err != nil {
			s.fail(fmt.Errorf("process %s: %w", name, err))
		}
	})
	return store, nil
}

func (s *stage) named(program string) string {
	u, err := url.Parse(s.url)
	if err != nil {
		panic(err) // devserver made it
	}
	q := u.Query()
	q.Set("application_name", program)
	u.RawQuery = q.Encode()
	return u.String()
}

// dice are those of one actor: the same seed and name throw the same.
func (s *stage) dice(name string) *rand.Rand { return dice(s.seed, name) }

func dice(seed uint64, name string) *rand.Rand {
	h := uint64(14695981039346656037)
	for _, c := range []byte(name) {
		h = (h ^ uint64(c)) * 1099511628211
	}
	return rand.New(rand.NewPCG(seed, h))
}

// kill ends a backend of a random writer now and then, until the writers' time is
// over.
func (s *stage) kill(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, s.url)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	dice := s.dice("killer")
	for pause(ctx, between(dice, 50*time.Millisecond, 250*time.Millisecond)) && time.Now().Before(s.timeline.end()) {
		var gone bool
		err := conn.QueryRow(ctx, killWriter, []string{"writer", "worker"}, fmt.Sprint(dice.Uint64())).Scan(&gone)
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return fmt.Errorf("kill a backend: %w", err)
		}
		if gone {
			s.killed++
		}
	}
	return nil
}

// foreign has a transaction that has written open in another database: in some turns
// of the calm part, and in all of the rough one.
func (s *stage) foreign(ctx context.Context) error {
	elsewhere, err := s.server.NewDatabase(ctx)
	if err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, elsewhere)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	for n := range turns + 1 {
		from, to := s.timeline.turnFrom(n), s.timeline.turnFrom(n+1)
		if n == turns {
			to = s.timeline.end()
		} else if !isForeign(n) {
			continue
		}
		if err := hold(ctx, conn, from, to); err != nil {
			return fmt.Errorf("write in another database: %w", err)
		}
	}
	return nil
}

// hold keeps a transaction open that has written.
func hold(ctx context.Context, conn *pgx.Conn, from, to time.Time) error {
	pause(ctx, time.Until(from))
	tx, err := conn.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback(context.WithoutCancel(ctx))
	if _, err := tx.Exec(ctx, "create table unrelated as select generate_series(1, 1000) n"); err != nil {
		return err
	}
	pause(ctx, time.Until(to))
	return nil
}

// settle ends what dead sessions left prepared, appends one last event and makes
// its position known to the readers.
func (s *stage) settle(ctx context.Context, store *eventstore.Store) error {
	rows, _ := store.Pool().Query(ctx, preparedSQL)
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return fmt.Errorf("look for prepared transactions: %w", err)
	}
	for _, name := range names {
		if _, err := store.Pool().Exec(ctx, "rollback prepared '"+name+"'"); err != nil {
			return fmt.Errorf("roll back what %s prepared: %w", name, err)
		}
	}
	last := message("chaos-end")
	events, err := store.Append(ctx, "chaos-end", weir.NewStream, last)
	if err != nil {
		return err
	}
	s.ledger.ack(last)
	s.head.Store(int64(events[0].Position))
	return nil
}

// stored reads the whole table.
func (s *stage) stored(ctx context.Context, store *eventstore.Store) ([]delivery, error) {
	return deliveries(ctx, store, storedSQL)
}

// deliveries reads a statement that selects position, id, stream and version.
func deliveries(ctx context.Context, store *eventstore.Store, sql string) ([]delivery, error) {
	rows, _ := store.Pool().Query(ctx, sql)
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (d delivery, err error) {
		return d, row.Scan(&d.position, (*[16]byte)(&d.id), &d.stream, &d.version)
	})
}

// pause waits, and reports whether ctx still lives.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

func between(dice *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(dice.Int64N(int64(max(1, most-least))))
}

// isKill says whether an error may come from a backend that was killed, or from
// writers that were in each other's way.
func isKill(err error) bool {
	var pg *pgconn.PgError
	aborted := errors.As(err, &pg) && pg.Code == "25P02"
	return aborted || eventstore.IsTransient(err) || errors.Is(err, pgx.ErrTxClosed)
}
