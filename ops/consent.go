package ops

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"
)

// consent says what is about to be done, and asks a person whether to; where there
// is none, it wants --yes.
func (s *session) consent(ctx context.Context, yes bool, plan string) error {
	if yes {
		fmt.Fprintln(s.Stderr, plan)
		return nil
	}
	if isTerminal(s.Stdin) && isTerminal(s.Stderr) && agreed(ctx, s.Stdin, s.Stderr, plan) {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return fmt.Errorf("nothing was done: %s; --yes does it without asking", plan)
}

// agreed asks, and takes silence for a no.
func agreed(ctx context.Context, in io.Reader, out io.Writer, plan string) bool {
	fmt.Fprintf(out, "%s\nGo on? [y/N] ", plan)
	answer, _ := bufio.NewReader(&interruptible{ctx: ctx, r: in}).ReadString('\n')
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return true
	}
	return false
}
