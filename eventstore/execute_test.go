package eventstore_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	osexec "os/exec"
	"sync"
	"testing"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/eventstore"
	"github.com/weir-es/weir/internal/testkit"
)

type deposited struct{ Amount int }

type deposit struct {
	Account string
	Amount  int
}

var errRefused = errors.New("nothing to deposit")

func (d deposit) Stream() weir.StreamID { return weir.Stream("account", d.Account) }

func (d deposit) Decide(a account) ([]any, error) {
	if d.Amount == 0 {
		return nil, errRefused
	}
	if d.Amount < 0 {
		return nil, nil
	}
	a.Seen[fmt.Sprint(d.Amount)] = -1 // a caller that changes what it was given
	return []any{deposited{d.Amount}}, nil
}

// account is a fold with a map, in which a change of a shared copy would show.
type account struct {
	Balance, Count int
	Seen           map[string]int
}

func (a account) Evolve(event any) account {
	d, ok := event.(deposited)
	if !ok {
		return a
	}
	next := account{a.Balance + d.Amount, a.Count + 1, map[string]int{}}
	for k, v := range a.Seen {
		next.Seen[k] = v
	}
	next.Seen[fmt.Sprint(d.Amount)]++
	return next
}

// snapped is an account with snapshots.
type snapped struct{ account }

var schema = 1

func (s snapped) Evolve(event any) snapped           { return snapped{s.account.Evolve(event)} }
func (s snapped) Snapshots() (every, schemaOfIt int) { return 10, schema }

type snappedDeposit struct{ deposit }

func (d snappedDeposit) Decide(s snapped) ([]any, error) {
	if s.Seen == nil {
		s.Seen = map[string]int{}
	}
	return d.deposit.Decide(s.account)
}

func bank(t testing.TB, url string) *eventstore.Store {
	registry, err := weir.NewRegistry(weir.Types{"account.deposited": weir.EventOf[deposited]()})
	if err != nil {
		t.Fatal(err)
	}
	return testkit.Store(t, eventstore.Config{URL: url, Types: registry})
}

type openDeposit struct{ deposit }

func (d openDeposit) Decide(a account) ([]any, error) {
	if a.Seen == nil {
		a.Seen = map[string]int{}
	}
	return d.deposit.Decide(a)
}

func TestExecuteLoadsDecidesAndAppends(t *testing.T) {
	t.Parallel()
	s := bank(t, "")
	ctx := testkit.Context(t)
	for n := 1; n <= 3; n++ {
		events, err := eventstore.Execute(ctx, s, openDeposit{deposit{"ada", n}})
		if err != nil || len(events) != 1 || events[0].Version != weir.Version(n) || events[0].Type != "account.deposited" {
			t.Fatalf("deposit %d: %v, %v", n, events, err)
		}
	}
	if _, err := eventstore.Execute(ctx, s, openDeposit{deposit{"ada", 0}}); !errors.Is(err, errRefused) {
		t.Errorf("a refused command gave %v", err)
	}
	if events, err := eventstore.Execute(ctx, s, openDeposit{deposit{"ada", -1}}); err != nil || events != nil {
		t.Errorf("nothing to do gave %v, %v", events, err)
	}
	a, version, err := eventstore.Load[account](ctx, s, "account-ada")
	if err != nil || version != 3 || a.Balance != 6 {
		t.Errorf("loaded %+v at %d, %v", a, version, err)
	}
	if a, version, err := eventstore.Load[account](ctx, s, "account-nobody"); err != nil || version != 0 || a.Count != 0 {
		t.Errorf("nobody has %+v at %d, %v", a, version, err)
	}
}

// TestP5_DecisionsSortAfterWhatTheySaw although the event they saw has an id from
// a clock that is ahead.
func TestP5_DecisionsSortAfterWhatTheySaw(t *testing.T) {
	t.Parallel()
	s := bank(t, "")
	ctx := testkit.Context(t)
	ahead := message("account-ada", 1)
	ahead.Type = "account.deposited"
	ahead.Data = []byte(`{"Amount":1}`)
	if err := ahead.ID.SetTime(ahead.ID.Time() + 30_000); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Ingest(ctx, false, ahead); err != nil {
		t.Fatal(err)
	}
	events, err := eventstore.Execute(ctx, s, openDeposit{deposit{"ada", 5}})
	if err != nil || events[0].ID.Compare(ahead.ID) <= 0 || events[0].OrderID != (weir.ID{}) {
		t.Errorf("decided %v, %v, which should sort after %s by itself", events, err, ahead.ID)
	}
}

// TestSnapshotsEqualTheFold at every version, with commands that change the state
// they are given, across a change of schema and a snapshot that cannot be read.
// (marten#4509: a snapshot of a mutated aggregate counts twice)
func TestSnapshotsEqualTheFold(t *testing.T) {
	s := bank(t, "")
	ctx := testkit.Context(t)
	schema = 1
	snapshots := func() (n, version int) {
		err := s.Pool().QueryRow(ctx, "select count(*), coalesce(max(version), 0) from weir.snapshots").Scan(&n, &version)
		if err != nil {
			t.Fatal(err)
		}
		return n, version
	}
	for n := 1; n <= 45; n++ {
		switch n {
		case 20:
			schema = 2
		case 33:
			if _, err := s.Pool().Exec(ctx, `update weir.snapshots set state = '{"Balance":"many"}'`); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := eventstore.Execute(ctx, s, snappedDeposit{deposit{"ada", n}}); err != nil {
			t.Fatal(err)
		}
		folded, _, err := eventstore.Load[account](ctx, s, "account-ada")
		if err != nil {
			t.Fatal(err)
		}
		got, version, err := eventstore.Load[snapped](ctx, s, "account-ada")
		if err != nil || version != weir.Version(n) || fmt.Sprint(got.account) != fmt.Sprint(folded) {
			t.Fatalf("at version %d: %+v, want %+v, %v", version, got.account, folded, err)
		}
	}
	if n, version := snapshots(); n != 1 || version < 35 {
		t.Errorf("%d snapshots, the newest at version %d", n, version)
	}
	// A load begins with it: what stands before is not looked at.
	if _, err := s.Pool().Exec(ctx, `update weir.events set data = '"not an object"' where version < 30`); err != nil {
		t.Fatal(err)
	}
	if got, _, err := eventstore.Load[snapped](ctx, s, "account-ada"); err != nil || got.Count != 45 {
		t.Errorf("loaded %+v, %v", got, err)
	}
}

// TestManyWritersOfOneStream in two processes: versions are contiguous, every
// success is stored once, every failure is a conflict; through Execute all succeed.
func TestManyWritersOfOneStream(t *testing.T) {
	const writers, each = 16, 15
	url := os.Getenv("WEIR_TEST_WRITERS")
	child := url != ""
	if !child {
		url = testkit.Database(t)
	}
	s := bank(t, url)
	ctx := testkit.Context(t)
	var other *osexec.Cmd
	if !child {
		other = osexec.CommandContext(ctx, os.Args[0], "-test.run=^TestManyWritersOfOneStream$")
		other.Env = append(os.Environ(), "WEIR_TEST_WRITERS="+url)
		if err := other.Start(); err != nil {
			t.Fatal(err)
		}
	}
	won := map[weir.ID]bool{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for n := range each {
				if _, err := eventstore.Execute(ctx, s, openDeposit{deposit{"shared", n + 1}}); err != nil {
					t.Errorf("execute: %v", err)
				}
				id, err := appendAtHead(ctx, s)
				switch {
				case err == nil:
					mu.Lock()
					won[id] = true
					mu.Unlock()
				case !errors.Is(err, weir.ErrConflict):
					t.Errorf("append: %v", err)
				}
			}
		})
	}
	wg.Wait()
	if child {
		return
	}
	if err := other.Wait(); err != nil {
		t.Fatalf("the other process: %v", err)
	}
	executed := read(t, s, "account-shared")
	if len(executed) != 2*writers*each {
		t.Errorf("%d commands were executed, want %d", len(executed), 2*writers*each)
	}
	for _, stream := range []weir.StreamID{"account-shared", "race-1"} {
		for i, e := range read(t, s, stream) {
			if e.Version != weir.Version(i+1) {
				t.Fatalf("%s: event %d has version %d", stream, i, e.Version)
			}
			delete(won, e.ID)
		}
	}
	if len(won) > 0 {
		t.Errorf("%d appends succeeded and are not stored", len(won))
	}
}

// appendAtHead appends to a stream at the version that it is seen to have.
func appendAtHead(ctx context.Context, s *eventstore.Store) (weir.ID, error) {
	last := weir.Version(0)
	for e, err := range s.ReadStream(ctx, "race-1", eventstore.Read{Backward: true, Limit: 1}) {
		if err != nil {
			return weir.ID{}, err
		}
		last = e.Version
	}
	m := message("race-1", int(last))
	_, err := s.Append(ctx, "race-1", weir.Exactly(last), m)
	return m.ID, err
}
