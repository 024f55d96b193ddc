package projection

import (
	"fmt"
	"runtime"

	"golang.org/x/sync/errgroup"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/eventstore"
)

// item is an event with its Go values, nearly always one, or why it has none.
type item struct {
	weir.Event
	values  []any
	err     error
	handled bool
}

// decoder makes items of the events that a projection wants. Safe for concurrent
// use.
type decoder struct {
	registry *weir.Registry
	types    typeSet
	unknown  Unknown
}

// decoderOf makes items for a projection.
func decoderOf(p interface{ wants() (typeSet, Unknown) }, s *eventstore.Store) decoder {
	types, unknown := p.wants()
	return decoder{s.Types(), types, unknown}
}

func (d decoder) item(e weir.Event) item {
	known := d.registry.Knows(e.Type)
	if !d.types.has(e.Type) || !known && d.unknown == Skip {
		return item{Event: e}
	}
	values, err := d.values(e)
	if !known && d.unknown == Fail {
		err = &fatalError{&eventError{e, err}}
	}
	return item{e, values, err, err != nil || len(values) > 0}
}

// values decodes an event. It calls the user's code; a panic is that event's
// failure, not the end of the process.
func (d decoder) values(e weir.Event) (values []any, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("decoding panicked: %v", p)
		}
	}()
	return d.registry.DecodeAll(e.Message)
}

// all makes items of events, on all cores: decoding is the largest part of
// catching up.
func (d decoder) all(events []weir.Event) []item {
	items := make([]item, len(events))
	const chunk = 128
	var g errgroup.Group
	g.SetLimit(runtime.GOMAXPROCS(0))
	for from := 0; from < len(events); from += chunk {
		to := min(from+chunk, len(events))
		g.Go(func() error {
			for i := from; i < to; i++ {
				items[i] = d.item(events[i])
			}
			return nil
		})
	}
	g.Wait()
	return items
}
