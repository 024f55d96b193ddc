package ops

import (
	"bytes"
	"testing"
	"time"
)

// TestProgressIsALineNowAndThen, and on a terminal one that changes and goes.
func TestProgressIsALineNowAndThen(t *testing.T) {
	var b bytes.Buffer
	for _, c := range []struct {
		live bool
		want string
	}{{false, "one\ntwo\n"}, {true, "\rone\x1b[K\rtwo\x1b[K\r\x1b[K"}} {
		b.Reset()
		p := newProgress(&b)
		p.live = c.live
		p.say("too soon")
		p.every = 0
		p.say("one")
		p.say("two")
		p.every = time.Hour
		p.say("too soon again")
		p.end()
		if got := b.String(); got != c.want {
			t.Errorf("live %t: %q", c.live, got)
		}
	}
	b.Reset()
	if newProgress(&b).end(); b.Len() > 0 {
		t.Errorf("nothing to say, said %q", b.String())
	}
}
