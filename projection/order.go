package projection

import (
	"cmp"
	"slices"

	"github.com/weir-es/weir"
)

// Order says in which order a view that is keyed by stream folds its events.
type Order int

const (
	// ByEventID folds events in the order in which they were emitted, that of
	// their order ids. An event that comes late makes the row come out as if it
	// had been on time: the row is rewound. It is for facts that several
	// producers publish to one stream.
	ByEventID Order = iota
	// ByVersion folds events in the order in which they were stored. Nothing is
	// ever rewound. It is for folds that do not care, such as counters, and for
	// those who want to see what was known when.
	ByVersion
)

func (o Order) compare(a, b weir.Event) int {
	if o == ByVersion {
		return cmp.Compare(a.Version, b.Version)
	}
	return weir.CompareEvents(a, b)
}

func (o Order) sort(items []item) {
	slices.SortStableFunc(items, func(a, b item) int { return o.compare(a.Event, b.Event) })
}
