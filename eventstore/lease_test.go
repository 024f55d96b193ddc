package eventstore_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/eventstore"
	"github.com/weir-es/weir/internal/testkit"
)

// join makes an instance that lives.
func join(t *testing.T, s *eventstore.Store, name string) *eventstore.Instance {
	t.Helper()
	i := s.Join(name)
	t.Cleanup(func() { i.Disconnect(context.Background()) })
	if _, err := i.Heartbeat(testkit.Context(t)); err != nil {
		t.Fatal(err)
	}
	return i
}

func shards(n int) []weir.Shard {
	all := make([]weir.Shard, n)
	for i := range all {
		all[i] = weir.Shard(i)
	}
	return all
}

func claim(t *testing.T, i *eventstore.Instance, n int) []eventstore.Lease {
	t.Helper()
	leases, err := i.Claim(testkit.Context(t), "scope", shards(n))
	if err != nil {
		t.Fatal(err)
	}
	return leases
}

func exec(t *testing.T, s *eventstore.Store, sql string, args ...any) {
	t.Helper()
	if _, err := s.Pool().Exec(testkit.Context(t), s.Qualify(sql), args...); err != nil {
		t.Fatal(err)
	}
}

func scalar[T any](t *testing.T, s *eventstore.Store, sql string, args ...any) (value T) {
	t.Helper()
	if err := s.Pool().QueryRow(testkit.Context(t), s.Qualify(sql), args...).Scan(&value); err != nil {
		t.Fatal(err)
	}
	return value
}

// blocked is how many statements in the store's database wait for a lock.
func blocked(t *testing.T, s *eventstore.Store) int {
	t.Helper()
	return scalar[int](t, s, "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'")
}

// TestP7_ClaimsAtTheSameTimeShareNothing: of two instances that claim together,
// each lease has one owner, and nobody is robbed of what he was just given.
// (marten#4005, dbos-transact-py#742: compare and set on the row)
// (river PR#199, #217, #219, #286, #1213: an owner by halves)
func TestP7_ClaimsAtTheSameTimeShareNothing(t *testing.T) {
	t.Parallel()
	const n = 8
	for name, leave := range map[string]func(t *testing.T, s *eventstore.Store, i *eventstore.Instance){
		"free": func(t *testing.T, s *eventstore.Store, i *eventstore.Instance) {
			if err := i.Leave(testkit.Context(t)); err != nil {
				t.Fatal(err)
			}
		},
		"stale": func(t *testing.T, s *eventstore.Store, i *eventstore.Instance) {
			exec(t, s, "update weir.instances set heartbeat_at = heartbeat_at - interval '1 minute'")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := testkit.Context(t)
			s := testkit.Store(t, eventstore.Config{})
			before := join(t, s, "before")
			claim(t, before, n)
			leave(t, s, before)

			gate, err := s.Pool().Begin(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := gate.Exec(ctx, "select from weir.leases for update"); err != nil {
				t.Fatal(err)
			}
			got := make(chan int)
			for i := range 2 {
				instance := join(t, s, fmt.Sprint(i))
				go func() {
					leases, err := instance.Claim(ctx, "scope", shards(n))
					if err != nil {
						t.Error(err)
					}
					got <- len(leases)
				}()
			}
			testkit.Await(t, 5*time.Second, "both claims wait", func() bool { return blocked(t, s) == 2 })
			if err := gate.Rollback(ctx); err != nil {
				t.Fatal(err)
			}
			if a, b := <-got, <-got; a+b != n {
				t.Errorf("%d leases were given out as %d and %d", n, a, b)
			}
			if epoch := scalar[int64](t, s, "select max(epoch) from weir.leases"); epoch != 2 {
				t.Errorf("the second ownership of a lease has epoch %d", epoch)
			}
		})
	}
}

// TestP7_StaleIsJudgedByTheDatabase and an instance that lives keeps what it has.
// (MailFathom#1989, wolverine#2625)
// (river#1077, #1161: owners that believe they still are, or are again)
func TestP7_StaleIsJudgedByTheDatabase(t *testing.T) {
	t.Parallel()
	s := testkit.Store(t, eventstore.Config{})
	a, b := join(t, s, "a"), join(t, s, "b")
	if got := claim(t, a, 3); len(got) != 3 || got[0].Epoch != 1 {
		t.Fatalf("first claim: %+v", got)
	}
	for _, age := range []string{"0 s", "4 s"} {
		exec(t, s, "update weir.instances set heartbeat_at = clock_timestamp() - $1::text::interval where name = 'a'", age)
		if got := claim(t, b, 3); len(got) != 0 {
			t.Errorf("after %s of silence %d leases were taken", age, len(got))
		}
	}
	exec(t, s, "update weir.instances set heartbeat_at = clock_timestamp() - interval '6 s' where name = 'a'")
	if got := claim(t, b, 3); len(got) != 3 || got[0].Epoch != 2 {
		t.Errorf("after 6 s of silence: %+v", got)
	}
	left, err := a.Heartbeat(testkit.Context(t))
	if err != nil || left != 0 {
		t.Errorf("the instance that was declared dead holds %d leases, %v", left, err)
	}
	if got := claim(t, a, 3); len(got) != 0 {
		t.Errorf("it took %d leases back", len(got))
	}
	if err := b.Leave(testkit.Context(t)); err != nil {
		t.Fatal(err)
	}
	if got := claim(t, a, 3); len(got) != 3 || got[0].Epoch != 3 {
		t.Errorf("after a clean leave: %+v", got)
	}
}

// TestP7_HeartbeatOutlivesItsConnection: a broken one is opened again at once.
func TestP7_HeartbeatOutlivesItsConnection(t *testing.T) {
	t.Parallel()
	s := testkit.Store(t, eventstore.Config{})
	i := join(t, s, "a")
	claim(t, i, 2)
	exec(t, s, "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid() and query ilike '%heartbeat%'")
	testkit.Await(t, 5*time.Second, "a heartbeat", func() bool {
		left, err := i.Heartbeat(testkit.Context(t))
		return err == nil && left == 2
	})
}
