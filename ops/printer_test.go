package ops

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"
)

type rowForTest struct {
	Name string          `json:"name"`
	At   time.Time       `json:"at,omitzero"`
	More int             `json:"more" table:"-"`
	Data json.RawMessage `json:"data"`
}

// TestTableGrowsWithWhatComes and keeps its columns in line from then on.
func TestTableGrowsWithWhatComes(t *testing.T) {
	var b bytes.Buffer
	p := newPrinter(&b, false)
	p.cut = 10
	print := func(name, data string) {
		if err := errors.Join(p.print(rowForTest{Name: name, Data: json.RawMessage(data)}), p.flush()); err != nil {
			t.Error(err)
		}
	}
	print("é", `{ "a" : 1 }`)
	print("longer", `"123456789012"`)
	print("x\ty", `"two"`)
	print("\x1b[2J\xff", ``)
	const want = `
NAME  AT  DATA
é         {"a":1}
longer      "123456789…
x\ty        "two"
\x1b[2J\xff
`
	if got := "\n" + b.String(); got != want {
		t.Errorf("%s", got)
	}
}

// TestJSONIsALineEach, with markup as it is.
func TestJSONIsALineEach(t *testing.T) {
	var b bytes.Buffer
	p := newPrinter(&b, true)
	p.print(rowForTest{Name: "<&>", Data: json.RawMessage("{\n\"a\" : 1e400}")})
	p.print(rowForTest{At: time.Unix(0, 1), Data: json.RawMessage(`2`)})
	p.flush()
	const want = `{"name":"<&>","more":0,"data":{"a":1e400}}
{"name":"","at":"1970-01-01T00:00:00.000000001Z","more":0,"data":2}
`
	if got := strings.ReplaceAll(b.String(), time.Unix(0, 1).Format(time.RFC3339Nano), "1970-01-01T00:00:00.000000001Z"); got != want {
		t.Errorf("%s", got)
	}
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errors.New("no space left") }

// TestPrinterSaysWhenNobodyReads instead of going on for ever.
func TestPrinterSaysWhenNobodyReads(t *testing.T) {
	for _, asJSON := range []bool{false, true} {
		p := newPrinter(fullDisk{}, asJSON)
		var err error
		for range 100_000 {
			if err = p.print(rowForTest{Name: "x", Data: json.RawMessage(`1`)}); err != nil {
				break
			}
		}
		if err == nil {
			t.Errorf("as JSON %t: no error", asJSON)
		}
	}
}

// TestNoPasswordIsShown, in whatever shape it turns up.
func TestNoPasswordIsShown(t *testing.T) {
	for _, text := range []string{
		"unexpected argument postgres://me:s3cr3t@h/x",
		"postgres://me:s3cr3t/with/slash@h and postgres://me:s3cr3t@with@at@h/x",
		"host=h password=s3cr3t user=x",
		"host=h PASSWORD = 's3cr3t \\' s3cr3t' user=x",
		"postgres://h/x?user=me&password=s3cr3t&sslmode=disable",
	} {
		if got := redact(text); strings.Contains(got, "s3cr3t") || !strings.Contains(got, "xxxxx") {
			t.Errorf("%q becomes %q", text, got)
		}
		var log bytes.Buffer
		if n, err := (redactor{&log}).Write([]byte(text)); n != len(text) || err != nil || log.String() != redact(text) {
			t.Errorf("logged %d bytes of %q: %q, %v", n, text, log.String(), err)
		}
	}
	for _, text := range []string{"stream \"a-1\" is at version 3, expected 1", "me@example.org", "http://h:80/x"} {
		if got := redact(text); got != text {
			t.Errorf("%q becomes %q", text, got)
		}
	}
}

// TestEveryFlagCompletes and every command: what the help shows can be typed with
// the help of a tab.
func TestEveryFlagCompletes(t *testing.T) {
	parser, err := Program{}.withDefaults().parser(&grammar{}, func(int) {})
	if err != nil {
		t.Fatal(err)
	}
	var walk func(node *kong.Node, words []string)
	walk = func(node *kong.Node, words []string) {
		with := func(more ...string) []string { return append(append([]string{}, words...), more...) }
		offered := strings.Join(candidates(parser.Model.Node, with("-"), nil), " ")
		for _, group := range node.AllFlags(true) {
			for _, flag := range group {
				if !strings.Contains(offered, "--"+flag.Name) {
					t.Errorf("after %q there is no --%s", words, flag.Name)
				}
			}
		}
		for _, child := range node.Children {
			got := candidates(parser.Model.Node, with(child.Name), nil)
			if len(got) == 0 || !strings.Contains(strings.Join(got, " "), child.Name) {
				t.Errorf("after %q there is no %s", words, child.Name)
			}
			walk(child, with(child.Name))
		}
	}
	walk(parser.Model.Node, nil)
}

// TestThePageNamesEveryFlag and every command that the help shows.
func TestThePageNamesEveryFlag(t *testing.T) {
	parser, err := Program{}.withDefaults().parser(&grammar{}, func(int) {})
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, command := range parser.Model.Leaves(true) {
		for _, group := range command.AllFlags(true) {
			for _, flag := range group {
				if flag.Name != "help" && !strings.Contains(string(page), "`--"+flag.Name) {
					t.Errorf("docs/cli.md does not name --%s of %s", flag.Name, command.FullPath())
				}
			}
		}
		if !strings.Contains(string(page), command.FullPath()) && command.Name != "version" {
			t.Errorf("docs/cli.md does not name %s", command.FullPath())
		}
	}
}
