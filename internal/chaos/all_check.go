package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/weir-es/weir"
)

// findings are what is wrong.
type findings struct {
	count int
	named []string // the first of them
}

const maxFindings = 20

func (f *findings) add(format string, with ...any) {
	if f.count++; f.count <= maxFindings {
		f.named = append(f.named, fmt.Sprintf(format, with...))
	}
}

// check compares the tables with the promises that were made and with themselves. It
// folds for itself, and knows nothing of how the service does it.
func check(t tables, promises map[string][]weir.ID) *findings {
	f := &findings{}
	f.checkPromises(t, promises)
	f.checkStreams(t)
	f.checkMoney(t)
	f.checkEntries(t)
	f.checkOwners(t)
	f.checkHandled(t)
	f.checkView("count", t.views["count"], foldStreams(t.events, byVersion, tallyOf))
	f.checkView("balance", t.views["balance"], foldStreams(t.events, byOrder, tallyOf))
	f.checkView("ordered", t.views["ordered"], foldStreams(t.events, byOrder, hashOf))
	f.checkView("grouped", t.views["grouped"], foldGroups(t.events))
	f.checkProgress(t)
	for _, text := range t.left {
		f.add("%s", text)
	}
	return f
}

// checkPromises: what was acknowledged is stored once, what was refused is not.
func (f *findings) checkPromises(t tables, promises map[string][]weir.ID) {
	times := map[weir.ID]int{}
	for _, e := range t.events {
		if times[e.id]++; times[e.id] == 2 {
			f.add("event %s of %s is stored twice", e.id, e.stream)
		}
	}
	for _, what := range []string{"published", "appended"} {
		for _, id := range promises[what] {
			if times[id] == 0 {
				f.add("message %s was %s, and is not stored", id, what)
			}
		}
	}
	for _, id := range promises["refused"] {
		if times[id] > 0 {
			f.add("message %s was refused for a conflict, and is stored", id)
		}
	}
}

// checkStreams: versions are contiguous in the order of positions, and the head of a
// stream is its last one.
func (f *findings) checkStreams(t tables) {
	last := map[string]int64{}
	for _, e := range t.events {
		if last[e.stream]++; last[e.stream] != e.version {
			f.add("event %s of %s at position %d is version %d, not %d", e.id, e.stream, e.position, e.version, last[e.stream])
			last[e.stream] = e.version
		}
	}
	for name, head := range t.heads {
		if head != last[name] {
			f.add("stream %s is at version %d, and its last event at %d", name, head, last[name])
		}
	}
}

// checkMoney: none came or went, and no account was ever below zero.
func (f *findings) checkMoney(t tables) {
	var sum int64
	balance := map[string]int64{}
	for _, e := range t.events {
		var m moved
		if e.kind != "chaos.moved" || e.decode(&m) != nil {
			continue
		}
		sum += m.Amount
		if balance[e.stream] += m.Amount; balance[e.stream] < 0 {
			f.add("account %s is at %d at version %d", e.stream, balance[e.stream], e.version)
		}
	}
	if sum != accounts*firstDeposit {
		f.add("there is %d of money, and it began with %d", sum, accounts*firstDeposit)
	}
	var shown int64
	for key, row := range t.views["balance"] {
		var c counted
		if strings.HasPrefix(key, "account-") && json.Unmarshal([]byte(row.state), &c) == nil {
			shown += c.Sum
		}
	}
	if shown != accounts*firstDeposit {
		f.add("the view of balances shows %d of money, and it began with %d", shown, accounts*firstDeposit)
	}
}

// checkEntries: the handler ran once for every event, and in order within a stream
// that only decisions are written to.
func (f *findings) checkEntries(t tables) {
	times := map[weir.ID]int{}
	for _, e := range t.entries {
		times[e.id]++
	}
	for _, e := range t.events {
		if n := times[e.id]; n != 1 {
			f.add("the handler ran %d times for event %s, version %d of %s at position %d", n, e.id, e.version, e.stream, e.position)
		}
		delete(times, e.id)
	}
	for id := range times {
		f.add("the handler ran for event %s, which is not stored", id)
	}
}

// checkOwners: a lease has one owner under an epoch, and one process writes under it,
// the owner's own.
func (f *findings) checkOwners(t tables) {
	type era struct {
		scope string
		shard int16
		epoch int64
	}
	owners := map[era]string{}
	for _, o := range t.owners {
		e := era{o.scope, o.shard, o.epoch}
		if was, ok := owners[e]; ok && was != o.owner {
			f.add("shard %d of %s has two owners under epoch %d: %s and %s", o.shard, o.scope, o.epoch, was, o.owner)
		}
		owners[e] = o.owner
	}
	writers, persons := map[era]string{}, map[string]string{}
	for _, x := range t.entries {
		e := era{"shards", x.shard, x.epoch}
		if was, ok := writers[e]; ok && was != x.writer {
			f.add("%s and %s have both written for shard %d under epoch %d", was, x.writer, x.shard, x.epoch)
		}
		if was, ok := persons[x.owner]; ok && was != x.writer {
			f.add("%s and %s have both written as owner %s", was, x.writer, x.owner)
		}
		if owners[e] != x.owner {
			f.add("%s has written for shard %d under epoch %d of %q, which is noted as that of %q", x.writer, x.shard, x.epoch, x.owner, owners[e])
		}
		writers[e], persons[x.owner] = x.writer, x.writer
	}
}

// checkProgress: every consumer is past the last event it should have seen.
func (f *findings) checkProgress(t tables) {
	for _, text := range t.behind() {
		f.add("%s", text)
	}
}

// behind says which consumers have not come to the last event of which shard.
func (t tables) behind() (all []string) {
	heads := map[int16]int64{}
	var head int64
	for _, e := range t.events {
		heads[e.shard], head = e.position, e.position
	}
	for _, name := range []string{"count", "ordered", "balance", "entries"} {
		for shard, want := range heads {
			if at := t.checkpoints[name][shard]; at < want {
				all = append(all, fmt.Sprintf("%s is at position %d of shard %d, whose last event is at %d", name, at, shard, want))
			}
		}
	}
	for _, at := range t.checkpoints["grouped"] {
		if at >= head {
			return all
		}
	}
	return append(all, fmt.Sprintf("grouped is at %v, and the last event at %d", t.checkpoints["grouped"], head))
}

// want is what a row should be.
type want struct {
	state    any
	version  int64
	event    weir.ID
	position int64
}

// checkView compares the rows of a view with what the checker has folded.
func (f *findings) checkView(name string, rows map[string]viewRow, wanted map[string]want) {
	for key, w := range wanted {
		row, ok := rows[key]
		if !ok {
			f.add("row %s of view %s is missing", key, name)
			continue
		}
		state, _ := json.Marshal(w.state)
		switch {
		case !sameJSON(row.state, string(state)):
			f.add("row %s of view %s is %s at version %d instead of %s at %d", key, name, row.state, row.version, state, w.version)
		case row.version != w.version || row.position != w.position || row.event != w.event:
			f.add("row %s of view %s has seen version %d, position %d, event %s instead of %d, %d, %s",
				key, name, row.version, row.position, row.event, w.version, w.position, w.event)
		}
	}
	for key := range rows {
		if _, ok := wanted[key]; !ok {
			f.add("row %s of view %s is of no event", key, name)
		}
	}
}

func sameJSON(a, b string) bool {
	var x, y map[string]any
	if json.Unmarshal([]byte(a), &x) != nil || json.Unmarshal([]byte(b), &y) != nil || len(x) != len(y) {
		return false
	}
	for key, value := range x {
		if y[key] != value {
			return false
		}
	}
	return true
}

// The checker's own folds.

func byVersion(a, b storedEvent) int { return int(a.version - b.version) }
func byOrder(a, b storedEvent) int   { return bytes.Compare(a.order[:], b.order[:]) }

// tallyOf counts events and adds up money.
func tallyOf(events []storedEvent) any {
	var count, sum int64
	for _, e := range events {
		var m moved
		if e.kind == "chaos.moved" && e.decode(&m) == nil {
			sum += m.Amount
		}
		count++
	}
	return map[string]any{"count": count, "sum": sum}
}

// hashOf chains events.
func hashOf(events []storedEvent) any {
	hash := ""
	for _, e := range events {
		sum := sha256.Sum256(fmt.Appendf(nil, "%s %v", hash, e.value()))
		hash = hex.EncodeToString(sum[:16])
	}
	return map[string]any{"count": len(events), "hash": hash}
}

func (e storedEvent) value() any {
	if e.kind == "chaos.moved" {
		var m moved
		e.decode(&m)
		return m
	}
	var s remark
	e.decode(&s)
	return s
}

// foldStreams makes one row of each stream.
func foldStreams(events []storedEvent, order func(a, b storedEvent) int, fold func([]storedEvent) any) map[string]want {
	return foldBy(events, func(e storedEvent) string { return e.stream }, order, fold)
}

// foldGroups makes the rows that several streams share, in the order of positions.
func foldGroups(events []storedEvent) map[string]want {
	key := func(e storedEvent) string {
		if s, ok := e.value().(remark); ok {
			return s.By
		}
		return fmt.Sprintf("accounts-%d", (e.stream[len(e.stream)-1]-'0')%4)
	}
	return foldBy(events, key, func(a, b storedEvent) int { return int(a.position - b.position) }, hashOf)
}

func foldBy(events []storedEvent, key func(storedEvent) string, order func(a, b storedEvent) int, fold func([]storedEvent) any) map[string]want {
	parts := map[string][]storedEvent{}
	for _, e := range events {
		parts[key(e)] = append(parts[key(e)], e)
	}
	rows := map[string]want{}
	for key, part := range parts {
		w := want{version: int64(len(part))}
		for _, e := range part {
			w.position = max(w.position, e.position)
			if bytes.Compare(e.order[:], w.event[:]) > 0 {
				w.event = e.order
			}
		}
		slices.SortStableFunc(part, order)
		w.state = fold(part)
		rows[key] = w
	}
	return rows
}
