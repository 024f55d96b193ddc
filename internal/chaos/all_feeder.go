package main

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/transport"
)

// feederTask is what a producer of facts is told.
type feederTask struct {
	Name           string
	Seed           uint64
	NATS, Postgres string
	Ahead          time.Duration // of its clock
	Journal        string
	Lanes          int           // how many messages it publishes at a time
	Every          time.Duration // between two of a lane, on average
	// Outbox is a file in which it notes what it is about to publish, and from which
	// whoever comes after it publishes what was not answered. Default none.
	Outbox string
}

// feeder publishes facts about topics that others have something to say about, too.
//
// It is a careful producer: a broker that lost its disk has lost what it had
// acknowledged and nobody had stored, so when a feeder is told of that it publishes
// again, with the same ids, what it cannot find in the store. What it sent before it
// was told, and had no answer to yet, it sends once more, since the answer may be the
// lost broker's.
type feeder struct {
	feederTask
	ids       *weir.Generator
	types     *weir.Registry
	journal   *journal
	outbox    *outbox
	publisher *transport.Publisher
	say       func(word)

	mu     sync.Mutex
	number int
	losses int                      // how often the broker lost what it had
	sent   map[weir.ID]weir.Message // acknowledged

	gate  sync.RWMutex // held for reading while a message is under way
	quiet chan struct{}
}

func feederRole(ctx context.Context, task json.RawMessage, orders <-chan string, say func(word)) (err error) {
	f := &feeder{say: say, sent: map[weir.ID]weir.Message{}, quiet: make(chan struct{})}
	if err := json.Unmarshal(task, &f.feederTask); err != nil {
		return err
	}
	f.ids = clockAhead(f.Ahead)
	if f.types, err = weir.NewRegistry(loadTypes); err != nil {
		return err
	}
	if f.journal, err = openJournal(f.Journal); err != nil {
		return err
	}
	conn, err := transport.Connect(ctx, transport.Config{URL: f.NATS, Namespace: "weir", Name: f.Name})
	if err != nil {
		return err
	}
	defer conn.Close()
	f.publisher = conn.Publisher()
	say(word{Say: "ready"})
	if err := f.inherit(ctx); err != nil {
		return err
	}

	var lanes errgroup.Group
	for n := range f.Lanes {
		d := dice(f.Seed, fmt.Sprint(f.Name, " ", n))
		lanes.Go(func() error { return f.lane(ctx, d) })
	}
	ended := make(chan error, 1)
	go func() { ended <- lanes.Wait() }()
	return f.obey(ctx, orders, ended)
}

// obey does what it is told until the lanes have ended.
func (f *feeder) obey(ctx context.Context, orders <-chan string, ended <-chan error) error {
	for {
		select {
		case order := <-orders:
			if err := f.do(ctx, order); err != nil {
				return fmt.Errorf("%s: %w", order, err)
			}
		case err := <-ended:
			if err != nil {
				return err
			}
			f.say(word{Say: "quiet"})
			ended = nil
		case <-ctx.Done():
			return nil
		}
	}
}

func (f *feeder) do(ctx context.Context, order string) error {
	if obeyDeath(order, f.say) {
		return nil
	}
	switch order {
	case "quiet":
		close(f.quiet)
	case "pause":
		f.gate.Lock() // as soon as nothing is under way
		f.say(word{Say: "paused"})
	case "resume":
		f.gate.Unlock()
	case "repeat":
		if err := f.repeat(ctx); err != nil {
			return err
		}
		f.say(word{Say: "repeated"})
	case "flood":
		return f.flood(ctx)
	default:
		return f.publish(ctx, f.message(topicOf(0), remark{By: order})) // a trap
	}
	return nil
}

func (f *feeder) lane(ctx context.Context, d *rand.Rand) error {
	for pauseUnless(ctx, f.quiet, between(d, 0, 2*f.Every)) {
		f.gate.RLock()
		err := f.publish(ctx, f.message(topicOf(d.IntN(topics)), remark{By: f.Name}))
		f.gate.RUnlock()
		if err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

// floodMessages of floodBytes are more than the broker has room for.
const (
	floodMessages = 24
	floodBytes    = 100 << 10
)

// flood sends large messages, of topics of their own, all at once.
func (f *feeder) flood(ctx context.Context) error {
	ballast := strings.Repeat("weir", floodBytes/4)
	var g errgroup.Group
	for n := range floodMessages {
		m := f.message(weir.Stream("flood", fmt.Sprintf("%s%02d", f.Name, n)), remark{By: f.Name, Ballast: ballast})
		g.Go(func() error { return f.publish(ctx, m) })
	}
	return g.Wait()
}

func (f *feeder) message(stream weir.StreamID, fact remark) weir.Message {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.number++
	fact.Number = f.number
	m, err := f.types.Encode(stream, fact)
	if err != nil {
		panic(err) // all types of the load are registered
	}
	m.ID = f.ids.New()
	return m
}

// publish returns when the broker, as it is now, has the message.
func (f *feeder) publish(ctx context.Context, m weir.Message) error {
	if err := f.outbox.note(m); err != nil {
		return err
	}
	for {
		losses := f.lossesSoFar()
		if err := f.publisher.Publish(ctx, m); err != nil {
			return err
		}
		if f.note(m, losses) {
			return f.journal.note("published", m.ID)
		}
	}
}

func (f *feeder) lossesSoFar() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.losses
}

// note keeps a message that was acknowledged, unless the broker lost something since
// it was sent.
func (f *feeder) note(m weir.Message, losses int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.losses != losses {
		return false
	}
	f.sent[m.ID] = m
	return true
}

//go:embed sql/all_missing.sql
var missingSQL string

// repeat publishes again what was acknowledged and is not stored.
func (f *feeder) repeat(ctx context.Context) error {
	f.mu.Lock()
	f.losses++
	all := make([]weir.ID, 0, len(f.sent))
	for id := range f.sent {
		all = append(all, id)
	}
	f.mu.Unlock()
	missing, err := missing(ctx, f.Postgres, all)
	if err != nil {
		return err
	}
	slices.SortFunc(missing, func(a, b weir.ID) int { return bytes.Compare(a[:], b[:]) })
	messages := make([]weir.Message, len(missing))
	f.mu.Lock()
	for i, id := range missing {
		messages[i] = f.sent[id]
	}
	f.mu.Unlock()
	return f.publisher.Publish(ctx, messages...)
}

// missing asks the store which of these ids it does not have, until it answers.
func missing(ctx context.Context, url string, ids []weir.ID) (out []weir.ID, err error) {
	for {
		if out, err = askMissing(ctx, url, ids); err == nil || !pause(ctx, 100*time.Millisecond) {
			return out, err
		}
	}
}

func askMissing(ctx context.Context, url string, ids []weir.ID) ([]weir.ID, error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	wanted := make([][16]byte, len(ids))
	for i, id := range ids {
		wanted[i] = id
	}
	rows, _ := conn.Query(ctx, missingSQL, wanted)
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (id weir.ID, err error) {
		return id, row.Scan((*[16]byte)(&id))
	})
}
