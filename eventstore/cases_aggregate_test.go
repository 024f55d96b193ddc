package eventstore_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/eventstore"
	"github.com/weir-es/weir/internal/testkit"
)

// shared is an aggregate whose fold keeps what it is given, as careless ones do, so that
// a state which two loads had in common would show.
type shared struct {
	Sum  int
	Seen map[string]int
	List []int
}

func (s shared) Evolve(event any) shared {
	if s.Seen == nil {
		s.Seen = map[string]int{}
	}
	amount := event.(deposited).Amount
	s.Seen[fmt.Sprint(amount)]++
	return shared{s.Sum + amount, s.Seen, append(s.List, amount)}
}

func (shared) Snapshots() (every, schema int) { return 3, 1 }

// spoil changes all that can be reached from a state.
func (s shared) spoil() {
	clear(s.Seen)
	s.Seen["spoilt"] = 1000
	for i := range s.List {
		s.List[i] = -1
	}
}

// spoiling is a command that changes the state it decides on.
type spoiling struct{ Amount int }

func (spoiling) Stream() weir.StreamID { return "account-spoilt" }

func (c spoiling) Decide(s shared) ([]any, error) {
	if s.Seen != nil {
		s.spoil()
	}
	return []any{deposited(c)}, nil
}

// TestWhatACallerDoesToAStateIsItsOwn: a state that was loaded and changed, in a command
// and beside one, leaves no trace in the next load, in a snapshot, nor in what is built
// on one; it is the fold of the events whoever asks. (marten#4509, #4439, #3962: events
// applied on top of what a caller had changed were kept as a snapshot)
func TestWhatACallerDoesToAStateIsItsOwn(t *testing.T) {
	t.Parallel()
	s := bank(t, "")
	ctx := testkit.Context(t)
	want := shared{Seen: map[string]int{}}
	for n := 1; n <= 20; n++ {
		if _, err := eventstore.Execute(ctx, s, spoiling{n}); err != nil {
			t.Fatal(err)
		}
		want.Sum, want.List = want.Sum+n, append(want.List, n)
		want.Seen[fmt.Sprint(n)] = 1
		for range 2 {
			got, version, err := eventstore.Load[shared](ctx, s, "account-spoilt")
			if err != nil || version != weir.Version(n) || got.Sum != want.Sum || !slices.Equal(got.List, want.List) || !maps.Equal(got.Seen, want.Seen) {
				t.Fatalf("at version %d: %+v, want %+v, %v", version, got, want, err)
			}
			got.spoil()
		}
	}
	if n := scalar[int](t, s, "select count(*) from weir.snapshots where version >= 15"); n != 1 {
		t.Errorf("%d late snapshots: the test tests nothing", n)
	}
}

// intruded is a command during which somebody else appends, and which looks again.
type intruded struct {
	t      *testing.T
	s      *eventstore.Store
	decide *[]int // what it saw, try by try
}

func (intruded) Stream() weir.StreamID { return "account-intruded" }

func (c intruded) Decide(s shared) ([]any, error) {
	*c.decide = append(*c.decide, s.Sum)
	if len(*c.decide) == 1 {
		ctx := testkit.Context(c.t)
		m, err := c.s.Types().Encode(c.Stream(), deposited{100})
		if err != nil {
			return nil, err
		}
		m.ID = weir.NewID()
		if _, err := c.s.Append(ctx, c.Stream(), weir.AnyVersion, m); err != nil {
			return nil, err
		}
		if again, version, err := eventstore.Load[shared](ctx, c.s, c.Stream()); err != nil || version != 2 || again.Sum != 101 {
			c.t.Errorf("the second load gives %+v at %d: %v", again, version, err)
		}
	}
	return []any{deposited{s.Sum}}, nil
}

// TestTheVersionFirstSeenIsTheOneThatCounts: what was decided on an old state is refused
// or decided again, though the stream was loaded once more in between. (marten#3465: a
// second load in a session hid an append of somebody else)
func TestTheVersionFirstSeenIsTheOneThatCounts(t *testing.T) {
	t.Parallel()
	s := bank(t, "")
	ctx := testkit.Context(t)
	if _, err := eventstore.Execute(ctx, s, openDeposit{deposit{"intruded", 1}}); err != nil {
		t.Fatal(err)
	}
	var saw []int
	events, err := eventstore.Execute(ctx, s, intruded{t, s, &saw})
	if err != nil || len(events) != 1 || events[0].Version != 3 || !slices.Equal(saw, []int{1, 101}) {
		t.Errorf("%v, %v; it decided on %v, want 1 and then 101", events, err, saw)
	}
	_, first, err := eventstore.Load[shared](ctx, s, "account-intruded")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := eventstore.Execute(ctx, s, openDeposit{deposit{"intruded", 5}}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := eventstore.Load[shared](ctx, s, "account-intruded"); err != nil {
		t.Fatal(err)
	}
	m := message("account-intruded", 1)
	if _, err := s.Append(ctx, m.Stream, weir.Exactly(first), m); !errors.Is(err, weir.ErrConflict) {
		t.Errorf("an append at version %d of 4 gave %v", first, err)
	}
}
