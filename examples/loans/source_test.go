package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-es/weir/examples/loans/xes"
)

// textSource is a log in a string.
func textSource(text string) source {
	return source{"log.xes", func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(text)), nil }}
}

const twoTraces = `<log>
<trace><string key="concept:name" value="c1"/>
	<event><string key="concept:name" value="a"/><date key="time:timestamp" value="2024-01-01T00:00:00Z"/></event>
</trace>
<trace><string key="concept:name" value="c2"/></trace>
</log>`

func TestCheck_SaysWhatTheLogHolds(t *testing.T) {
	got, err := textSource(twoTraces).check(t.Context())
	if err != nil || got.Cases != 1 || got.Events != 1 || got.Empty != 1 || len(got.ID) != 10 {
		t.Errorf("got %+v, %v", got, err)
	}
	again, _ := textSource(twoTraces).check(t.Context())
	other, _ := textSource(twoTraces + "\n").check(t.Context())
	if again.ID != got.ID || other.ID == got.ID {
		t.Errorf("ids %s, again %s, of another log %s", got.ID, again.ID, other.ID)
	}
}

func TestCheck_ACaseToldTwiceIsAnError(t *testing.T) {
	_, err := textSource(strings.Replace(twoTraces, "c2", "c1", 1)).check(t.Context())
	var fault *xes.Error
	if !errors.As(err, &fault) || err.Error() != `read log log.xes: line 5: case "c1" was already told in line 2` {
		t.Errorf("got %v", err)
	}
}

func TestCheck_ABadLogIsSaidWithItsName(t *testing.T) {
	_, err := textSource(twoTraces[:150]).check(t.Context())
	if err == nil || err.Error() != "read log log.xes: line 3: the log ends in the middle" {
		t.Errorf("got %v", err)
	}
}

func TestCheck_EndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := textSource(twoTraces).check(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestFileSource_AnAbsentFileAndAFolderAreSaid(t *testing.T) {
	folder := t.TempDir()
	if _, err := fileSource(filepath.Join(folder, "absent.xes")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	if _, err := fileSource(folder); err == nil || !strings.Contains(err.Error(), "is not a file") {
		t.Errorf("got %v", err)
	}
}

func TestGeneratedSource_TheSeedDecides(t *testing.T) {
	ids := map[uint64]string{}
	for _, seed := range []uint64{1, 2, 1} {
		made, err := generatedSource(seed, 50)
		if err != nil {
			t.Fatal(err)
		}
		found, err := made.check(t.Context())
		if err != nil || found.Cases != 50 || found.Events < 200 {
			t.Fatalf("found %+v, %v", found, err)
		}
		if id, ok := ids[seed]; ok && id != found.ID {
			t.Errorf("seed %d gave %s and %s", seed, id, found.ID)
		}
		ids[seed] = found.ID
	}
	if ids[1] == ids[2] {
		t.Error("two seeds gave one log")
	}
}

func TestGenerate_ALogWorthTheName(t *testing.T) {
	variants, writers, shared := map[string]bool{}, map[int]bool{}, 0
	for trace := range generate(1, 2000) {
		var row Trace
		for i, event := range trace.Events {
			row = row.Evolve(Logged{Activity: event.Activity, Transition: event.Transition})
			writers[systemOf(event.Activity)] = true
			if i == 0 {
				continue
			}
			if event.Time.Before(trace.Events[i-1].Time) {
				t.Fatalf("%s goes back in time", trace.Name)
			}
			if event.Time.Equal(trace.Events[i-1].Time) {
				shared++
			}
		}
		variants[row.Variant] = true
	}
	if len(variants) < 50 || len(writers) != len(systems) || shared < 1000 {
		t.Errorf("%d variants, %d systems, %d events share a millisecond", len(variants), len(writers), shared)
	}
}

// namesSource is a log whose cases and activities have these names.
func namesSource(names []string) source {
	var file bytes.Buffer
	xes.Write(&file, func(yield func(xes.Trace) bool) {
		for _, name := range names {
			events := []xes.Event{{Activity: name, Transition: name, Time: noon}, {Activity: name, Time: noon}}
			if !yield(xes.Trace{Name: name, Events: events}) {
				return
			}
		}
	})
	return textSource(file.String())
}
