package main

import (
	"crypto/sha256"
	"encoding/hex"
)

// Trace is the read model of one case.
type Trace struct {
	Events int64 `json:"events"`
	// Last is the last step, activity+transition.
	Last string `json:"last"`
	// Variant is a hash of all steps in their order: two cases have the same
	// one if they went the same way. It tells a lost, doubled or misplaced
	// event, whatever the counts say.
	Variant   string `json:"variant"`
	AmountReq *int64 `json:"amount_req,omitempty"`
}

// Evolve adds one event of the case.
func (t Trace) Evolve(event any) Trace {
	logged, ok := event.(Logged)
	if !ok {
		return t
	}
	t.Events++
	t.Last = logged.Step()
	t.Variant = chain(t.Variant, t.Last)
	if logged.AmountReq != nil {
		t.AmountReq = logged.AmountReq
	}
	return t
}

// chain is the hash of a sequence of steps: of the hash so far, which has a
// fixed length or is empty, and the next step.
func chain(before, step string) string {
	sum := sha256.Sum256([]byte(before + "\x00" + step))
	return hex.EncodeToString(sum[:16])
}

// Activity is the read model of one activity.
type Activity struct {
	// Name is the whole name; the row's key may be shorter.
	Name  string `json:"name"`
	Count int64  `json:"count"`
}

// Evolve counts one event of the activity.
func (a Activity) Evolve(event any) Activity {
	logged, ok := event.(Logged)
	if !ok {
		return a
	}
	a.Name = logged.Activity
	a.Count++
	return a
}

// activityOf is the key of an event in the view of activities.
func activityOf(data any) string {
	logged, ok := data.(Logged)
	if !ok {
		return ""
	}
	return short(logged.Activity, maxRowBytes, plainSize)
}
