package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weir-es/weir/devserver"
	"github.com/weir-es/weir/examples/loans/xes"
)

// servers are started once for all tests: each test takes a database and a broker
// of its own where it matters.
var servers *devserver.Server

func TestMain(m *testing.M) {
	os.Exit(withServers(m))
}

// withServers also checks at the end that every goroutine ended.
func withServers(m *testing.M) int {
	// The tests bring their servers and stop them, so none of the caller's.
	os.Unsetenv("WEIR_POSTGRES")
	os.Unsetenv("WEIR_NATS")
	var err error
	if servers, err = devserver.Start(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "start servers:", err)
		return 1
	}
	status := m.Run()
	if err := errors.Join(servers.Close(), goleak.Find()); err != nil {
		fmt.Fprintln(os.Stderr, "after the tests:", err)
		return 1
	}
	return status
}

// newDatabase is an empty database.
func newDatabase(t *testing.T) string {
	t.Helper()
	url, err := servers.PostgresServer().NewDatabase(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return url
}

// testRun is a run of a log on servers of the test's own, which t sees the log of.
func testRun(t *testing.T, log source, o options) (*run, *watcher) {
	t.Helper()
	found, err := log.check(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	seen := &watcher{signals: map[string]chan string{}}
	return &run{
		options:  o,
		log:      log,
		found:    found,
		postgres: newDatabase(t),
		nats:     startNATS(t).URL(),
		logger:   slog.New(slog.NewTextHandler(io.MultiWriter(t.Output(), seen), nil)),
		display:  newDisplay(t.Output(), found.Events),
	}, seen
}

// watcher turns log lines into signals.
type watcher struct {
	mu      sync.Mutex
	signals map[string]chan string
}

// on gives the first line that contains text.
func (w *watcher) on(text string) <-chan string {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.signals[text] = make(chan string, 1)
	return w.signals[text]
}

func (w *watcher) Write(line []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for text, signal := range w.signals {
		if strings.Contains(string(line), text) {
			select {
			case signal <- string(line):
			default:
			}
		}
	}
	return len(line), nil
}

// within gives tests that wait an end.
func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeoutCause(t.Context(), d, fmt.Errorf("the test took more than %s", d))
	t.Cleanup(cancel)
	return ctx
}

// finish runs to the end and compares with what the log says.
func finish(t *testing.T, r *run) Result {
	t.Helper()
	result, err := r.all(within(t, 2*time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	wantNumbers(t, result, expected(t, r.log))
	return result
}

// expected is the result by a plain reading of the log, from top to bottom.
func expected(t *testing.T, log source) Result {
	t.Helper()
	want := Result{ByActivity: map[string]int64{}, EndActivities: map[string]int64{}}
	variants := map[string]int64{}
	for _, trace := range traces(t, log) {
		if len(trace.Events) == 0 {
			continue
		}
		variant, step := "", ""
		for _, event := range trace.Events {
			step = event.Activity + "+" + event.Transition
			variant += step + "\n"
			want.ByActivity[event.Activity]++
			want.Events++
		}
		want.Cases++
		want.EndActivities[step]++
		variants[variant]++
		want.MostCommonVariant = max(want.MostCommonVariant, variants[variant])
		if trace.AmountReq != nil {
			want.AmountReqSum += *trace.AmountReq
		}
	}
	want.Variants = int64(len(variants))
	want.Published, want.Stored = want.Events, want.Events
	want.Applied.Trace, want.Applied.Activity = want.Events, want.Events
	return want
}

func traces(t *testing.T, log source) (all []xes.Trace) {
	t.Helper()
	file, err := log.open()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for trace, err := range xes.Read(file) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, trace)
	}
	return all
}

// wantNumbers compares everything but how it went.
func wantNumbers(t *testing.T, got, want Result) {
	t.Helper()
	got.DuplicatesSent, got.Inversions, got.Rewinds, got.Seconds, got.EventsPerSecond = 0, 0, 0, Seconds{}, 0
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func smallLog(t *testing.T, seed uint64, cases int) source {
	t.Helper()
	log, err := generatedSource(seed, cases)
	if err != nil {
		t.Fatal(err)
	}
	return log
}

// TestLoans_TheNumbersAreTheSameWhateverHappens is what the example is for.
func TestLoans_TheNumbersAreTheSameWhateverHappens(t *testing.T) {
	for _, c := range []struct {
		what string
		options
	}{
		{"nothing happens", options{seed: 1}},
		{"copies and jitter", options{seed: 2, duplicate: 0.3, jitter: 100 * time.Millisecond}},
		{"copies, jitter and kills", options{seed: 3, duplicate: 0.05, jitter: 200 * time.Millisecond, kill: 2}},
	} {
		t.Run(c.what, func(t *testing.T) {
			r, seen := testRun(t, smallLog(t, c.seed, 100), c.options)
			lastKill := seen.on(fmt.Sprintf("kill=%d", c.kill))
			result := finish(t, r)
			if (c.duplicate > 0) != (result.DuplicatesSent > 0) {
				t.Errorf("%d duplicates sent at a share of %v", result.DuplicatesSent, c.duplicate)
			}
			if c.kill > 0 && len(lastKill) == 0 {
				t.Errorf("kill %d did not happen", c.kill)
			}
		})
	}
}

// TestLoans_EveryKillIsInTheMiddle looks at the store right after each kill.
func TestLoans_EveryKillIsInTheMiddle(t *testing.T) {
	r, seen := testRun(t, smallLog(t, 4, 60), options{seed: 4, kill: 1})
	killed := seen.on("killed the app")
	finish(t, r)
	select {
	case line := <-killed:
		if !strings.Contains(line, "stored=") || strings.Contains(line, fmt.Sprintf("stored=%d", r.found.Events)) {
			t.Errorf("not in the middle: %s", line)
		}
	default:
		t.Error("no kill")
	}
}

func TestLoans_ALogOfOneEventSurvivesKills(t *testing.T) {
	r, _ := testRun(t, textSource(twoTraces), options{kill: 1})
	finish(t, r)
}

func TestLoans_ALogWithoutEventsHasNothingToSay(t *testing.T) {
	r, _ := testRun(t, textSource("<log/>"), options{kill: 1})
	finish(t, r)
}

func TestLoans_RunningItAgainStoresNothingNew(t *testing.T) {
	first, _ := testRun(t, smallLog(t, 5, 50), options{seed: 5, jitter: 20 * time.Millisecond})
	finish(t, first)
	again := &run{options: first.options, log: first.log, found: first.found, postgres: first.postgres, nats: first.nats,
		logger: first.logger, display: first.display}
	finish(t, again)
	if counted := again.counted(); counted.inversions+counted.rewinds+counted.applied != 0 {
		t.Errorf("the second run did %+v", counted)
	}
}

// TestLoans_AnotherBrokerStoresNothingNew publishes everything again to a broker
// that has never seen it: what is stored once is stored once.
func TestLoans_AnotherBrokerStoresNothingNew(t *testing.T) {
	first, _ := testRun(t, smallLog(t, 6, 50), options{seed: 6})
	finish(t, first)
	again := &run{options: first.options, log: first.log, found: first.found, postgres: first.postgres, nats: startNATS(t).URL(),
		logger: first.logger, display: first.display}
	finish(t, again)
	if applied := again.counted().applied; applied != 0 {
		t.Errorf("applied %d events again", applied)
	}
}

func TestLoans_TwoLogsShareServers(t *testing.T) {
	first, _ := testRun(t, smallLog(t, 7, 20), options{seed: 7})
	finish(t, first)
	second, _ := testRun(t, smallLog(t, 8, 20), options{seed: 8})
	second.postgres, second.nats = first.postgres, first.nats
	finish(t, second)
}

func TestLoans_AwkwardNamesCountRight(t *testing.T) {
	r, _ := testRun(t, namesSource(awkward), options{duplicate: 0.5, jitter: 20 * time.Millisecond})
	finish(t, r)
}

// TestLoans_ABadLogIsOneClearLine runs the command, which starts no server for a
// log that is no good.
func TestLoans_ABadLogIsOneClearLine(t *testing.T) {
	const event = `<event><string key="concept:name" value="a"/><date key="time:timestamp" value="2024-01-01T00:00:00Z"/></event>`
	trace := "<log>\n<trace>\n<string key=\"concept:name\" value=\"c\"/>\n"
	folder := t.TempDir()
	for name, c := range map[string]struct{ log, want string }{
		"cut.xes":      {trace + event[:40], "line 4: the log ends in the middle"},
		"activity.xes": {trace + `<event><date key="time:timestamp" value="2024-01-01T00:00:00Z"/></event></trace></log>`, "line 4: the event has no activity (concept:name)"},
		"huge.xes":     {trace + `<string key="note" value="` + strings.Repeat("x", 10<<20) + `"/></trace></log>`, "line 4: an attribute, text or comment is longer than 1048576 bytes"},
		"noname.xes":   {"<log><trace>" + event + "</trace></log>", "line 1: the trace has no name (concept:name)"},
		"nul.xes":      {strings.Replace(trace, `"c"`, `"&#0;"`, 1), "line 3: malformed XML: illegal character code U+0000"},
		"old.xes":      {trace + strings.Replace(event, "2024", "1924", 1) + "</trace></log>", "line 4: time:timestamp 1924-01-01T00:00:00Z lies before 1970"},
	} {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(c.log), 0o600); err != nil {
			t.Fatal(err)
		}
		wantFailure(t, []string{"-log", path, "-json"}, "loans: read log "+path+": "+c.want+"\n")
	}
	absent := filepath.Join(folder, "absent.xes")
	wantFailure(t, []string{"-log", absent}, "loans: read log: stat "+absent+": no such file or directory\n")
	wantFailure(t, []string{"-log", folder}, "loans: read log: "+folder+" is not a file, and it is read twice: to check it and to publish it\n")
}

func wantFailure(t *testing.T, args []string, want string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	status := execute(t.Context(), args, &stdout, &stderr)
	if status != exitFailed || stdout.Len() > 0 || stderr.String() != want {
		t.Errorf("%v: status %d, stdout %q, stderr\n%s\nwant\n%s", args, status, stdout.String(), stderr.String(), want)
	}
}

func TestLoans_FlagsAreChecked(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"-duplicate 2", "-duplicate 2 is not between 0 and 1"},
		{"-duplicate NaN", "-duplicate NaN is not between 0 and 1"},
		{"-jitter -1s", "-jitter -1s is not between 0 and 1m0s"},
		{"-kill -1", "-kill -1 is not between 0 and 100"},
		{"log.xes", `unexpected argument "log.xes"`},
		{"-nosuch", "flag provided but not defined: -nosuch"},
	} {
		var stdout, stderr bytes.Buffer
		status := execute(t.Context(), strings.Fields(c.args), &stdout, &stderr)
		if status != exitUsage || stdout.Len() > 0 || !strings.Contains(stderr.String(), c.want) {
			t.Errorf("%s: status %d, stderr %s", c.args, status, stderr.String())
		}
	}
}

// TestLoans_AWrongPortIsSaid points the run at ports where nobody listens.
func TestLoans_AWrongPortIsSaid(t *testing.T) {
	for _, c := range []struct {
		what, want string
		wrong      func(*run)
	}{
		{"postgres", "connect", func(r *run) { r.postgres = "postgres://u:secret@127.0.0.1:1/d" }},
		{"nats", "connect to nats at nats://127.0.0.1:1", func(r *run) { r.nats = "nats://u:secret@127.0.0.1:1" }},
	} {
		t.Run(c.what, func(t *testing.T) {
			r, _ := testRun(t, smallLog(t, 9, 5), options{})
			r.patience = 300 * time.Millisecond
			c.wrong(r)
			_, err := r.all(within(t, 30*time.Second))
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "secret") {
				t.Errorf("got %v", err)
			}
			if strings.Contains(err.Error(), "context canceled") {
				t.Errorf("says what followed instead of what was wrong: %v", err)
			}
		})
	}
}

func TestLoans_StoppedInTheMiddleItEndsAndCanGoOn(t *testing.T) {
	r, _ := testRun(t, smallLog(t, 10, 300), options{seed: 10, jitter: time.Second})
	ctx, stop := context.WithCancel(within(t, time.Minute))
	stopWhen(ctx, t, stop, func() bool { return r.progress().stored > 0 })
	if _, err := r.all(ctx); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	again := &run{options: options{seed: 10}, log: r.log, found: r.found, postgres: r.postgres, nats: r.nats, logger: r.logger, display: r.display}
	finish(t, again)
}

// stopWhen looks now and then until ready.
func stopWhen(ctx context.Context, t *testing.T, stop func(), ready func() bool) {
	tick := time.NewTicker(10 * time.Millisecond)
	var group sync.WaitGroup
	group.Go(func() {
		defer tick.Stop()
		for !ready() {
			if await(ctx, tick.C) != nil {
				return
			}
		}
		stop()
	})
	t.Cleanup(group.Wait)
}

func TestLoans_JSONIsOneObject(t *testing.T) {
	t.Setenv("WEIR_POSTGRES", newDatabase(t))
	t.Setenv("WEIR_NATS", startNATS(t).URL())
	path := filepath.Join(t.TempDir(), "log.xes")
	var file bytes.Buffer
	if err := xes.Write(&file, generate(11, 30)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, file.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	var stdout bytes.Buffer
	if status := execute(t.Context(), []string{"-json", "-log", path}, &stdout, t.Output()); status != exitDone {
		t.Fatalf("status %d", status)
	}
	var result Result
	decoder := json.NewDecoder(&stdout)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&result); err != nil {
		t.Fatal(err)
	}
	wantNumbers(t, result, expected(t, source{path, func() (io.ReadCloser, error) { return os.Open(path) }}))
	if _, err := decoder.Token(); err != io.EOF {
		t.Errorf("something follows the object: %v", err)
	}
	if s := result.Seconds; s.Publish <= 0 || s.Stored < s.Publish || s.Applied < s.Stored || result.EventsPerSecond <= 0 {
		t.Errorf("seconds %+v, %f events per second", s, result.EventsPerSecond)
	}
}
