package projection

import "github.com/weir-es/weir"

// Key says which row of a view an event belongs to.
type Key struct {
	of func(event weir.Event, value any) string
}

// ByStream gives each stream its own row, keyed by the stream's name. Such a view
// runs shard by shard, and a late event comes out as if it had been on time.
var ByStream Key

// By gives each event to the row that of names, of any number of streams; empty
// means that the event is not for this view. of is given the event and its Go
// value, and must depend on nothing else. Such a view follows the whole log in
// one order, that of positions, under one lease.
func By(of func(event weir.Event, value any) string) Key { return Key{of} }

func (k Key) byStream() bool { return k.of == nil }
