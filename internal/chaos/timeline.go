package main

import (
	"math/bits"
	"time"
)

// timeline divides a run into a calm part, in which lag is measured, a rough one, in
// which our own transactions also stay open for long, which readers are meant to wait
// for, and a rest, in which these end.
//
// The calm part has turns of the same load. In every second one, so to speak, a
// transaction of another database is open: in those whose number has an odd count of
// ones (Thue and Morse), so that whatever changes in the course of a run, such as the
// size of tables and what else the machine does, counts on both sides.
type timeline struct {
	start  time.Time
	length time.Duration
}

type part int

const (
	calm part = iota
	rough
	rest
)

// Where the parts begin, as shares of the run, how many turns the calm part has,
// and how much of each passes before lag counts.
const (
	calmFrom  = 0.04 // connections are opened before
	roughFrom = 0.60
	restFrom  = 0.95
	turns     = 16
	unsettled = 0.10
)

func (t timeline) share(now time.Time) float64 { return float64(now.Sub(t.start)) / float64(t.length) }

func (t timeline) after(share float64) time.Time {
	return t.start.Add(time.Duration(share * float64(t.length)))
}

func (t timeline) end() time.Time { return t.after(1) }

func (t timeline) part(now time.Time) part {
	switch share := t.share(now); {
	case share < roughFrom:
		return calm
	case share < restFrom:
		return rough
	}
	return rest
}

// turn is the number of a turn of the calm part, or -1 outside it, and how much of it
// has passed.
func (t timeline) turn(now time.Time) (n int, passed float64) {
	share := t.share(now)
	if share < calmFrom || share >= roughFrom {
		return -1, 0
	}
	at := (share - calmFrom) / (roughFrom - calmFrom) * turns
	n = min(int(at), turns-1)
	return n, at - float64(n)
}

func (t timeline) turnFrom(n int) time.Time {
	return t.after(calmFrom + float64(n)/turns*(roughFrom-calmFrom))
}

// isForeign says whether the foreign transaction is open in a turn.
func isForeign(turn int) bool { return bits.OnesCount(uint(turn))%2 == 1 }

// measured says whether lag counts at an instant, and on which side.
func (t timeline) measured(now time.Time) (counts, foreign bool) {
	n, passed := t.turn(now)
	return n >= 0 && passed >= unsettled, n >= 0 && isForeign(n)
}

// long is how long our own transactions may stay open in the rough part.
func (t timeline) long() time.Duration { return t.length / 30 }
