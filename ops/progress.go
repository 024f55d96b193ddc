package ops

import (
	"fmt"
	"io"
	"time"
)

// progress tells a person how far something is: on a terminal in one line that
// changes, elsewhere in a line now and then.
type progress struct {
	w     io.Writer
	live  bool
	every time.Duration

	last time.Time
	said bool // a line stands there without its end
}

func newProgress(w io.Writer) *progress {
	if isTerminal(w) {
		return &progress{w: w, live: true, every: 200 * time.Millisecond, last: time.Now()}
	}
	return &progress{w: w, every: 10 * time.Second, last: time.Now()}
}

func (p *progress) say(text string) {
	if time.Since(p.last) < p.every {
		return
	}
	p.last = time.Now()
	if !p.live {
		fmt.Fprintln(p.w, text)
		return
	}
	p.said = true
	fmt.Fprintf(p.w, "\r%s\x1b[K", text)
}

// end clears the line.
func (p *progress) end() {
	if p.said {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
}
