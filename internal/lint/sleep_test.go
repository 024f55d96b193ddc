package lint

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// sleeps are the places in a Go file where time.Sleep is named, called or not, under
// whatever name package time is imported.
func sleeps(file string, source []byte) ([]string, error) {
	set := token.NewFileSet()
	tree, err := parser.ParseFile(set, file, source, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	clock := nameOfTime(tree)
	var places []string
	ast.Inspect(tree, func(n ast.Node) bool {
		if isSleep(n, clock) {
			places = append(places, fmt.Sprintf("%s: a test waits for a signal, it does not sleep", set.Position(n.Pos())))
		}
		return true
	})
	return places, nil
}

// nameOfTime is what the file calls package time: "" if it does not import it, "."
// if its names are used bare.
func nameOfTime(file *ast.File) string {
	for _, i := range file.Imports {
		path, _ := strconv.Unquote(i.Path.Value)
		switch {
		case path != "time":
		case i.Name == nil:
			return "time"
		default:
			return i.Name.Name
		}
	}
	return ""
}

func isSleep(n ast.Node, clock string) bool {
	switch n := n.(type) {
	case *ast.SelectorExpr:
		x, ok := n.X.(*ast.Ident)
		return ok && n.Sel.Name == "Sleep" && x.Name == clock
	case *ast.CallExpr:
		f, ok := n.Fun.(*ast.Ident)
		return ok && clock == "." && f.Name == "Sleep"
	}
	return false
}

// eachTestFile calls do with the name and text of every test file under root. Since
// it looks into every folder, a change anywhere makes the go command run the tests
// of this package again, which could not know otherwise what go list saw.
func eachTestFile(root string, do func(name string, source []byte) error) error {
	return filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && isHidden(entry.Name()):
			return filepath.SkipDir
		case entry.IsDir() || !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		source, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return do(path, source)
	})
}

// isHidden is true for directories that the go command does not look into.
func isHidden(name string) bool {
	return name == "testdata" || len(name) > 2 && (name[0] == '.' || name[0] == '_')
}

func TestNoSleep(t *testing.T) {
	files := 0
	err := eachTestFile(top, func(name string, source []byte) error {
		files++
		places, err := sleeps(name, source)
		report(t, places)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if files < 5 {
		t.Errorf("looked at %d test files only: is %s still the root of the module?", files, top)
	}
}

func TestSleepsAreFound(t *testing.T) {
	for _, c := range []struct {
		name, source, want string
	}{
		{"a timer is no sleep", `import "time"; var _ = time.NewTimer(1)`, ""},
		{"another's Sleep is its own", `import "time"; var _ = clock.Sleep; var _ time.Time`, ""},
		{"in a comment", "import \"time\"; var _ time.Time // time.Sleep(1)", ""},
		{"called", `import "time"; func f() { time.Sleep(1) }`, "x_test.go:1:38"},
		{"handed on", `import "time"; var pause = time.Sleep`, "x_test.go:1:39"},
		{"renamed", `import clock "time"; func f() { clock.Sleep(1) }`, "x_test.go:1:44"},
		{"bare", `import . "time"; func f() { Sleep(1) }`, "x_test.go:1:40"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := sleeps("x_test.go", []byte("package x; "+c.source))
			if err != nil {
				t.Fatal(err)
			}
			wantComplaint(t, got, c.want)
		})
	}
}
