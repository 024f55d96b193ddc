package eventstore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/eventstore"
	"github.com/weir-es/weir/internal/testkit"
)

// model is what a store should hold: the ids of each stream, in the order of
// versions.
type model struct {
	streams map[weir.StreamID][]weir.ID
	where   map[weir.ID]place
}

type place struct {
	stream  weir.StreamID
	version weir.Version
}

// append is what an append should do: all or nothing, each id once for ever, and
// what is stored counts as stored by this very call.
func (m *model) append(appends []eventstore.Append) error {
	for _, a := range appends {
		if err := m.check(a); err != nil {
			return err
		}
	}
	appends = slices.Clone(appends)
	slices.SortFunc(appends, func(a, b eventstore.Append) int { return compare(a.Stream, b.Stream) })
	for _, a := range appends {
		sorted := slices.Clone(a.Messages)
		slices.SortStableFunc(sorted, weir.CompareMessages)
		for _, one := range sorted {
			if _, ok := m.where[one.ID]; ok {
				continue
			}
			m.streams[a.Stream] = append(m.streams[a.Stream], one.ID)
			m.where[one.ID] = place{a.Stream, weir.Version(len(m.streams[a.Stream]))}
		}
	}
	return nil
}

func compare(a, b weir.StreamID) int {
	if a < b {
		return -1
	}
	return 1
}

func (m *model) check(a eventstore.Append) error {
	if a.Expected == weir.AnyVersion {
		return nil
	}
	fresh, repeated := map[weir.ID]bool{}, map[weir.ID]bool{}
	for _, one := range a.Messages {
		at, ok := m.where[one.ID]
		switch {
		case !ok:
			fresh[one.ID] = true
		case at.stream == a.Stream && at.version > weir.Version(a.Expected):
			repeated[one.ID] = true
		}
	}
	if len(fresh) == 0 || len(m.streams[a.Stream]) == int(a.Expected)+len(repeated) {
		return nil
	}
	return weir.ErrConflict
}

// TestP3_StoreEqualsItsModel over appends by every door with expected versions,
// repeats, duplicates and several streams, by two processes of which neither knows what
// the other has moved, and whose memory of streams is emptied at random.
// (eventhorizon#17, PR#88: several events of one command got the same version)
func TestP3_StoreEqualsItsModel(t *testing.T) {
	t.Parallel()
	url := testkit.Database(t)
	s, other := testkit.Store(t, eventstore.Config{URL: url}), testkit.Store(t, eventstore.Config{URL: url})
	scene := 0
	rapid.Check(t, func(r *rapid.T) {
		scene++
		m := &machine{T: t, s: s, other: other, name: fmt.Sprint("m", scene), model: model{map[weir.StreamID][]weir.ID{}, map[weir.ID]place{}}}
		r.Repeat(map[string]func(*rapid.T){
			"append":          m.append,
			"append all":      m.appendAll,
			"append tx":       m.appendTx,
			"ingest":          m.ingest,
			"go on elsewhere": func(*rapid.T) { m.s, m.other = m.other, m.s },
			"forget":          func(*rapid.T) { m.s.Forget() },
		})
		m.compare(r)
	})
}

type machine struct {
	*testing.T
	s     *eventstore.Store
	other *eventstore.Store // of the same database: what it remembers of streams grows old
	name  string
	model model
	used  []weir.Message
}

func (m *machine) ctx() context.Context { return testkit.Context(m.T) }

func (m *machine) stream(r *rapid.T) weir.StreamID {
	return weir.Stream(m.name, fmt.Sprint(rapid.IntRange(0, 3).Draw(r, "stream")))
}

// messages are new ones and some that were used before, in any order.
func (m *machine) messages(r *rapid.T) []weir.Message {
	var all []weir.Message
	for range rapid.IntRange(1, 4).Draw(r, "messages") {
		if len(m.used) > 0 && rapid.IntRange(0, 2).Draw(r, "again") == 0 {
			all = append(all, rapid.SampledFrom(m.used).Draw(r, "used"))
			continue
		}
		one := message("", len(m.used))
		m.used = append(m.used, one)
		all = append(all, one)
	}
	return rapid.Permutation(all).Draw(r, "order")
}

func (m *machine) drawAppend(r *rapid.T, stream weir.StreamID) eventstore.Append {
	expected := weir.AnyVersion
	if rapid.Bool().Draw(r, "expect") {
		expected = weir.ExpectedVersion(max(0, len(m.model.streams[stream])+rapid.IntRange(-3, 1).Draw(r, "off")))
	}
	return eventstore.Append{Stream: stream, Expected: expected, Messages: m.messages(r)}
}

// judge compares an outcome with the model's.
func (m *machine) judge(r *rapid.T, appends []eventstore.Append, events []weir.Event, err error) {
	want := m.model.append(appends)
	if !errors.Is(err, want) || (err == nil) != (want == nil) {
		for _, a := range appends {
			r.Logf("append to %s at %d: %v", a.Stream, a.Expected, idsOf(a.Messages))
		}
		r.Fatalf("got %v, want %v; stored: %v", err, want, m.model.streams)
	}
	if err != nil {
		return
	}
	i := 0
	for _, a := range appends {
		for _, one := range a.Messages {
			at := m.model.where[one.ID]
			if e := events[i]; e.ID != one.ID || e.Stream != at.stream || e.Version != at.version || e.Position == 0 {
				r.Fatalf("answer %d is %s in %s version %d at %d, want %s in %s version %d", i, e.ID, e.Stream, e.Version, e.Position, one.ID, at.stream, at.version)
			}
			i++
		}
	}
	if i != len(events) {
		r.Fatalf("%d answers to %d messages", len(events), i)
	}
}

func idsOf(messages []weir.Message) (all []weir.ID) {
	for _, one := range messages {
		all = append(all, one.ID)
	}
	return all
}

func (m *machine) append(r *rapid.T) {
	a := m.drawAppend(r, m.stream(r))
	events, err := m.s.Append(m.ctx(), a.Stream, a.Expected, a.Messages...)
	m.judge(r, []eventstore.Append{a}, events, err)
}

func (m *machine) several(r *rapid.T) []eventstore.Append {
	var appends []eventstore.Append
	for _, n := range rapid.Permutation([]int{0, 1, 2, 3}).Draw(r, "streams")[:rapid.IntRange(1, 3).Draw(r, "of")] {
		appends = append(appends, m.drawAppend(r, weir.Stream(m.name, fmt.Sprint(n))))
	}
	return appends
}

func (m *machine) appendAll(r *rapid.T) {
	appends := m.several(r)
	events, err := m.s.AppendAll(m.ctx(), appends...)
	m.judge(r, appends, events, err)
}

// appendTx commits or rolls back; what was rolled back never happened.
func (m *machine) appendTx(r *rapid.T) {
	appends := m.several(r)
	tx, err := m.s.Pool().Begin(m.ctx())
	if err != nil {
		r.Fatal(err)
	}
	defer tx.Rollback(m.ctx())
	events, err := m.s.AppendTx(m.ctx(), tx, appends...)
	if rapid.Bool().Draw(r, "roll back") {
		return
	}
	if err := tx.Commit(m.ctx()); err != nil {
		r.Fatal(err)
	}
	m.judge(r, appends, events, err)
}

func (m *machine) ingest(r *rapid.T) {
	var facts []weir.Message
	var appends []eventstore.Append
	for range rapid.IntRange(1, 3).Draw(r, "streams") {
		stream := m.stream(r)
		for _, one := range m.messages(r) {
			one.Stream = stream
			facts = append(facts, one)
		}
	}
	for _, one := range facts { // one append per stream
		at := slices.IndexFunc(appends, func(a eventstore.Append) bool { return a.Stream == one.Stream })
		if at < 0 {
			at = len(appends)
			appends = append(appends, eventstore.Append{Stream: one.Stream, Expected: weir.AnyVersion})
		}
		appends[at].Messages = append(appends[at].Messages, one)
	}
	before := len(m.model.where)
	if err := m.model.append(appends); err != nil {
		r.Fatal(err)
	}
	got, err := m.s.Ingest(m.ctx(), rapid.Bool().Draw(r, "repeated"), facts...)
	stored := len(m.model.where) - before
	if err != nil || got.Stored != stored || got.Duplicates != len(facts)-stored {
		r.Fatalf("%d facts, %d new: got %+v, %v", len(facts), stored, got, err)
	}
}

// compare reads everything back.
func (m *machine) compare(r *rapid.T) {
	for n := range 4 {
		stream := weir.Stream(m.name, fmt.Sprint(n))
		events := read(m.T, m.s, stream)
		if !slices.Equal(ids(events), m.model.streams[stream]) {
			r.Errorf("%s holds %v, want %v", stream, ids(events), m.model.streams[stream])
		}
		for i, e := range events {
			if e.Version != weir.Version(i+1) || i > 0 && e.Position <= events[i-1].Position {
				r.Errorf("%s: event %d is version %d at %d", stream, i, e.Version, e.Position)
			}
		}
	}
	err := pgx.BeginFunc(m.ctx(), m.s.Pool(), func(tx pgx.Tx) error {
		var wrong int
		err := tx.QueryRow(m.ctx(), `select count(*) from weir.streams s where version <> (select count(*) from weir.events where stream_id = s.id)
			or version <> coalesce((select max(version) from weir.events where stream_id = s.id), 0)
			or last_order is distinct from (select max(coalesce(order_id, event_id)::text)::uuid from weir.events where stream_id = s.id)`).Scan(&wrong)
		if err == nil && wrong > 0 {
			err = fmt.Errorf("%d streams disagree with their events", wrong)
		}
		return err
	})
	if err != nil {
		r.Error(err)
	}
}

// TestP3_RepeatThatNamesAnEventTwice succeeds like any other.
func TestP3_RepeatThatNamesAnEventTwice(t *testing.T) {
	t.Parallel()
	s := testkit.Store(t, eventstore.Config{})
	all := messages("a-1", 2)
	for _, repeat := range [][]weir.Message{{all[0]}, {all[0], all[0], all[1]}, {all[1], all[0], all[1]}} {
		if _, err := s.Append(testkit.Context(t), "a-1", weir.NewStream, repeat...); err != nil {
			t.Errorf("%d messages: %v", len(repeat), err)
		}
	}
	if got := read(t, s, "a-1"); !slices.Equal(ids(got), idsOf(all)) {
		t.Errorf("stored %v, want %v", ids(got), idsOf(all))
	}
}

// TestExpectedVersionWithoutMessages: who names a version and appends nothing to
// that stream, beside another append, wants it checked.
func TestExpectedVersionWithoutMessages(t *testing.T) {
	t.Parallel()
	s := testkit.Store(t, eventstore.Config{})
	ctx := testkit.Context(t)
	appendOne(t, s, "a-1")
	_, err := s.AppendAll(ctx,
		eventstore.Append{Stream: "a-1", Expected: weir.NewStream},
		eventstore.Append{Stream: "b-1", Expected: weir.AnyVersion, Messages: messages("b-1", 1)})
	if !errors.Is(err, weir.ErrConflict) {
		t.Errorf("stream a-1 is at version 1; an append that expects it new: %v", err)
	}
}
