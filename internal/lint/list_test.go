package lint

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
)

const (
	module = "github.com/weir-es/weir"
	// top is the root of the module, seen from this package.
	top = "../.."
)

// pkg is what go list says of one package.
type pkg struct {
	ImportPath string
	Standard   bool
	Module     *struct{ Path string }
	Imports    []string
	Deps       []string
}

// house lists our packages and all they depend on, once for all tests.
var house = sync.OnceValues(func() ([]pkg, error) {
	list := exec.Command("go", "list", "-deps", "-json=ImportPath,Standard,Module,Imports,Deps", "./...")
	list.Dir = top
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w: %s", err, stderrOf(err))
	}
	return decodeList(bytes.NewReader(out))
})

func stderrOf(err error) []byte {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.Stderr
	}
	return nil
}

func decodeList(r io.Reader) (packages []pkg, err error) {
	for d := json.NewDecoder(r); ; {
		var p pkg
		switch err := d.Decode(&p); err {
		case nil:
			packages = append(packages, p)
		case io.EOF:
			return packages, nil
		default:
			return nil, err
		}
	}
}

// listHouse is house for a test.
func listHouse(t *testing.T) []pkg {
	t.Helper()
	packages, err := house()
	if err != nil {
		t.Fatal(err)
	}
	return packages
}

// room is the name of the room that a package of ours belongs to: "weir" for the
// vocabulary, "transport", "internal/lint", "cmd/weir"; empty for others' packages.
func room(path string) string {
	if path == module {
		return "weir"
	}
	inside, ours := strings.CutPrefix(path, module+"/")
	if !ours {
		return ""
	}
	parts := strings.Split(inside, "/")
	if shared := parts[0] == "internal" || parts[0] == "cmd"; shared && len(parts) > 1 {
		return parts[0] + "/" + parts[1]
	}
	return parts[0]
}

// moduleOf maps import paths to the module they come from; std has none.
func moduleOf(packages []pkg) map[string]string {
	modules := map[string]string{}
	for _, p := range packages {
		if p.Module != nil && !p.Standard {
			modules[p.ImportPath] = p.Module.Path
		}
	}
	return modules
}

// report fails the test with one line per complaint, sorted, each once.
func report(t *testing.T, complaints []string) {
	t.Helper()
	slices.Sort(complaints)
	for _, c := range slices.Compact(complaints) {
		t.Error(c)
	}
}

func TestRoom(t *testing.T) {
	for path, want := range map[string]string{
		module:                            "weir",
		module + "/eventstore":            "eventstore",
		module + "/eventstore/migrations": "eventstore",
		module + "/internal/bench/twins":  "internal/bench",
		module + "/cmd/weir":              "cmd/weir",
		module + "/examples/loans":        "examples",
		module + "side":                   "",
		"github.com/jackc/pgx/v5":         "",
		"encoding/json":                   "",
	} {
		if got := room(path); got != want {
			t.Errorf("room(%q) = %q, want %q", path, got, want)
		}
	}
}
