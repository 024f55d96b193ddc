package lint

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// testCase is one row of docs/cases.md.
type testCase struct {
	line    int
	reports []string
	tests   []string // "eventstore.TestP6_FreshStore"
}

var (
	inCode = regexp.MustCompile("`([^`]+)`")
	number = regexp.MustCompile(`#\d+$`)
)

// codes are the texts in backquotes.
func codes(cell string) (all []string) {
	for _, match := range inCode.FindAllStringSubmatch(cell, -1) {
		all = append(all, match[1])
	}
	return all
}

// readCases are the rows of the tables in a page, without their heads.
func readCases(page string) (all []testCase) {
	for n, line := range strings.Split(page, "\n") {
		cells := strings.Split(strings.Trim(line, "|"), "|")
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| report |") {
			continue
		}
		all = append(all, testCase{n + 1, codes(cells[0]), codes(cells[len(cells)-1])})
	}
	return all
}

// checkCases compares the rows with the tests that exist and what their comments
// say. A report is named by its number, or by all its words if it has none.
func checkCases(cases []testCase, comments map[string]string) (complaints []string) {
	for _, c := range cases {
		at := fmt.Sprintf("docs/cases.md:%d: ", c.line)
		if len(c.reports) == 0 || len(c.tests) == 0 {
			complaints = append(complaints, at+"a row has a report and a test, both in backquotes")
		}
		var said strings.Builder
		for _, test := range c.tests {
			comment, ok := comments[test]
			if !ok {
				complaints = append(complaints, at+test+" does not exist")
			}
			said.WriteString(comment)
		}
		for _, report := range c.reports {
			name := regexp.QuoteMeta(cmp.Or(number.FindString(report), report)) + `(\D|$)`
			if !regexp.MustCompile(name).MatchString(strings.Join(strings.Fields(said.String()), " ")) {
				complaints = append(complaints, at+"no test of the row names "+report)
			}
		}
	}
	return complaints
}

// commentsOfTests are the comments of all tests below root, by package and name.
func commentsOfTests(root string) (map[string]string, error) {
	comments := map[string]string{}
	err := eachTestFile(root, func(file string, source []byte) error {
		tree, err := parser.ParseFile(token.NewFileSet(), file, source, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		folder, err := filepath.Rel(root, filepath.Dir(file))
		if err != nil {
			return err
		}
		if folder = filepath.ToSlash(folder); folder == "." {
			folder = "weir"
		}
		for _, d := range tree.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil {
				comments[folder+"."+f.Name.Name] = f.Doc.Text()
			}
		}
		return nil
	})
	return comments, err
}

// TestCases: the page about what went wrong elsewhere names tests that exist, and
// each report is named by one of its tests.
func TestCases(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(top, "docs", "cases.md"))
	if err != nil {
		t.Fatal(err)
	}
	comments, err := commentsOfTests(top)
	if err != nil {
		t.Fatal(err)
	}
	cases := readCases(string(page))
	if len(cases) < 30 {
		t.Errorf("%d rows only: is the page still made of tables?", len(cases))
	}
	report(t, checkCases(cases, comments))
}

func TestWrongCasesAreFound(t *testing.T) {
	comments := map[string]string{"store.TestA": "TestA does. (other#12,\nnext#3)\n", "store.TestB": "TestB: what the Ack\nDeadline of one did.\n"}
	for name, c := range map[string]struct{ row, want string }{
		"fine":               {"| `other#12` | lost | yes | `store.TestA` |", ""},
		"fine without #":     {"| `Ack Deadline` | lost | yes | `store.TestB` |", ""},
		"one of two":         {"| `next#3` | lost | yes | `store.TestB`, `store.TestA` |", ""},
		"no row":             {"| report | symptom | here | shown by |\n|---|---|---|---|", ""},
		"a test that is not": {"| `other#12` | lost | yes | `store.TestA`, `store.TestC` |", "store.TestC does not exist"},
		"another package":    {"| `other#12` | lost | yes | `shop.TestA` |", "shop.TestA does not exist"},
		"named by none":      {"| `other#1` | lost | yes | `store.TestA` |", "names other#1"},
		"one named by none":  {"| `other#12`, `other#4` | lost | yes | `store.TestA` |", "names other#4"},
		"words not said":     {"| `Ack Limit` | lost | yes | `store.TestB` |", "names Ack Limit"},
		"without a test":     {"| `other#12` | lost | cannot happen | |", "a row has a report and a test"},
	} {
		t.Run(name, func(t *testing.T) {
			got := checkCases(readCases(c.row), comments)
			if name == "another package" || name == "without a test" {
				got = got[:1] // then nothing names it either
			}
			wantComplaint(t, got, c.want)
		})
	}
}
