package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-es/weir/internal/testkit"
)

// Every benchmark runs end to end. That each side stored or applied exactly what
// it was given is checked by the sides themselves, whenever they run: see
// TestTrialFailsUnlessEverythingArrived.
func TestBenchSmoke(t *testing.T) {
	ctx := testkit.Context(t)
	l := newLab(ctx, false)
	t.Cleanup(func() {
		if err := l.close(); err != nil {
			t.Error(err)
		}
	})
	for _, b := range benchmarks {
		t.Run(b.name, func(t *testing.T) {
			r, err := b.run(ctx, l, options{rounds: 1, scale: 0.005})
			if err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			if err := r.print(&out, true); err != nil {
				t.Fatal(err)
			}
			checkLine(t, b, out.Bytes())
		})
	}
}

// checkLine expects one line with one object of exactly the documented keys.
func checkLine(t *testing.T, b benchmark, out []byte) {
	t.Helper()
	if bytes.Count(out, []byte("\n")) != 1 {
		t.Errorf("not one line: %q", out)
	}
	var keys map[string]any
	var l line
	if err := errors.Join(json.Unmarshal(out, &keys), json.Unmarshal(out, &l)); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(slices.Sorted(maps.Keys(keys)), " "); got != "name ours ratio target twin unit" {
		t.Errorf("keys: %s", got)
	}
	if l.Name != b.name || l.Unit != b.unit || l.Target != b.target || l.Ours <= 0 || l.Twin <= 0 || l.Ratio != l.Ours/l.Twin {
		t.Errorf("%+v", l)
	}
}

func TestTrialFailsUnlessEverythingArrived(t *testing.T) {
	work := func(took time.Duration) func(context.Context, *trial) error {
		return func(_ context.Context, t *trial) error {
			return t.measure(func() error { <-time.After(took); return nil })
		}
	}
	arrived := func(n int) side {
		return func(ctx context.Context, t *trial) error {
			return errors.Join(work(time.Microsecond)(ctx, t), t.expect("items", n, t.n))
		}
	}
	for _, c := range []struct {
		name string
		side side
		want string
	}{
		{"all", arrived(10), ""},
		{"one lost", arrived(9), "9 items, want 10"},
		{"one twice", arrived(11), "11 items, want 10"},
		{"nobody looked", work(time.Microsecond), "did not check"},
		{"nobody measured", func(_ context.Context, t *trial) error { return t.expect("items", t.n, t.n) }, "did not measure"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := benchmark{name: c.name, size: 10, step: 1, ours: c.side, twin: arrived(10)}
			_, err := b.run(t.Context(), nil, options{rounds: 1, scale: 1})
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func TestSidesAlternate(t *testing.T) {
	var order []string
	named := func(name string) side {
		return func(_ context.Context, t *trial) error {
			order = append(order, name)
			return errors.Join(t.measure(func() error { return nil }), t.expect("items", t.n, t.n))
		}
	}
	b := benchmark{size: 1, step: 1, ours: named("ours"), twin: named("twin")}
	if _, err := b.run(t.Context(), nil, options{rounds: 3, scale: 1}); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(order, " "); got != "ours twin twin ours ours twin" {
		t.Error(got)
	}
}

func TestItemsAreWholeSteps(t *testing.T) {
	for _, c := range []struct {
		scale float64
		want  int
	}{{1, 60_000}, {0.05, 3000}, {0.0000001, 100}, {0.0025, 100}, {2, 120_000}} {
		if got := (benchmark{size: 60_000, step: 100}).items(c.scale); got != c.want {
			t.Errorf("scale %g: %d items, want %d", c.scale, got, c.want)
		}
	}
}

func TestChoose(t *testing.T) {
	all := []benchmark{{name: "windows/1key"}, {name: "windows/many"}, {name: "publish"}}
	for names, want := range map[string]string{
		"all":                  "windows/1key, windows/many, publish",
		"windows":              "windows/1key, windows/many",
		"publish,windows/many": "windows/many, publish",
		"publish,publish":      "publish",
	} {
		chosen, err := choose(all, names)
		if err != nil || list(chosen) != want {
			t.Errorf("%s: %s, %v; want %s", names, list(chosen), err, want)
		}
	}
	for _, names := range []string{"", "window", "publish,nothing", "windows/"} {
		if chosen, err := choose(all, names); err == nil || !strings.Contains(err.Error(), "windows/1key") {
			t.Errorf("%q: %s, %v; want an error that lists the names", names, list(chosen), err)
		}
	}
}

func TestResultIsOfMedians(t *testing.T) {
	r := result{benchmark{name: "b", unit: "items/s", target: 0.3}, []float64{100, 300, 900}, []float64{1000, 500, 2000}, ""}
	if l := r.line(); l.Ours != 300 || l.Twin != 1000 || l.Ratio != 0.3 {
		t.Errorf("%+v", l)
	}
	for _, part := range []string{"ratio  0.30 (0.10 to 0.60)", "target 0.3 met"} {
		if !strings.Contains(r.String(), part) {
			t.Errorf("%q is not in %q", part, r)
		}
	}
	r.target = 0.4
	if !strings.Contains(r.String(), "NOT MET") {
		t.Error(r)
	}
	if got := median([]float64{4, 1, 3, 2}); got != 2.5 {
		t.Errorf("median of four: %g", got)
	}
}

func TestFactsAreAsLongAsSaid(t *testing.T) {
	for _, m := range facts(100, 10_000) {
		if _, err := registry.Decode(m); err != nil || len(m.Data) != factBytes {
			t.Errorf("%d bytes, %v: %s", len(m.Data), err, m.Data)
		}
	}
}

func TestFlagsThatMakeNoSense(t *testing.T) {
	for _, args := range []string{"-rounds 0", "-scale 0", "-scale -1", "publish", "-run nothing"} {
		if err := run(t.Context(), strings.Fields(args), new(bytes.Buffer)); err == nil {
			t.Errorf("%s: no error", args)
		}
	}
}
