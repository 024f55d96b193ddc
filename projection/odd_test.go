package projection_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/eventstore"
	"github.com/weir-es/weir/internal/testkit"
	"github.com/weir-es/weir/projection"
)

// inChild runs the test that calls it in a process of its own, which is how one
// sees that a process lives on. It returns true in that process.
func inChild(t *testing.T) bool {
	t.Helper()
	if os.Getenv("WEIR_TEST_CHILD") == t.Name() {
		return true
	}
	pattern := "^" + strings.ReplaceAll(t.Name(), "/", "$/^") + "$"
	child := exec.CommandContext(testkit.Context(t), os.Args[0], "-test.run", pattern, "-test.count=1", "-test.timeout=30s")
	child.Env = append(os.Environ(), "WEIR_TEST_CHILD="+t.Name())
	if out, err := child.CombinedOutput(); err != nil {
		lines := strings.Split(string(out), "\n")
		t.Errorf("%v\n%s", err, strings.Join(lines[:min(len(lines), 25)], "\n"))
	}
	return false
}

// moody is a state and an event whose methods panic, each on its own word.
type moody struct {
	Seen []string
	bad  string
}

func (m moody) Evolve(event any) moody {
	e := event.(mood)
	next := moody{Seen: append(slices.Clone(m.Seen), string(e))}
	if strings.HasPrefix(string(e), "bad") {
		next.bad = string(e)
	}
	return next
}

func (m moody) Deleted() bool {
	if m.bad == "bad deleted" {
		panic(m.bad)
	}
	return false
}

func (m moody) MarshalJSON() ([]byte, error) {
	if m.bad == "bad marshal" {
		panic(m.bad)
	}
	return fmt.Appendf(nil, `{"Seen":%d}`, len(m.Seen)), nil
}

func (m *moody) UnmarshalJSON(data []byte) error {
	var n int
	if _, err := fmt.Sscanf(string(data), `{"Seen":%d}`, &n); err != nil {
		if _, err := fmt.Sscanf(string(data), `{"Seen": %d}`, &n); err != nil {
			return err
		}
	}
	m.Seen = make([]string, n)
	return nil
}

type mood string

func (m *mood) UnmarshalJSON(data []byte) error {
	if string(data) == `"bad decode"` {
		panic("bad decode")
	}
	*m = mood(strings.Trim(string(data), `"`))
	return nil
}

// TestP8_PanicsOfTheUsersCode are that event's failure, wherever they happen: the
// process lives, the stream is parked, the others go on. (watermill-nats: crash
// loop; a poison message never kills the process)
func TestP8_PanicsOfTheUsersCode(t *testing.T) {
	t.Parallel()
	byWord := projection.By(func(e weir.Event, value any) string {
		if value.(mood) == "bad key" {
			panic("bad key")
		}
		return string(e.Stream)
	})
	for _, c := range []struct {
		word string
		key  projection.Key
	}{{"bad key", byWord}, {"bad deleted", projection.ByStream}, {"bad marshal", projection.ByStream}, {"bad decode", projection.ByStream}} {
		t.Run(c.word, func(t *testing.T) {
			t.Parallel()
			if !inChild(t) {
				return
			}
			registry, err := weir.NewRegistry(weir.Types{"test.mood": weir.EventOf[mood]()})
			if err != nil {
				t.Fatal(err)
			}
			s := testkit.Store(t, eventstore.Config{Types: registry})
			view := projection.View[moody]{Name: "moods", Key: c.key}
			w, _ := start(t, s, view)
			ingest(t, s, fact("a-1", "test.mood", "fine"), fact("b-1", "test.mood", c.word), fact("c-1", "test.mood", "fine"))
			settle(t, s, w)
			for _, key := range []string{"a-1", "c-1"} {
				if _, err := view.Get(testkit.Context(t), s, key); err != nil {
					t.Error(err)
				}
			}
			if parked, err := s.Parked(testkit.Context(t), "moods"); err != nil || len(parked) != 1 || parked[0].Stream != "b-1" {
				t.Errorf("parked: %+v, %v", parked, err)
			}
		})
	}
}

// TestP8_FailuresOfAHandlersOwn are not mistaken for a lost database: an event
// whose handler always fails is parked, whatever its error is.
// (temporalio/sdk-go#481: what was cancelled was tried for ever)
func TestP8_FailuresOfAHandlersOwn(t *testing.T) {
	t.Parallel()
	for name, failure := range map[string]error{
		"end of some file":     io.EOF,
		"some deadline":        context.DeadlineExceeded,
		"something cancelled":  fmt.Errorf("call: %w", context.Canceled),
		"another's connection": &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED},
		"something":            errors.New("odd"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := store(t)
			handled := make(chan int, 100)
			w, _ := start(t, s, projection.Handler{Name: "odd", Handle: func(_ context.Context, _ pgx.Tx, _ weir.Event, value any) error {
				if n := value.(added).N; n != 2 {
					handled <- n
					return nil
				}
				return failure
			}})
			ingest(t, s, add("a-1", 1), add("b-1", 2), add("c-1", 3))
			ctx, cancel := context.WithTimeout(testkit.Context(t), 8*time.Second)
			defer cancel()
			_, head, err := s.ReadHorizon(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if err := w.Wait(ctx, head); err != nil {
				t.Errorf("one event stops all others: %+v", w.Progress())
			}
			if parked, err := s.Parked(testkit.Context(t), "odd"); err != nil || len(parked) != 1 || parked[0].Stream != "b-1" {
				t.Errorf("parked: %+v, %v", parked, err)
			}
		})
	}
}

type number struct{ X float64 }

func (n number) Evolve(event any) number {
	if e, ok := event.(added); ok && e.N == 13 {
		return number{math.NaN()}
	}
	return number{n.X + 1}
}

// TestP8_StateThatDoesNotMarshal parks the stream of the event that made it so.
func TestP8_StateThatDoesNotMarshal(t *testing.T) {
	t.Parallel()
	s := store(t)
	view := projection.View[number]{Name: "numbers", Types: []string{"test.added"}}
	w, _ := start(t, s, view)
	ingest(t, s, add("a-1", 1), add("b-1", 1), add("b-1", 2), add("b-1", 13), add("b-1", 3), add("c-1", 1))
	settle(t, s, w)
	ctx := testkit.Context(t)
	for key, want := range map[string]float64{"a-1": 1, "b-1": 2, "c-1": 1} {
		if got, err := view.Get(ctx, s, key); err != nil || got.X != want {
			t.Errorf("%s: %v, %v", key, got, err)
		}
	}
	if parked, err := s.Parked(ctx, "numbers"); err != nil || len(parked) != 1 || parked[0].Stream != "b-1" || parked[0].Version != 3 {
		t.Errorf("parked: %+v, %v", parked, err)
	}
}

// TestP8_ParkedAtTheEventThatFails also when another, late one brought it up: the
// pointer says where to look.
func TestP8_ParkedAtTheEventThatFails(t *testing.T) {
	t.Parallel()
	s := store(t)
	w, _ := start(t, s, lists)
	late := add("a-1", 0)
	first, bad := add("a-1", 1), fact("a-1", "test.failing", failing{})
	ingest(t, s, first)
	settle(t, s, w)
	// One transaction stores all, so that the late one is met first and the
	// replay runs into the bad one.
	ingest(t, s, late, bad)
	settle(t, s, w)
	parked, err := s.Parked(testkit.Context(t), "lists")
	if err != nil || len(parked) != 1 || parked[0].Version != 3 {
		t.Errorf("parked: %+v, %v; the failing event is version 3", parked, err)
	}
	want(t, s, "a-1", 0, 1)
}

// TestP8_RowThatCannotBeRead, because its Go type changed or somebody wrote to the
// table, stops its own stream and no other.
func TestP8_RowThatCannotBeRead(t *testing.T) {
	t.Parallel()
	s := store(t)
	w, _ := start(t, s, lists)
	ingest(t, s, add("a-1", 1), add("b-1", 1))
	settle(t, s, w)
	if _, err := s.Pool().Exec(testkit.Context(t), s.Qualify(`update weir.view_lists set state = '"odd"' where key = 'a-1'`)); err != nil {
		t.Fatal(err)
	}
	ingest(t, s, add("a-1", 2), add("b-1", 2))
	testkit.Within(8*time.Second, func() bool {
		r, err := lists.Row(testkit.Context(t), s, "b-1")
		return err == nil && len(r.State.Seen) == 2
	})
	want(t, s, "b-1", 1, 2)
	if err := w.Progress().Err; err != nil {
		t.Errorf("the worker stands: %v", err)
	}
}

// TestViewOfForeignTypesOnly has no row, moves its checkpoint, and does so again
// from the start. (marten#2597: zero matching events)
// (temporalio/sdk-java#305, sdk-go#744: what has to be done at the end was itself
// cancelled; the last checkpoint is noted although the worker's context has ended)
func TestViewOfForeignTypesOnly(t *testing.T) {
	t.Parallel()
	s := store(t)
	view := projection.View[list]{Name: "foreign", Types: []string{"test.other"}}
	w, stop := start(t, s, view)
	settle(t, s, w) // no events at all
	ingest(t, s, add("a-1", 1), add("b-1", 2))
	for range 3 {
		settle(t, s, w)
		for r, err := range view.All(testkit.Context(t), s) {
			t.Errorf("row %+v, %v", r, err)
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if at, err := s.Checkpoints(testkit.Context(t), "foreign"); err != nil || len(at) != s.Shards() || at[0] != 2 {
			t.Errorf("checkpoints %v, %v", at, err)
		}
		if _, err := s.Pool().Exec(testkit.Context(t), s.Qualify("delete from weir.checkpoints")); err != nil {
			t.Fatal(err)
		}
		w, stop = start(t, s, view)
	}
}

// plain is a state that is nothing but a nil slice at first, and a pointer.
type plain []int

func (p plain) Evolve(event any) plain {
	if e, ok := event.(added); ok && e.N > 0 {
		return append(slices.Clone(p), e.N)
	}
	return p
}

// TestStateOfNilSlices is read back as it was written.
func TestStateOfNilSlices(t *testing.T) {
	t.Parallel()
	s := store(t)
	view := projection.View[plain]{Name: "plain", Types: []string{"test.added"}}
	w, stop := start(t, s, view)
	ingest(t, s, add("a-1", 0), add("b-1", 1))
	settle(t, s, w)
	got, err := view.Row(testkit.Context(t), s, "a-1")
	if err != nil || got.State != nil || got.Version != 1 {
		t.Errorf("a nil slice is read back as %#v, %v", got, err)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	w, _ = start(t, s, view)
	ingest(t, s, add("a-1", 5))
	settle(t, s, w)
	if got, err := view.Get(testkit.Context(t), s, "a-1"); err != nil || !slices.Equal(got, plain{5}) {
		t.Errorf("then %v, %v", got, err)
	}
}

// TestTenInstancesPrepareOnce: a view's table is created by one of those who start
// together and found by the others.
func TestTenInstancesPrepareOnce(t *testing.T) {
	t.Parallel()
	s := store(t)
	for n := range 5 {
		view := projection.View[list]{Name: fmt.Sprint("race", n)}
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				if err := view.Prepare(testkit.Context(t), s); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	}
}
