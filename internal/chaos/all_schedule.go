package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// mishap is a kind of fault.
type mishap string

// What goes wrong on the day of everything.
const (
	killed        mishap = "killed"         // SIGKILL to an instance, which is started again
	stopped       mishap = "stopped"        // SIGSTOP for longer than a lease, then SIGCONT
	backends      mishap = "backends"       // some backends of services are terminated
	postgresDown  mishap = "postgres"       // the database crashes and recovers
	brokerDown    mishap = "broker"         // the broker is killed or stopped, and started again
	brokerLost    mishap = "broker_lost"    // its store is deleted while it is down
	brokerDrained mishap = "broker_drained" // the same, after everything in it was stored
	brokerOlder   mishap = "broker_older"   // its store is replaced by an older copy
	brokerFull    mishap = "broker_full"    // more is published than it has room for
	linkCut       mishap = "link_cut"
	linkDelayed   mishap = "link_delayed"
	linkHalfOpen  mishap = "link_half_open" // one direction stalls
	linkStalled   mishap = "link_stalled"   // both do
)

// weights say how often a kind is dealt before the cards are shuffled again.
var weights = map[mishap]int{killed: 4, stopped: 2, backends: 4, postgresDown: 2, brokerDown: 2, brokerLost: 1, brokerDrained: 1,
	brokerOlder: 2, brokerFull: 1, linkCut: 3, linkDelayed: 2, linkHalfOpen: 3, linkStalled: 1}

// fault is one of a schedule: what goes wrong, when, for how long, and with whom.
type fault struct {
	at     time.Duration // since the start
	what   mishap
	whom   int // an instance, or a link
	length time.Duration
	word   uint64 // for whatever else has to be drawn
}

func (f fault) String() string {
	return fmt.Sprintf("%6.2fs %-14s %d, %s", f.at.Seconds(), f.what, f.whom, f.length.Round(time.Millisecond))
}

// lengths are how long faults last.
func lengthOf(d *rand.Rand, what mishap) time.Duration {
	switch what {
	case stopped:
		return between(d, 6*time.Second, 12*time.Second)
	case killed, postgresDown, brokerDown, brokerLost, brokerDrained, brokerOlder:
		return between(d, 0, 1500*time.Millisecond)
	case linkCut, linkHalfOpen, linkStalled:
		return between(d, time.Second, 7*time.Second)
	}
	return between(d, time.Second, 4*time.Second)
}

// schedule is what goes wrong with that seed: a fault every second and a half or so,
// until some seconds before the end. It depends on its arguments alone.
func schedule(seed uint64, length time.Duration, instances, links int) (all []fault) {
	d := dice(seed, "schedule")
	var cards []mishap
	for at := between(d, time.Second, 2*time.Second); at < length-time.Second; at += between(d, 500*time.Millisecond, 2500*time.Millisecond) {
		if len(cards) == 0 {
			cards = deal(d)
		}
		f := fault{at: at, what: cards[0], word: d.Uint64()}
		f.length = lengthOf(d, f.what)
		f.whom = d.IntN(instances)
		if isOfLink(f.what) {
			f.whom = d.IntN(links)
		}
		cards, all = cards[1:], append(all, f)
	}
	return all
}

func isOfLink(what mishap) bool {
	return slices.Contains([]mishap{linkCut, linkDelayed, linkHalfOpen, linkStalled}, what)
}

// deal shuffles the cards.
func deal(d *rand.Rand) (cards []mishap) {
	for what, n := range weights {
		for range n {
			cards = append(cards, what)
		}
	}
	slices.Sort(cards)
	d.Shuffle(len(cards), func(i, j int) { cards[i], cards[j] = cards[j], cards[i] })
	return cards
}
