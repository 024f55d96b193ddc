package eventstore_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/eventstore"
	"github.com/weir-es/weir/internal/testkit"
)

// TestP6_NoSettingSkipsASlowAppend, however often or seldom readers look and however
// long nothing happened before: there is no time in the horizon that could run out,
// so looks are counted here and not seconds. (AxonFramework#2958: a gap timeout
// shorter than a commit; marten#2370: a clock that ran while the log was quiet;
// watermill#311: polling every millisecond)
func TestP6_NoSettingSkipsASlowAppend(t *testing.T) {
	t.Parallel()
	for _, poll := range []time.Duration{time.Nanosecond, time.Millisecond, time.Hour} {
		t.Run(poll.String(), func(t *testing.T) {
			t.Parallel()
			s := testkit.Store(t, eventstore.Config{Poll: poll})
			before := appendOne(t, s, "z-1")
			for range 100 { // the quiet time
				horizonOf(t, s)
			}
			slow, early := opened(t, s, message("a-1", 1))
			want := []weir.Position{before.Position, early[0].Position}
			for range 100 { // the load
				want = append(want, appendOne(t, s, "b-1").Position)
				if at := horizonOf(t, s); at != before.Position || s.Horizon() > before.Position {
					t.Fatalf("while %d is open the horizon is %d and %d", early[0].Position, at, s.Horizon())
				}
			}
			end(t, slow.Commit)
			if got := positions(logged(t, s)); !slices.Equal(got, want) {
				t.Errorf("the log shows %v, want %v", got, want)
			}
		})
	}
}

// warnings counts what an operator is told.
type warnings struct {
	slog.Handler
	told atomic.Int32
}

func (w *warnings) Enabled(context.Context, slog.Level) bool { return true }

func (w *warnings) Handle(_ context.Context, r slog.Record) error {
	if r.Level >= slog.LevelWarn {
		w.told.Add(1)
	}
	return nil
}

// TestP6_NobodyHasToAnnounceAnAppend: readers look by themselves, so there is no
// subscription that could be lost. When all their connections are, again and again,
// the operator is told each time and what another process appends still arrives.
// (commanded/eventstore#309: a notification lost while reconnecting;
// KurrentDB#1602: only the first drop was reported; dbos Go PR#134: a listener that did
// not outlive its connection)
func TestP6_NobodyHasToAnnounceAnAppend(t *testing.T) {
	t.Parallel()
	ctx := testkit.Context(t)
	url := testkit.Database(t)
	told := &warnings{}
	reader := testkit.Store(t, eventstore.Config{URL: url + "&application_name=reader", Poll: 20 * time.Millisecond, Logger: slog.New(told)})
	writer := testkit.Store(t, eventstore.Config{URL: url})
	for drop := range int32(3) {
		before := told.told.Load()
		exec(t, writer, "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and application_name = 'reader'")
		testkit.Await(t, 5*time.Second, fmt.Sprintf("drop %d is reported", drop+1), func() bool { return told.told.Load() > before })
		e := appendOne(t, writer, "a-1")
		if _, err := reader.WaitHorizon(ctx, e.Position-1); err != nil {
			t.Fatalf("after drop %d the reader stands at %d: %v", drop+1, reader.Horizon(), err)
		}
	}
}

// TestP6_PagesBeginAndEndExactly: a reader that restarts anywhere is given what comes
// after its place and nothing else, also where its place is a hole in the log.
// (Eventuous#291: the first event after a restart was skipped)
func TestP6_PagesBeginAndEndExactly(t *testing.T) {
	t.Parallel()
	s := testkit.Store(t, eventstore.Config{})
	for range 4 {
		gone, _ := opened(t, s, message("a-1", 1))
		end(t, gone.Rollback)
		appendOne(t, s, "a-1")
		appendOne(t, s, "b-1")
	}
	all := positions(logged(t, s))
	last := all[len(all)-1]
	for after := weir.Position(0); after <= last+1; after++ {
		for to := after; to <= last+1; to++ {
			want := slices.DeleteFunc(slices.Clone(all), func(p weir.Position) bool { return p <= after || p > to })
			page, err := s.Page(testkit.Context(t), after, to, nil, 100)
			if got := positions(page); err != nil || !slices.Equal(got, want) {
				t.Errorf("after %d to %d: %v, %v, want %v", after, to, got, err, want)
			}
		}
	}
}

// TestP6_EqualTimesHaveOneOrder: events recorded in the same microsecond and emitted
// in the same millisecond come in one order, whatever the pages are and in both
// directions, and none is skipped between two pages. (zitadel PR#10710)
func TestP6_EqualTimesHaveOneOrder(t *testing.T) {
	t.Parallel()
	s := testkit.Store(t, eventstore.Config{})
	moment := time.Now()
	var facts []weir.Message
	for n := range 40 {
		m := message(weir.Stream("a", fmt.Sprint(n%7)), n)
		if err := m.ID.SetTime(uint64(moment.UnixMilli())); err != nil {
			t.Fatal(err)
		}
		facts = append(facts, m)
	}
	if _, err := s.Ingest(testkit.Context(t), false, facts...); err != nil {
		t.Fatal(err)
	}
	if n := scalar[int](t, s, "select count(distinct recorded_at) from weir.events"); n != 1 {
		t.Fatalf("%d different times: the test tests nothing", n)
	}
	all := positions(logged(t, s))
	rapid.Check(t, func(r *rapid.T) {
		limit := rapid.IntRange(1, 50).Draw(r, "limit")
		back := rapid.Bool().Draw(r, "backward")
		got := positions(paged(t, s, eventstore.Read{Backward: back, Limit: limit, AsOf: eventstore.AtTime(moment)}))
		if back {
			slices.Reverse(got)
		}
		if len(got) != 40 || !slices.Equal(got, all) || !slices.IsSorted(got) {
			r.Errorf("in pages of %d the log is %v, want %v", limit, got, all)
		}
	})
}

// paged reads the log in pages as a caller does who keeps the last position.
func paged(t *testing.T, s *eventstore.Store, read eventstore.Read) (events []weir.Event) {
	t.Helper()
	for {
		n := 0
		for e, err := range s.ReadLog(testkit.Context(t), read) {
			if err != nil {
				t.Fatal(err)
			}
			events, n = append(events, e), n+1
		}
		if n < read.Limit {
			return events
		}
		at := events[len(events)-1].Position
		if read.Backward && at == 1 {
			return events
		}
		read.From = eventstore.AtPosition(at + 1)
		if read.Backward {
			read.From = eventstore.AtPosition(at - 1)
		}
	}
}

// TestP6_OtherWritersAreRefused: positions come from the schema and from nowhere
// else. A program of another version, or a hand with psql, that inserts in a way
// readers do not know of is told so and leaves nothing. (zitadel PR#9201: two versions
// of a program gave out positions in two ways)
func TestP6_OtherWritersAreRefused(t *testing.T) {
	t.Parallel()
	s := testkit.Store(t, eventstore.Config{})
	first := appendOne(t, s, "a-1")
	const insert = `insert into weir.events (stream_id, version, event_id, shard, type, data)
		select id, version + 1, gen_random_uuid(), shard, 'test.happened', '{}' from weir.streams`
	for name, prepare := range map[string]string{
		"that does not register":               "select 1",
		"that registers with another table":    "select set_config('weir_append.registered', '1', true)",
		"that registered in a transaction ago": "begin; select set_config('weir_append.registered', 'weir.events'::regclass::oid::text, true); commit",
	} {
		conn, err := pgx.Connect(testkit.Context(t), s.Pool().Config().ConnString())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(context.Background())
		if _, err := conn.Exec(testkit.Context(t), prepare, pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Fatal(err)
		}
		_, err = conn.Exec(testkit.Context(t), insert)
		if err == nil || !strings.Contains(err.Error(), "written through Append only") {
			t.Errorf("a writer %s: %v", name, err)
		}
	}
	if next := appendOne(t, s, "a-1"); next.Version != 2 || next.Position <= first.Position || len(logged(t, s)) != 2 {
		t.Errorf("then the next event is version %d at position %d", next.Version, next.Position)
	}
}

// TestSchemaRefusesAVersionTwice, and an id twice, from a writer that does everything
// else right: the constraints decide and nothing else does. Where one was taken away
// the doctor says so. (spatie#170: two rows of one version;
// nats-server#4320: a broker that was to decide and did not)
func TestSchemaRefusesAVersionTwice(t *testing.T) {
	t.Parallel()
	insert, err := os.ReadFile("sql/insert_events.sql")
	if err != nil {
		t.Fatal(err)
	}
	for constraint, c := range map[string]struct {
		version int64
		again   bool // the id
	}{
		"events_stream_version": {1, false},
		"events_event_id":       {2, true},
	} {
		t.Run(constraint, func(t *testing.T) {
			t.Parallel()
			s := testkit.Store(t, eventstore.Config{})
			e := appendOne(t, s, "a-1")
			id := weir.NewID()
			if c.again {
				id = e.ID
			}
			write := func() error {
				return pgx.BeginFunc(testkit.Context(t), s.Pool(), func(tx pgx.Tx) error {
					if _, err := tx.Exec(testkit.Context(t), "select set_config('weir_append.registered', 'weir.events'::regclass::oid::text, true)"); err != nil {
						return err
					}
					data := "{}"
					_, err := tx.Exec(testkit.Context(t), string(insert), []int64{1}, []int64{c.version}, [][16]byte{id}, []*[16]byte{nil},
						[]int16{0}, []string{"test.happened"}, []*string{&data}, [][]byte{nil}, []*string{nil}, []*string{nil})
					return err
				})
			}
			if err := write(); err == nil || !strings.Contains(err.Error(), constraint) {
				t.Errorf("written a second time: %v", err)
			}
			exec(t, s, "alter table weir.events drop constraint "+constraint)
			wantFault(t, map[string]eventstore.Finding{"schema": examined(t, s, impatient)["schema"]}, "schema", constraint)
		})
	}
}
