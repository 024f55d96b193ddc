package lint

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// arrows says which rooms a room may import besides itself: those it names, and no
// others. A new room gets a line here together with its package comment.
var arrows = map[string][]string{
	"weir":               {},
	"batching":           {},
	"devserver":          {},
	"internal/telemetry": {},
	"internal/crash":     {},
	"internal/pace":      {},
	"internal/lint":      {},

	"transport":  {"weir", "internal/crash", "internal/telemetry"},
	"eventstore": {"weir", "internal/crash", "internal/pace", "internal/telemetry"},
	"projection": {"weir", "eventstore", "batching", "internal/crash", "internal/pace", "internal/telemetry"},
	"saga":       {"weir", "eventstore", "internal/telemetry"},

	"app": library,

	"ops":      under("app"),
	"weirtest": under("app", "devserver"),

	"dashboard": under("app", "ops"),
	"cmd/weir":  under("app", "ops", "dashboard", "devserver"),
	"examples":  under("app", "ops", "dashboard", "weirtest", "devserver"),

	// What no user ever imports may see everything; only tests import the kit.
	"internal/bench":   anything,
	"internal/chaos":   anything,
	"internal/testkit": anything,
}

// library is what app wires together. devserver is not among it: it carries whole
// servers, which no production binary should.
var library = []string{"weir", "transport", "batching", "eventstore", "projection", "saga", "internal/crash", "internal/pace", "internal/telemetry"}

// anything allows every room.
var anything = []string{"*"}

func under(more ...string) []string { return slices.Concat(library, more) }

// crossings are the imports between rooms that no arrow allows.
func crossings(packages []pkg, arrows map[string][]string) (complaints []string) {
	for _, p := range packages {
		source := room(p.ImportPath)
		if source == "" {
			continue
		}
		allowed, known := arrows[source]
		if !known {
			complaints = append(complaints, fmt.Sprintf("%s: room %q has no line in the list of arrows", p.ImportPath, source))
			continue
		}
		for _, path := range p.Imports {
			if target := room(path); !mayImport(source, target, allowed) {
				complaints = append(complaints, fmt.Sprintf("%s imports %s: there is no arrow from %s to %s", p.ImportPath, path, source, target))
			}
		}
	}
	return complaints
}

func mayImport(source, target string, allowed []string) bool {
	return target == "" || target == source || slices.Contains(allowed, target) || slices.Contains(allowed, "*")
}

func TestArrows(t *testing.T) {
	report(t, crossings(listHouse(t), arrows))
}

// The list itself holds what no edit of it may loosen.
func TestArrowsKeepTheirShape(t *testing.T) {
	for _, c := range []struct{ source, target string }{
		{"transport", "eventstore"}, {"eventstore", "transport"},
		{"projection", "transport"}, {"saga", "transport"}, {"saga", "projection"},
		{"batching", "weir"}, {"devserver", "weir"}, {"weir", "transport"},
		{"app", "devserver"}, {"ops", "devserver"}, {"app", "ops"},
	} {
		if mayImport(c.source, c.target, arrows[c.source]) {
			t.Errorf("the list lets %s import %s", c.source, c.target)
		}
	}
}

func TestCrossingsAreFound(t *testing.T) {
	ours := func(inside string) string { return strings.TrimSuffix(module+"/"+inside, "/") }
	for _, c := range []struct {
		name, source, target, want string
	}{
		{"an arrow", "transport", "", ""},
		{"a room and its own inside", "eventstore", "eventstore/sql", ""},
		{"the bench sees everything", "internal/bench", "saga", ""},
		{"transport and eventstore meet", "transport", "eventstore", "no arrow from transport to eventstore"},
		{"the vocabulary looks down", "", "transport", "no arrow from weir to transport"},
		{"batching hears of events", "batching", "", "no arrow from batching to weir"},
		{"from the inside of a room", "projection/sql", "saga", "no arrow from projection to saga"},
		{"a room nobody introduced", "utilities", "", `room "utilities" has no line`},
		{"an internal room nobody introduced", "internal/helpers", "", `room "internal/helpers" has no line`},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := crossings([]pkg{{ImportPath: ours(c.source), Imports: []string{"fmt", ours(c.target)}}}, arrows)
			wantComplaint(t, got, c.want)
		})
	}
}

// wantComplaint expects one complaint that contains want, or none if want is empty.
func wantComplaint(t *testing.T, got []string, want string) {
	t.Helper()
	switch {
	case want == "" && len(got) > 0:
		t.Errorf("unexpected: %q", got)
	case want != "" && (len(got) != 1 || !strings.Contains(got[0], want)):
		t.Errorf("got %q, want one complaint with %q", got, want)
	}
}
