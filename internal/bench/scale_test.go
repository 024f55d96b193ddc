package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/weir-es/weir/internal/testkit"
)

// Every size runs end to end, and an idle instance asks the database seldom, however
// much there is in it.
func TestScaleSmoke(t *testing.T) {
	l := newLab(testkit.Context(t), false)
	t.Cleanup(func() {
		if err := l.close(); err != nil {
			t.Error(err)
		}
	})
	var out bytes.Buffer
	if err := runScale(testkit.Context(t), l, options{scale: 0.01, json: true}, &out); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != len(sizes) {
		t.Fatalf("%d lines for %d sizes: %s", len(lines), len(sizes), out.String())
	}
	for i, text := range lines {
		var g grownTo
		if err := json.Unmarshal([]byte(text), &g); err != nil {
			t.Fatal(err)
		}
		if g.Instances != sizes[i].instances || g.Rate <= 0 || g.Queries <= 0 || g.Idle <= 1 || g.Idle >= 10 {
			t.Errorf("%+v", g)
		}
	}
}
