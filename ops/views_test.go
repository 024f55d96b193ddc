package ops_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/app"
	"github.com/weir-es/weir/eventstore"
	"github.com/weir-es/weir/internal/testkit"
	"github.com/weir-es/weir/ops"
	"github.com/weir-es/weir/projection"
)

type noted struct{ N int }

var noteTypes = weir.Types{"noted": weir.EventOf[noted]()}

// notes is a fold in which order shows.
type notes struct {
	Seen []int `json:"seen"`
}

func (n notes) Evolve(event any) notes { return notes{append(slices.Clone(n.Seen), event.(noted).N)} }

// picky is the same with a fold that cannot take everything.
type picky notes

func (p picky) Evolve(event any) picky {
	if event.(noted).N == 13 {
		panic("13 brings bad luck")
	}
	return picky(notes(p).Evolve(event))
}

var (
	notesView = projection.View[notes]{Name: "notes"}
	evenView  = projection.View[notes]{Name: "even", Key: projection.By(func(_ weir.Event, value any) string {
		return map[bool]string{true: "even", false: "odd"}[value.(noted).N%2 == 0]
	})}
	logHandler = projection.Handler{Name: "outgoing"}
)

// note is a fact that was emitted at a time of the test's.
func note(stream weir.StreamID, n, second int) weir.Message {
	at := time.Date(2026, 1, 31, 12, 0, second, 0, time.UTC)
	id, err := weir.Import(string(stream)).At(at)
	if err != nil {
		panic(err)
	}
	return weir.Message{ID: id, Stream: stream, Type: "noted", Data: fmt.Appendf(nil, `{"N":%d}`, n)}
}

// desk is an application that has run and stopped, and its operator.
type desk struct {
	t         *testing.T
	program   ops.Program
	store     *eventstore.Store
	out, errs bytes.Buffer
}

// newDesk runs an application until its views have seen some facts: n-1 has 1, 3, 2
// by version, of which 2 came late, and n-2 has 13. The store is in a database of
// its own.
func newDesk(t *testing.T) *desk {
	t.Helper()
	ctx := testkit.Context(t)
	config := app.Config{Name: "desk_" + strings.ToLower(weir.NewID().String()), Postgres: testkit.Database(t), NATS: testkit.NATS(t),
		Types: noteTypes, MaxIngestBytes: 1 << 20, Projections: []projection.Projection{notesView, evenView}}
	a, err := app.New(ctx, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Close)
	err = a.Run(ctx, func(ctx context.Context) error {
		cause := note("n-2", 13, 5)
		cause.Metadata = weir.Metadata{Causation: "the-cause", Correlation: "the-story"}
		for _, batch := range [][]weir.Message{{note("n-1", 1, 1), note("n-1", 3, 3), cause}, {note("n-1", 2, 2)}} {
			if _, err := a.Store.Ingest(ctx, false, batch...); err != nil {
				return err
			}
			if err := a.Settle(ctx); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	config.NATS = "nats://127.0.0.1:1" // an operator needs no broker
	p, err := ops.Of(config)
	if err != nil {
		t.Fatal(err)
	}
	d := &desk{t: t, store: a.Store}
	p.Name, p.Stdin, p.Stdout, p.Stderr = "desk ops", strings.NewReader(""), &d.out, &d.errs
	p.Projections = append(p.Projections, logHandler)
	d.program = p
	return d
}

// run runs a verb that must end with a status, and returns what it printed.
func (d *desk) run(want int, args ...string) (out, errs string) {
	d.t.Helper()
	d.out.Reset()
	d.errs.Reset()
	if got := d.program.Run(testkit.Context(d.t), args); got != want {
		d.t.Errorf("%q ends with %d, want %d\n%s%s", args, got, want, &d.out, &d.errs)
	}
	return d.out.String(), d.errs.String()
}

func (d *desk) sql(text string, arguments ...any) {
	d.t.Helper()
	if _, err := d.store.Pool().Exec(testkit.Context(d.t), d.store.Qualify(text), arguments...); err != nil {
		d.t.Fatal(err)
	}
}

// like fails unless got matches, line by line.
func like(t *testing.T, got, pattern string) {
	t.Helper()
	if !regexp.MustCompile(`\A(?:` + pattern + `)\z`).MatchString(got) {
		t.Errorf("got\n%swhich is not like\n%s", got, pattern)
	}
}

func has(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%q is not in\n%s", part, text)
		}
	}
}

// TestViewsAreListed by any program, also one that has no code of theirs.
func TestViewsAreListed(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.program.Projections = nil
	d.program.Store.Types = nil
	out, _ := d.run(ops.Done, "views")
	like(t, out, `VIEW +EDITION +POSITION +LAG_EVENTS +LAG_SECONDS +INVERSIONS +REWINDS +REPLAYED +PARKED +REWINDING +ROWS +SNAPSHOTS +SNAPSHOT_BYTES +REBUILD
even +1 +4 +0 +0 +0 +0 +0 +0 +0 +0 +0 +\d+
notes +1 +4 +0 +0 +1 +0\+1 full +3 +0 +0 +0 +\d+ +\d+
`)
	if _, err := d.store.Append(testkit.Context(t), "n-1", weir.AnyVersion, note("n-1", 9, 9)); err != nil {
		t.Fatal(err)
	}
	d.sql(`insert into weir.rebuilds (view, schema, worker, phase, upto, total, done) values ('even', 0, gen_random_uuid(), 'log', '{}', 8, 2)`)
	out, _ = d.run(ops.Done, "views", "-o", "json")
	even, rest, _ := strings.Cut(out, "\n")
	has(t, even, `"view":"even"`, `"rebuild":{"phase":"log","done":2,"total":8}}`)
	var row ops.ViewRow
	if err := json.Unmarshal([]byte(rest), &row); err != nil {
		t.Fatal(err)
	}
	if row.View != "notes" || row.LagEvents != 1 || row.LagSeconds <= 0 || row.Inversions != 1 || row.Rewinds != (ops.RewindCount{Full: 1}) || row.Rebuild != nil {
		t.Errorf("%+v", row)
	}
}

// TestNoViewsYet is no failure, and said.
func TestNoViewsYet(t *testing.T) {
	t.Parallel()
	s := testkit.Store(t, eventstore.Config{})
	var out, errs bytes.Buffer
	p := ops.Program{Stdout: &out, Stderr: &errs, Store: eventstore.Config{Pool: s.Pool()}}
	if status := p.Run(testkit.Context(t), []string{"views"}); status != ops.Done || out.Len() > 0 || !strings.Contains(errs.String(), "no views yet") {
		t.Error(status, out.String(), errs.String())
	}
}

// TestFoldsAreInTheApplication: the plain program says so, before it connects to
// anything.
func TestFoldsAreInTheApplication(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"verify"}, {"verify", "notes"}, {"explain", "notes", "n-1"}, {"rebuild", "notes", "--yes"}, {"rewind", "notes", "n-1", "--to", "1"}} {
		var out, errs bytes.Buffer
		p := ops.Program{Stdout: &out, Stderr: &errs, Store: eventstore.Config{URL: "postgres://127.0.0.1:1/nowhere"}}
		if status := p.Run(testkit.Context(t), args); status != ops.Unable {
			t.Errorf("%q ends with %d", args, status)
		}
		has(t, errs.String(), "weir: "+args[0]+" needs the folds", "yourapp ops "+args[0], "ops.Run", "docs/cli.md")
	}
}

// TestViewsOfTheProgramAreNamed when one is asked for that is not among them.
func TestViewsOfTheProgramAreNamed(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	for _, args := range [][]string{{"verify", "nots"}, {"explain", "nots", "n-1"}, {"rebuild", "nots"}, {"rewind", "nots", "n-1", "--to", "1"}} {
		_, errs := d.run(ops.Unable, args...)
		has(t, errs, `this program has no view "nots": it has even, notes`)
	}
	_, errs := d.run(ops.Unable, "verify", "outgoing")
	has(t, errs, "outgoing is a handler")
	for _, args := range [][]string{{"verify", ""}, {"rebuild", "--cancel", ""}, {"explain", ""}} {
		if out, _ := d.run(ops.Done, append([]string{"__complete"}, args...)...); out != "even\nnotes\n" {
			t.Errorf("%q completes to %q", args, out)
		}
	}
}

// TestRowsThatDifferAreNamed, with how, and with status 1.
func TestRowsThatDifferAreNamed(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	out, _ := d.run(ops.Done, "verify")
	like(t, out, `VIEW +STATE +FOUND
even +ok +2 rows are what 4 events make
notes +ok +2 rows are what 4 events make
`)
	d.sql(`update weir.view_notes set state = '{"seen":[1,3,2]}' where key = 'n-1'`)
	d.sql(`update weir.view_notes set version = 7 where key = 'n-2'`)
	out, errs := d.run(ops.Problem, "verify", "notes")
	like(t, out, `VIEW +STATE +FOUND
notes +PROBLEM +2 of 2 rows are not what 4 events make
 +- "n-1" differs in its state at version 3
 +- "n-2" is at version 7 instead of 1
 +to do: .*rebuild notes.*
`)
	if errs != "" {
		t.Error(errs)
	}
	out, _ = d.run(ops.Problem, "verify", "-o", "json")
	if want := `{"view":"even","ok":true,"rows":2,"events":4,"behind":0,"wrong":0}
{"view":"notes","ok":false,"rows":2,"events":4,"behind":0,"wrong":2,"differences":[{"key":"n-1","what":"state","row":3,"log":3},{"key":"n-2","what":"version","row":7,"log":1}]}
`; out != want {
		t.Error(out)
	}
	for _, key := range []string{"n-1", "n-2"} {
		d.run(ops.Done, "rebuild", "notes", "--key", key, "--yes")
	}
	d.run(ops.Done, "verify")
}

// TestVerifyMeetsPoison: an event that cannot be folded is a finding, and the other
// views are looked at.
func TestVerifyMeetsPoison(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.program.Projections = []projection.Projection{projection.View[picky]{Name: "notes"}, evenView}
	out, _ := d.run(ops.Problem, "verify")
	has(t, out, "even  ok ", "notes  PROBLEM", `cannot take n-2 version 1 of type "noted"`, "13 brings bad luck")
}

// TestExplainNamesTheEventsOfARow in the order in which they were folded.
func TestExplainNamesTheEventsOfARow(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	out, _ := d.run(ops.Done, "explain", "notes", "n-1")
	like(t, out, `STREAM +VERSION +TIME +ID +TYPE +CAUSATION +CORRELATION +DATA
n-1 +1 +2026-01-31T12:00:01.000Z +\w{26} +noted +{"N":1}
n-1 +3 +2026-01-31T12:00:02.000Z +\w{26} +noted +{"N":2}
n-1 +2 +2026-01-31T12:00:03.000Z +\w{26} +noted +{"N":3}
`)
	out, _ = d.run(ops.Done, "explain", "even", "odd", "-o", "json")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) != 3 {
		t.Fatal(out)
	}
	has(t, out, `"stream":"n-2"`, `"causation":"the-cause"`, `"correlation":"the-story"`)
	for view, hint := range map[string]string{"notes": "names of streams", "even": "its function By"} {
		_, errs := d.run(ops.Problem, "explain", view, "nobody")
		has(t, errs, `view `+view+` has no row "nobody"`, hint)
	}
}

// TestRewindShowsAnEarlierState and writes nothing.
func TestRewindShowsAnEarlierState(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	late := note("n-1", 2, 2).ID.String()
	for to, want := range map[string]string{
		"1":                           `{"seen":[1]}`,
		"2":                           `{"seen":[1,3]}`,
		"3":                           `{"seen":[1,2,3]}`,
		late:                          `{"seen":[1,2]}`,
		"2026-01-31T12:00:02Z":        `{"seen":[1,2]}`,
		"2026-01-31T13:00:01.5+01:00": `{"seen":[1]}`,
	} {
		if out, _ := d.run(ops.Done, "rewind", "notes", "n-1", "--to", to, "-o", "json"); out != want+"\n" {
			t.Errorf("to %s: %s", to, out)
		}
	}
	if out, _ := d.run(ops.Done, "rewind", "even", "odd", "--to", "1"); out != "{\n  \"seen\": [\n    1\n  ]\n}\n" {
		t.Error(out)
	}
	for _, to := range []string{"0", "-1", "yesterday", "99999999999999999999", late[1:]} {
		_, errs := d.run(ops.Unable, "rewind", "notes", "n-1", "--to="+to)
		has(t, errs, "is no place", "a version from 1")
	}
	d.run(ops.Unable, "rewind", "notes", "n-1")
	_, errs := d.run(ops.Problem, "rewind", "notes", "nobody", "--to", "1")
	has(t, errs, `"nobody"`, "not found")
	d.run(ops.Problem, "rewind", "notes", "n-1", "--to", "2025-01-01")
	d.run(ops.Done, "verify")
}

// TestRebuildSaysHowManyFirst and does nothing without a yes.
func TestRebuildSaysHowManyFirst(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.sql(`update weir.view_notes set state = '{"seen":[]}' where key = 'n-1'`)
	_, errs := d.run(ops.Problem, "rebuild", "notes")
	has(t, errs, "nothing was done", "reads all 4 events again", "--yes")
	_, errs = d.run(ops.Problem, "rebuild", "notes", "--key", "n-1")
	has(t, errs, "nothing was done", `row "n-1"`, "reads 3 events again", "--yes")
	d.run(ops.Problem, "verify", "notes")

	out, errs := d.run(ops.Done, "rebuild", "notes", "--yes")
	like(t, out, `VIEW +EDITION +EVENTS +ROWS +ADDED +REMOVED +CHANGED +SECONDS
notes +2 +4 +2 +0 +0 +1 +[\d.]+
`)
	has(t, errs, "reads all 4 events again")
	d.run(ops.Done, "verify", "notes")
	out, _ = d.run(ops.Done, "rebuild", "even", "--yes", "-o", "json")
	like(t, out, `{"view":"even","edition":2,"events":4,"rows":2,"added":0,"removed":0,"changed":0,"seconds":[\d.]+}\n`)
}

// TestOneRowIsRebuilt, also one that should not be there, and none of a key that
// nothing knows.
func TestOneRowIsRebuilt(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.sql(`delete from weir.view_notes where key = 'n-1'`)
	d.sql(`insert into weir.view_notes (key, state, version, position) values ('n-9', '{}', 1, 1)`)
	out, _ := d.run(ops.Done, "rebuild", "notes", "--key", "n-1", "--yes", "-o", "json")
	if out != `{"view":"notes","key":"n-1","found":true}`+"\n" {
		t.Error(out)
	}
	out, _ = d.run(ops.Done, "rebuild", "even", "--key", "odd", "--yes")
	like(t, out, `VIEW +KEY +FOUND\neven +odd +true\n`)
	for view, key := range map[string]string{"notes": "nobody", "even": ""} {
		_, errs := d.run(ops.Problem, "rebuild", view, "--key", key, "--yes")
		has(t, errs, "has no row")
	}
	d.run(ops.Unable, "rebuild", "notes", "--key", "n-1", "--cancel")
	d.run(ops.Done, "rebuild", "notes", "--key", "n-9", "--yes")
	d.run(ops.Done, "verify")
}

// TestRebuildStopsAtPoison, says at what, and goes on when the fold can take it.
func TestRebuildStopsAtPoison(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.program.Projections[0] = projection.View[picky]{Name: "notes"}
	out, errs := d.run(ops.Problem, "rebuild", "notes", "--yes")
	has(t, errs, `cannot take n-2 version 1 of type "noted"`, "13 brings bad luck", "`desk ops rebuild notes` goes on", "desk ops stream n-2 --from 1 -n 1")
	if out != "" {
		t.Error(out)
	}
	_, errs = d.run(ops.Problem, "rebuild", "notes", "--key", "n-2", "--yes")
	has(t, errs, `cannot take n-2 version 1 of type "noted"`)
	d.program.Projections[0] = notesView
	_, errs = d.run(ops.Done, "rebuild", "notes", "--yes")
	has(t, errs, "goes on where it was")
	d.run(ops.Done, "verify")
}

// TestTwoRebuildsAreOneTooMany, and the other one can be cancelled.
func TestTwoRebuildsAreOneTooMany(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	began, goOn, ended := make(chan bool, 100), make(chan bool), make(chan error, 1)
	go func() {
		_, err := notesView.Rebuild(testkit.Context(t), d.store, projection.Rebuild{Progress: func(projection.Progressed) {
			began <- true
			<-goOn
		}})
		ended <- err
	}()
	<-began
	_, errs := d.run(ops.Problem, "rebuild", "notes", "--yes")
	has(t, errs, "is being rebuilt since", "`desk ops rebuild notes --cancel` stops it")
	_, errs = d.run(ops.Problem, "rebuild", "notes", "--cancel")
	has(t, errs, "nothing was done", "throws away what it has read, 4 of 4 events")
	out, _ := d.run(ops.Done, "rebuild", "notes", "--cancel", "--yes", "-o", "json")
	if out != `{"view":"notes","cancelled":true,"events":4}`+"\n" {
		t.Error(out)
	}
	if out, _ := d.run(ops.Done, "views", "-o", "json"); strings.Contains(out, `"rebuild"`) {
		t.Error(out)
	}
	close(goOn)
	<-ended
	out, errs = d.run(ops.Done, "rebuild", "notes", "--cancel", "-o", "json")
	if out != `{"view":"notes","cancelled":false,"events":0}`+"\n" || !strings.Contains(errs, "is not being rebuilt") {
		t.Error(out, errs)
	}
}

// interrupting is a fold in the middle of which somebody presses Ctrl-C.
type interrupting notes

var pressed context.CancelFunc

func (i interrupting) Evolve(event any) interrupting {
	pressed()
	return interrupting(notes(i).Evolve(event))
}

// TestInterruptedRebuildGoesOn when it is run again, or begins again if asked.
func TestInterruptedRebuildGoesOn(t *testing.T) {
	d := newDesk(t)
	d.program.Projections = []projection.Projection{projection.View[interrupting]{Name: "notes"}}
	interrupt := func(args ...string) {
		t.Helper()
		var ctx context.Context
		ctx, pressed = context.WithCancel(testkit.Context(t))
		d.errs.Reset()
		if got := d.program.Run(ctx, args); got != ops.Interrupted {
			t.Errorf("status %d: %s", got, &d.errs)
		}
		has(t, d.errs.String(), "what is done is kept: `desk ops rebuild notes` goes on", "desk ops: interrupted\n")
	}
	interrupt("rebuild", "notes", "--yes")
	has(t, d.errs.String(), "reads all 4 events")
	interrupt("rebuild", "notes", "--yes")
	has(t, d.errs.String(), "goes on where it was: 0 of 4 events")
	interrupt("rebuild", "notes", "--yes", "--restart")
	has(t, d.errs.String(), "throws away a rebuild that has read 0 events")
	pressed = func() {}
	d.run(ops.Done, "rebuild", "notes", "--yes")
}

// TestRestartForgets what an interrupted rebuild has done, here wrongly: it says that
// all streams are done, and the check of the new edition finds that they are not.
func TestRestartForgets(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.program.Projections[0] = projection.View[picky]{Name: "notes"}
	d.run(ops.Problem, "rebuild", "notes", "--yes")
	d.program.Projections[0] = notesView
	d.sql(`update weir.rebuilds set stream_id = 1000`)
	_, errs := d.run(ops.Problem, "rebuild", "notes", "--yes")
	has(t, errs, "is wrong and was not swapped in", "the old edition still serves", "`desk ops rebuild notes --restart` begins again")
	_, errs = d.run(ops.Problem, "rebuild", "notes", "--restart")
	has(t, errs, "nothing was done", "throws away a rebuild that has read 0 events, and reads all 4 again")
	d.run(ops.Done, "rebuild", "notes", "--restart", "--yes")
	d.run(ops.Done, "verify")
}

// TestNobodyAnswers: a question to a terminal that nobody sits at is a no. The null
// device is one, as far as one can tell.
func TestNobodyAnswers(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	d.program.Stdin, d.program.Stderr = null, null
	d.run(ops.Problem, "rebuild", "notes")
	if out, _ := d.run(ops.Done, "views", "-o", "json"); strings.Contains(out, `"edition":2`) {
		t.Error(out)
	}
}

// TestOperatorChangesNoSchema: views whose tables are not there stay like that.
func TestOperatorChangesNoSchema(t *testing.T) {
	t.Parallel()
	registry, err := weir.NewRegistry(noteTypes)
	if err != nil {
		t.Fatal(err)
	}
	s := testkit.Store(t, eventstore.Config{Types: registry})
	if _, err := s.Ingest(testkit.Context(t), false, note("n-1", 1, 1)); err != nil {
		t.Fatal(err)
	}
	var errs bytes.Buffer
	for _, args := range [][]string{{"verify"}, {"explain", "notes", "n-1"}, {"rebuild", "notes", "--yes"}, {"rewind", "notes", "n-1", "--to", "1"}} {
		errs.Reset()
		p := ops.Program{Stdout: &errs, Stderr: &errs, Projections: []projection.Projection{notesView}, Store: eventstore.Config{Pool: s.Pool(), Types: registry}}
		if status := p.Run(testkit.Context(t), args); status != ops.Unable {
			t.Errorf("%q ends with %d", args, status)
		}
		has(t, errs.String(), "start the application once")
	}
	var tables int
	if err := s.Pool().QueryRow(testkit.Context(t), "select count(*) from pg_class where relname ~ '_notes'").Scan(&tables); err != nil || tables > 0 {
		t.Errorf("%d tables, %v", tables, err)
	}
}
