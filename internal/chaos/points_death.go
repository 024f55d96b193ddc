package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/weir-es/weir/internal/crash"
)

// death is where a process kills itself: when it passes a point for the nth time.
type death struct {
	Point string
	Nth   int
}

func (d death) String() string { return fmt.Sprintf("%s, passing %d", d.Point, d.Nth) }

// order is what a running process is told.
func (d death) order() string { return fmt.Sprintf("die %s %d", d.Point, d.Nth) }

// arm does nothing without a point.
func (d death) arm(say func(word)) {
	if p := crash.Find(d.Point); p != nil {
		crash.Arm(p, d.Nth, func() { die(d, say) })
	}
}

// die says so and never returns. The signal is what a power cut is: no deferred function
// runs, nothing is flushed.
func die(d death, say func(word)) {
	say(word{Say: "dies", Text: d.Point})
	if self, err := os.FindProcess(os.Getpid()); err == nil {
		self.Kill()
	}
	select {}
}

// obeyDeath arms and disarms a process as it is told, and reports whether it was.
func obeyDeath(order string, say func(word)) bool {
	var d death
	if order == "live" {
		crash.Disarm()
		say(word{Say: "lives"})
		return true
	}
	if !strings.HasPrefix(order, "die ") {
		return false
	}
	fmt.Sscanf(order, "die %s %d", &d.Point, &d.Nth)
	say(word{Say: "armed"})
	d.arm(say)
	return true
}
