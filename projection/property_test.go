package projection_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/eventstore"
	"github.com/weir-es/weir/internal/testkit"
	"github.com/weir-es/weir/projection"
)

// byRemainder is keyed by what is in the events, across streams; it is in the
// order of the log, whatever the ids.
var byRemainder = projection.View[list]{Name: "remainder", Types: []string{"test.added"},
	Key: projection.By(func(e weir.Event, value any) string {
		world, _, _ := strings.Cut(e.Stream.Key(), "_")
		return fmt.Sprint(world, "_", value.(added).N%3)
	})}

// TestP4P5_RowsEqualTheSortedFold: facts of a few streams, whose ids are in order,
// arrive in any order and in any company; workers stop and start with any limit,
// and lose or rewind their checkpoints. In the end each row is what a fold over
// the sorted facts gives, and a handler that is not idempotent was run once for
// each event.
func TestP4P5_RowsEqualTheSortedFold(t *testing.T) {
	t.Parallel()
	world := &world{T: t, s: store(t), journal: journal("all", false)}
	for _, p := range []projection.Projection{lists, byRemainder, world.journal} {
		prepared(t, world.s, p)
	}
	rapid.Check(t, func(r *rapid.T) {
		s := world.scene(r)
		s.begin()
		defer s.end()
		r.Repeat(map[string]func(*rapid.T){
			"arrive":  s.arrive,
			"settle":  func(*rapid.T) { s.settle() },
			"restart": s.restart,
		})
		for len(s.waiting) > 0 {
			s.arrive(r)
		}
		s.settle()
		s.check()
	})
}

// world is what all scenes share.
type world struct {
	*testing.T
	s       *eventstore.Store
	journal projection.Handler
	scenes  atomic.Int32
	last    weir.Position // everything at or below was stored by earlier scenes
}

// scene is one sequence of arrivals and mishaps, with streams of its own.
type scene struct {
	*world
	r       *rapid.T
	name    string
	facts   map[weir.StreamID][]weir.Message // as they were emitted
	waiting []weir.Message                   // not arrived yet, shuffled
	first   weir.Position                    // the log before this scene

	limit   int
	workers []*projection.Worker
	stop    context.CancelFunc
	ended   chan error
	leave   func()
}

func (w *world) scene(r *rapid.T) *scene {
	s := &scene{world: w, r: r, name: fmt.Sprint("s", w.scenes.Add(1)), facts: map[weir.StreamID][]weir.Message{}}
	for n := range rapid.IntRange(1, 25).Draw(r, "facts") {
		stream := weir.Stream("k", fmt.Sprint(s.name, "_", rapid.IntRange(0, 2).Draw(r, "stream")))
		m := add(stream, n)
		if rapid.IntRange(0, 5).Draw(r, "foreign") == 0 {
			m = fact(stream, "test.unknown", n)
		}
		s.facts[stream] = append(s.facts[stream], m)
		s.waiting = append(s.waiting, m)
	}
	s.waiting = rapid.Permutation(s.waiting).Draw(r, "order")
	s.limit = rapid.IntRange(1, 7).Draw(r, "limit")
	s.first = w.last
	return s
}

func (s *scene) ctx() context.Context { return testkit.Context(s.T) }

func (s *scene) must(err error) {
	s.r.Helper()
	if err != nil {
		s.r.Fatal(err)
	}
}

// begin starts all workers, each under leases of its own scope.
func (s *scene) begin() {
	ctx, stop := context.WithCancel(s.ctx())
	s.stop, s.workers, s.ended = stop, nil, make(chan error, 3)
	instance := s.s.Join(s.name)
	_, err := instance.Heartbeat(ctx)
	s.must(err)
	for _, p := range []projection.Projection{lists, byRemainder, s.journal} {
		var shards []weir.Shard
		for shard := range s.s.Shards() {
			shards = append(shards, weir.Shard(shard))
		}
		if p.FollowsWholeLog() {
			shards = []weir.Shard{eventstore.WholeLog}
		}
		leases, err := instance.Claim(ctx, p.ProjectionName(), shards)
		s.must(err)
		w := &projection.Worker{Store: s.s, Projection: p, Fence: instance.Guard(p.ProjectionName(), leases), Limit: s.limit}
		s.workers = append(s.workers, w)
		go func() { s.ended <- w.Run(ctx) }()
	}
	s.leave = func() {
		s.must(instance.Leave(context.Background()))
		instance.Disconnect(context.Background())
	}
}

func (s *scene) end() {
	s.stop()
	for range s.workers {
		s.must(<-s.ended)
	}
	s.leave()
}

// arrive stores the next few facts, some of them a second time.
func (s *scene) arrive(r *rapid.T) {
	n := min(rapid.IntRange(1, 6).Draw(r, "batch"), len(s.waiting))
	batch := slices.Clone(s.waiting[:n])
	s.waiting = s.waiting[n:]
	if rapid.Bool().Draw(r, "twice") {
		batch = append(batch, batch...)
	}
	_, err := s.s.Ingest(s.ctx(), rapid.Bool().Draw(r, "repeated"), batch...)
	s.must(err)
}

func (s *scene) settle() {
	at, _, err := s.s.ReadHorizon(s.ctx())
	s.must(err)
	s.last = at
	for _, w := range s.workers {
		ctx, cancel := context.WithTimeout(s.ctx(), 10*time.Second)
		if err := w.Wait(ctx, at); err != nil {
			s.r.Fatalf("%s waits for %d: %+v", w.Projection.ProjectionName(), at, w.Progress())
		}
		cancel()
	}
}

// restart ends all workers, takes or spoils checkpoints of the views, and starts
// them again.
func (s *scene) restart(r *rapid.T) {
	s.end()
	for _, view := range []string{"lists", "remainder"} {
		switch rapid.IntRange(0, 3).Draw(r, "loss") {
		case 0:
			s.exec("delete from weir.checkpoints where consumer = $1", view)
		case 1:
			s.exec("delete from weir.checkpoints where consumer = $1 and shard % 3 = $2", view, rapid.IntRange(0, 2).Draw(r, "shard"))
		case 2:
			s.exec("update weir.checkpoints set position = greatest(position - $2, 0) where consumer = $1", view, rapid.IntRange(0, 20).Draw(r, "back"))
		}
	}
	s.limit = rapid.IntRange(1, 7).Draw(r, "limit")
	// What earlier scenes stored is read again quickly, with a larger limit.
	if s.first > 0 {
		s.exec("insert into weir.checkpoints (consumer, shard, position) select c, g, $1 from unnest(array['lists']) c, generate_series(0, $2) g on conflict (consumer, shard) do update set position = greatest(checkpoints.position, excluded.position)", int64(s.first), s.s.Shards()-1)
		s.exec("insert into weir.checkpoints (consumer, shard, position) values ('remainder', -1, $1) on conflict (consumer, shard) do update set position = greatest(checkpoints.position, excluded.position)", int64(s.first))
	}
	s.begin()
}

func (s *scene) exec(sql string, args ...any) {
	_, err := s.s.Pool().Exec(s.ctx(), s.s.Qualify(sql), args...)
	s.must(err)
}

func (s *scene) check() {
	handled := 0
	for stream, facts := range s.facts {
		var want []int
		for _, m := range facts {
			if m.Type == "test.added" {
				want = append(want, numberIn(m))
			}
		}
		handled += len(want)
		if len(want) == 0 {
			continue
		}
		got, err := lists.Row(s.ctx(), s.s, string(stream))
		s.must(err)
		if !slices.Equal(got.State.Seen, want) {
			s.r.Errorf("%s has seen %v, want %v", stream, got.State.Seen, want)
		}
	}
	s.checkRemainders()
	s.checkJournal(handled)
}

func numberIn(m weir.Message) (n int) {
	fmt.Sscanf(string(m.Data), `{"N":%d`, &n)
	return n
}

// checkRemainders compares the view by key with a fold over the log.
func (s *scene) checkRemainders() {
	want := map[string][]int{}
	page, err := s.s.Page(s.ctx(), s.first, s.last, nil, 10_000)
	s.must(err)
	for _, e := range page {
		if e.Type == "test.added" && s.facts[e.Stream] != nil {
			n := numberIn(e.Message)
			key := fmt.Sprint(s.name, "_", n%3)
			want[key] = append(want[key], n)
		}
	}
	for key, seen := range want {
		got, err := byRemainder.Row(s.ctx(), s.s, key)
		s.must(err)
		if !slices.Equal(got.State.Seen, seen) || int(got.Version) != len(seen) {
			s.r.Errorf("%s has seen %v at version %d, want %v", key, got.State.Seen, got.Version, seen)
		}
	}
}

func (s *scene) checkJournal(want int) {
	var rows, events int
	sql := s.s.Qualify("select count(*), count(distinct position) from weir.journal_all where stream like $1")
	s.must(s.s.Pool().QueryRow(s.ctx(), sql, "k-"+s.name+"\\_%").Scan(&rows, &events))
	if rows != want || events != want {
		s.r.Errorf("%d events were handled %d times, %d different ones", want, rows, events)
	}
}
