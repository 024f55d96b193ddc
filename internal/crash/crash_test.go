package crash_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/weir-es/weir/internal/crash"
)

// TestAPointActsOnceAtThePassingThatWasNamed, whoever passes it, and others never do.
func TestAPointActsOnceAtThePassingThatWasNamed(t *testing.T) {
	t.Cleanup(crash.Disarm)
	var acts, passings atomic.Int64
	var at int64
	crash.Arm(crash.WindowStored, 5, func() { acts.Add(1); at = passings.Load() })
	for range 4 {
		passings.Add(1)
		crash.At(crash.WindowStored)
		crash.At(crash.WindowClosed)
	}
	if acts.Load() != 0 {
		t.Fatal("it acted before its time")
	}
	var g sync.WaitGroup
	for range 8 {
		g.Go(func() {
			passings.Add(1)
			crash.At(crash.WindowStored)
		})
	}
	g.Wait()
	if acts.Load() != 1 || at < 5 {
		t.Errorf("it acted %d times, first at passing %d", acts.Load(), at)
	}
	crash.Arm(crash.WindowStored, 1, func() { acts.Add(1) })
	crash.Disarm()
	crash.At(crash.WindowStored)
	if acts.Load() != 1 {
		t.Error("it acted after it was disarmed")
	}
}

func TestPointsAreFoundByTheirNames(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range crash.Points() {
		if seen[p.String()] || p.About() == "" || crash.Find(p.String()) != p {
			t.Errorf("point %s is there twice, says nothing, or is not found", p)
		}
		seen[p.String()] = true
	}
	if crash.Find("nowhere") != nil {
		t.Error("there is a point nowhere")
	}
}

// source is what is not a test, of all rooms, by its name.
func source(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	top := filepath.Join("..", "..")
	err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		name, _ := filepath.Rel(top, path)
		all[filepath.ToSlash(name)] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

var (
	declared = regexp.MustCompile(`(?m)^\t(\w+) += declare\("`)
	passed   = regexp.MustCompile(`crash\.At\((?:crash\.)?(\w+)\)`)
)

// TestEveryPointIsPassedSomewhere, in one place each, so that a name says where.
func TestEveryPointIsPassedSomewhere(t *testing.T) {
	all := source(t)
	times := map[string]int{}
	for name, text := range all {
		for _, match := range passed.FindAllStringSubmatch(text, -1) {
			if times[match[1]]++; strings.HasPrefix(name, "internal/") {
				t.Errorf("%s passes a point", name)
			}
		}
	}
	names := declared.FindAllStringSubmatch(all["internal/crash/points.go"], -1)
	if len(names) != len(crash.Points()) || len(names) < 40 {
		t.Fatalf("%d names of %d points", len(names), len(crash.Points()))
	}
	for _, match := range names {
		if n := times[match[1]]; n == 0 || n > 1 && match[1] != "AppendCommitted" {
			t.Errorf("%s is passed in %d places", match[1], n)
		}
	}
}

// TestNobodyIsArmedByAccident: no code of a service or of a library does it.
func TestNobodyIsArmedByAccident(t *testing.T) {
	for name, text := range source(t) {
		if strings.Contains(text, "crash.Arm(") && !strings.HasPrefix(name, "internal/chaos/") {
			t.Errorf("%s arms a point", name)
		}
	}
}

func BenchmarkAt(b *testing.B) {
	for b.Loop() {
		crash.At(crash.AppendPlanned)
	}
}
