package ops

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"
)

// TestOnlyYesIsYes, and who is told to stop does not wait for an answer.
func TestOnlyYesIsYes(t *testing.T) {
	for answer, want := range map[string]bool{"y\n": true, " YES\n": true, "y": true, "n\n": false, "\n": false, "": false, "yep\n": false} {
		var asked bytes.Buffer
		if got := agreed(t.Context(), strings.NewReader(answer), &asked, "it reads 7 events"); got != want {
			t.Errorf("%q is %t", answer, got)
		}
		if asked.String() != "it reads 7 events\nGo on? [y/N] " {
			t.Errorf("asked %q", asked.String())
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	silent, other := io.Pipe()
	defer other.Close()
	if agreed(ctx, silent, io.Discard, "it reads 7 events") {
		t.Error("silence is a yes")
	}
}
