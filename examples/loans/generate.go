package main

import (
	"fmt"
	"iter"
	"math/rand/v2"
	"time"

	"github.com/weir-es/weir/examples/loans/xes"
)

// generate makes up loan applications: an application is handed in and looked
// at, an offer is made or not, and somebody works on it meanwhile. The same seed
// gives the same cases. What one click does in two systems shares a millisecond,
// as in real logs.
func generate(seed uint64, cases int) iter.Seq[xes.Trace] {
	return func(yield func(xes.Trace) bool) {
		random := rand.New(rand.NewPCG(seed, 1))
		opened := time.Date(2024, 1, 1, 8, 0, 0, 0, time.UTC)
		for i := range cases {
			opened = opened.Add(time.Duration(random.IntN(300_000)) * time.Millisecond)
			loan := &loan{random: random, now: opened}
			loan.apply()
			amount := int64(1+random.IntN(100)) * 500
			if !yield(xes.Trace{Name: fmt.Sprintf("loan %d", 10_000+i), AmountReq: &amount, Events: loan.events}) {
				return
			}
		}
	}
}

// loan is one case while it is made up.
type loan struct {
	random *rand.Rand
	now    time.Time
	events []xes.Event
}

func (l *loan) apply() {
	l.at("A_SUBMITTED", "COMPLETE")
	l.maybeLater()
	l.at("A_PARTLYSUBMITTED", "COMPLETE")
	if l.chance(25) {
		l.decline()
		return
	}
	l.work("W_Complete application")
	l.at("A_PREACCEPTED", "COMPLETE")
	if l.chance(30) {
		l.cancel()
		return
	}
	l.offer()
}

func (l *loan) offer() {
	l.later()
	l.at("A_ACCEPTED", "COMPLETE")
	l.at("O_SELECTED", "COMPLETE")
	l.maybeLater()
	l.at("O_CREATED", "COMPLETE")
	l.at("O_SENT", "COMPLETE")
	for l.chance(60) {
		l.work("W_Call about offer")
	}
	switch {
	case l.chance(20):
		l.at("O_CANCELLED", "COMPLETE")
		l.cancel()
	case l.chance(15):
		l.at("O_DECLINED", "COMPLETE")
		l.decline()
	default:
		l.approve()
	}
}

func (l *loan) approve() {
	l.later()
	l.at("O_SENT_BACK", "COMPLETE")
	l.work("W_Validate application")
	l.at("O_ACCEPTED", "COMPLETE")
	l.at("A_APPROVED", "COMPLETE")
	l.at("A_REGISTERED", "COMPLETE")
	l.at("A_ACTIVATED", "COMPLETE")
}

func (l *loan) decline() {
	l.later()
	l.at("A_DECLINED", "COMPLETE")
}

func (l *loan) cancel() {
	l.later()
	l.at("A_CANCELLED", "COMPLETE")
}

// work is a task that is planned, and then begun and ended by somebody until it
// is done.
func (l *loan) work(activity string) {
	l.at(activity, "SCHEDULE")
	for done := false; !done; done = l.chance(70) {
		l.later()
		l.at(activity, "START")
		l.later()
		l.at(activity, "COMPLETE")
	}
}

func (l *loan) at(activity, transition string) {
	l.events = append(l.events, xes.Event{
		Activity:   activity,
		Transition: transition,
		Resource:   fmt.Sprintf("clerk %d", 1+l.random.IntN(20)),
		Time:       l.now,
	})
}

func (l *loan) later() {
	l.now = l.now.Add(time.Duration(1+l.random.IntN(3_600_000)) * time.Millisecond)
}

func (l *loan) maybeLater() {
	if l.chance(50) {
		l.later()
	}
}

func (l *loan) chance(percent int) bool { return l.random.IntN(100) < percent }
