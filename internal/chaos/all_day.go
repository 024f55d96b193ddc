package main

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/devserver"
	"github.com/weir-es/weir/eventstore"
)

//go:embed sql/all_create.sql
var createSQL string

// day is a service of several processes with its servers, its producers, and the
// links between them.
type day struct {
	seed     uint64
	dir      string
	postgres *devserver.Postgres
	url      string // of the database, past all links
	broker   *broker
	seats    []*seat
	feeders  []*process
	producer []feederTask // of each feeder
	links    []*link

	keepers sync.WaitGroup
	stop    context.CancelFunc

	mu      sync.Mutex
	counts  map[mishap]int
	errs    []error
	kills   []departure
	clocks  int // that are wrong
	verbose bool
	began   time.Time
	writers int // of each instance
	relayed bool
}

// setting says what a day is made of.
type setting struct {
	seed                        uint64
	instances, feeders, writers int
	skew                        time.Duration // of the clocks, ahead or behind
	every                       time.Duration // between two facts of a lane
	trap                        string
	rest                        time.Duration // at most, before a process is replaced; default 1.5 s
	relayed, late, careful      bool          // what instances do; whether feeders have an outbox
}

// maxIngest is how much room the broker has for facts, in bytes.
const maxIngest = 2 << 20

func newDay(ctx context.Context, s setting) (d *day, err error) {
	ctx, stop := context.WithCancel(ctx)
	d = &day{seed: s.seed, counts: map[mishap]int{}, stop: stop, writers: s.writers, relayed: s.relayed}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.close())
		}
	}()
	if d.dir, err = os.MkdirTemp("", "weir-chaos-"); err != nil {
		return d, err
	}
	if d.postgres, err = devserver.StartPostgres(ctx, devserver.PostgresConfig{}); err != nil {
		return d, err
	}
	if d.url, err = d.postgres.NewDatabase(ctx); err != nil {
		return d, err
	}
	if err := d.prepare(ctx); err != nil {
		return d, err
	}
	if d.broker, err = startBroker(ctx, filepath.Join(d.dir, "broker")); err != nil {
		return d, err
	}
	for n := range s.instances {
		if err := d.seat(ctx, n, s); err != nil {
			return d, err
		}
	}
	if err := d.ready(ctx); err != nil {
		return d, err
	}
	for n := range s.feeders {
		if err := d.feed(ctx, n, s); err != nil {
			return d, err
		}
	}
	return d, nil
}

// prepare makes the schema, what the checker needs, and accounts with money in them.
func (d *day) prepare(ctx context.Context) error {
	types, err := weir.NewRegistry(loadTypes)
	if err != nil {
		return err
	}
	store, err := eventstore.Open(ctx, eventstore.Config{URL: d.url, Types: types})
	if err != nil {
		return err
	}
	defer store.Close()
	if _, err := store.Pool().Exec(ctx, createSQL); err != nil {
		return fmt.Errorf("make the tables of the checker: %w", err)
	}
	if err := balances.Prepare(ctx, store); err != nil {
		return err
	}
	var ids []weir.ID
	for n := range accounts {
		m, err := types.Encode(accountOf(n), moved{firstDeposit, "first"})
		if err != nil {
			return err
		}
		events, err := store.Append(ctx, accountOf(n), weir.NewStream, m)
		if err != nil {
			return err
		}
		ids = append(ids, idsOf(events)...)
	}
	j, err := openJournal(filepath.Join(d.dir, "first.journal"))
	if err != nil {
		return err
	}
	return j.note("appended", ids...)
}

// seat adds an instance with links of its own to both servers.
func (d *day) seat(ctx context.Context, n int, s setting) error {
	u, err := url.Parse(d.url)
	if err != nil {
		return err
	}
	toPostgres, err := d.link(fmt.Sprintf("instance %d to the database", n), u.Host)
	if err != nil {
		return err
	}
	toBroker, err := d.link(fmt.Sprintf("instance %d to the broker", n), d.broker.address())
	if err != nil {
		return err
	}
	u.Host = toPostgres.address()
	q := u.Query()
	q.Set("application_name", fmt.Sprint("chaos ", n))
	u.RawQuery = q.Encode()
	rests := dice(s.seed, fmt.Sprint("rest ", n))
	ahead := d.clock(s, n)
	kept := newSeat(n, func() time.Duration {
		return between(rests, 100*time.Millisecond, cmp.Or(s.rest, 1500*time.Millisecond))
	},
		func(ctx context.Context, name string, end death) (*process, error) {
			return launch(ctx, "instance", name, instanceTask{Name: name, Seed: s.seed, Postgres: u.String(), NATS: "nats://" + toBroker.address(),
				Ahead: ahead, Journal: filepath.Join(d.dir, name+".journal"), Writers: s.writers, MaxIngestBytes: maxIngest, Trap: s.trap,
				Relayed: s.relayed, Late: s.late, Death: end})
		})
	d.seats = append(d.seats, kept)
	d.keepers.Go(func() {
		if err := kept.keep(ctx); err != nil && ctx.Err() == nil {
			d.fail(err)
		}
	})
	return nil
}

// clock is how far the clock of a process is ahead: by turns not at all, by all of the
// skew, and behind by it.
func (d *day) clock(s setting, n int) time.Duration {
	ahead := []time.Duration{0, s.skew, -s.skew}[n%3]
	if ahead != 0 {
		d.clocks++
	}
	return ahead
}

// feed adds a producer with a link of its own to the broker.
func (d *day) feed(ctx context.Context, n int, s setting) error {
	toBroker, err := d.link(fmt.Sprintf("feeder %d to the broker", n), d.broker.address())
	if err != nil {
		return err
	}
	name := fmt.Sprint("feeder-", n)
	task := feederTask{Name: name, Seed: s.seed, NATS: "nats://" + toBroker.address(), Postgres: d.url,
		Ahead: d.clock(s, n+1), Journal: filepath.Join(d.dir, name+".journal"), Lanes: 6, Every: s.every}
	if s.careful {
		task.Outbox = filepath.Join(d.dir, name+".outbox")
	}
	p, err := launchFeeder(ctx, task)
	d.feeders, d.producer = append(d.feeders, p), append(d.producer, task)
	return err
}

func launchFeeder(ctx context.Context, task feederTask) (*process, error) {
	p, err := launch(ctx, "feeder", task.Name, task)
	if err == nil {
		_, err = p.await(ctx, "ready", time.Minute)
	}
	return p, err
}

func (d *day) link(name, server string) (*link, error) {
	l, err := newLink(name, server)
	if err == nil {
		d.links = append(d.links, l)
	}
	return l, err
}

// ready waits until every seat has a process that runs.
func (d *day) ready(ctx context.Context) error {
	for _, s := range d.seats {
		p, err := s.now(ctx)
		if err != nil {
			return err
		}
		if _, err := p.await(ctx, "ready", time.Minute); err != nil {
			return err
		}
	}
	return nil
}

// tell says on standard error what goes on, if that is wanted.
func (d *day) tell(format string, with ...any) {
	if d.verbose {
		fmt.Fprintf(os.Stderr, "%7.2fs %s\n", time.Since(d.began).Seconds(), fmt.Sprintf(format, with...))
	}
}

func (d *day) fail(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.errs = append(d.errs, err)
}

// close ends everything that is left, and removes it.
func (d *day) close() error {
	d.stop()
	d.keepers.Wait()
	for _, p := range d.feeders {
		if p != nil {
			p.kill()
		}
	}
	if d.broker != nil && d.broker.process != nil {
		d.broker.stop(false)
	}
	var errs []error
	for _, l := range d.links {
		errs = append(errs, l.close())
	}
	if d.postgres != nil {
		errs = append(errs, d.postgres.Close())
	}
	return errors.Join(append(errs, os.RemoveAll(d.dir))...)
}

// ask runs a statement over a connection of the checker's own.
func (d *day) ask(ctx context.Context, act func(*pgx.Conn) error) error {
	conn, err := pgx.Connect(ctx, d.url)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	return act(conn)
}
