package main

import (
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/examples/loans/xes"
)

// awkward are names of cases that a log may have.
var awkward = []string{
	"plain", " ", "a b", "a.b.c", "*", ">", "a>b*", `say "hi"`, "it's", "-", "--", "=41", "🐟 und Käse", `\u0000`, "a\tb\nc\r",
	"~0123456789abcdef0123456789abcdef",
	strings.Repeat("0", 26), strings.Repeat("0", 300), "00000000-0000-0000-0000-000000000000",
	strings.Repeat("x", 120), strings.Repeat("x", 121), strings.Repeat("x", 300), strings.Repeat("x", 299) + "y",
	strings.Repeat("🐟", 75), strings.Repeat("🐟", 76), strings.Repeat("é", xes.MaxTextBytes/2),
}

func TestStreamOf_EveryNameOfACaseMakesItsOwnStream(t *testing.T) {
	notNUL := rapid.Rune().Filter(func(r rune) bool { return r != 0 }) // XML has none
	seen := map[weir.StreamID]string{}
	check := func(name string) {
		stream := streamOf(name)
		if other, ok := seen[stream]; ok && other != name {
			t.Errorf("%.80q and %.80q share the stream %s", name, other, stream)
		}
		seen[stream] = name
		if stream.IsEmpty() || stream.Validate() != nil || !utf8.ValidString(string(stream)) {
			t.Errorf("%.80q makes the stream %q: %v", name, stream, stream.Validate())
		}
		if size := encodedSize(stream.Key()); size > maxKeyBytes {
			t.Errorf("%.80q makes a token of %d bytes", name, size)
		}
	}
	for _, name := range awkward {
		check(name)
		// A name that looks like what another one was shortened to.
		check(streamOf(name).Key())
	}
	rapid.Check(t, func(t *rapid.T) { check(rapid.StringOfN(notNUL, 1, 200, -1).Draw(t, "name")) })
}

func TestShort_KeepsWhatFitsAndTheBeginningOfTheRest(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"0123456789012345678901234567890123456789", "0123456789012345678901234567890123456789"},
		{"01234567890123456789012345678901234567890", "0123456~"},
		{"012345é789012345678901234567890123456789012", "012345~"},
	} {
		got := short(c.text, 40, plainSize)
		if !strings.HasPrefix(got, c.want) || len(got) > 40 || got != short(c.text, 40, plainSize) {
			t.Errorf("%s became %s", c.text, got)
		}
	}
}
