package app

import (
	"cmp"
	"slices"
	"time"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/eventstore"
)

// unit is one lease.
type unit struct {
	scope string
	shard weir.Shard
}

func compareUnits(a, b unit) int {
	return cmp.Or(cmp.Compare(a.scope, b.scope), cmp.Compare(a.shard, b.shard))
}

// balance decides which leases an instance takes and gives: a state machine that is
// told what each look shows. Everybody is entitled to an equal share, rounded up, and
// takes no more; whoever has more gives one at a time. So leases move only while
// somebody has too many, and not back again. The lease of an owner that seems dead
// moves only when the next look shows the same: by the clock of the database, and
// without a sign of life in between.
type balance struct {
	me     weir.ID
	groups [][]unit              // that are shared evenly, each by itself
	silent map[weir.ID]time.Time // owners that seemed dead at the last look, and their last beat
}

// moves are what a look leads to.
type moves struct {
	take, give []unit
	mine       map[unit]int64 // what the look shows as ours, with epochs
}

// decide looks at all groups.
func (b *balance) decide(o eventstore.Ownership) moves {
	m := moves{mine: map[unit]int64{}}
	held := map[unit]eventstore.Holding{}
	silent := map[weir.ID]time.Time{}
	for _, h := range o.Holdings {
		held[unit{h.Scope, h.Shard}] = h
		if h.Owner == b.me {
			m.mine[unit{h.Scope, h.Shard}] = h.Epoch
		} else if h.Stale {
			silent[h.Owner] = h.Beat
		}
	}
	if !slices.Contains(o.Live, b.me) {
		return m // dead to the others: first a heartbeat
	}
	for _, group := range b.groups {
		b.share(group, held, max(1, len(o.Live)), &m)
	}
	b.silent = silent
	return m
}

// share decides about one group among so many instances.
func (b *balance) share(group []unit, held map[unit]eventstore.Holding, among int, m *moves) {
	fair := (len(group) + among - 1) / among
	var mine, free []unit
	for _, u := range group {
		switch h := held[u]; {
		case h.Owner == b.me:
			mine = append(mine, u)
		case h.Owner == weir.ID{} || h.Stale && b.isDead(h):
			free = append(free, u)
		}
	}
	if len(mine) > fair {
		m.give = append(m.give, mine[len(mine)-1])
		return
	}
	m.take = append(m.take, b.pick(free, fair-len(mine))...)
}

// isDead reports that an owner was silent at the look before, too, and has not been
// heard of since.
func (b *balance) isDead(h eventstore.Holding) bool {
	last, was := b.silent[h.Owner]
	return was && last.Equal(h.Beat)
}

// pick picks n of units. Instances begin at different places, so that those that look
// at the same time do not all reach for the same.
func (b *balance) pick(units []unit, n int) []unit {
	n = min(n, len(units))
	if n == 0 {
		return nil
	}
	from := int(b.me[15]) % len(units)
	return slices.Concat(units[from:], units[:from])[:n]
}
