package projection

import (
	_ "embed"

	"github.com/jackc/pgx/v5"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/eventstore"
)

// A rewind that is short needs no round trip of its own: what it reads comes along with
// the rows, where an event is likely to be late: 200 events of a key, and of no more keys
// than this. The rest is read when it is known to be needed.
const earlyKeys = 16

//go:embed sql/replay_late.sql
var replayLate string

// suspects are the keys with an event that sorts below what the worker has applied
// before. Whether it is late for its own row, the statements see.
func (s *viewStep[S]) suspects() (keys []string) {
	if s.tables.shots == "" || s.view.Order != ByEventID || !s.view.Key.byStream() {
		return nil
	}
	for _, key := range s.keys {
		if late := s.late(key); late != (weir.ID{}) && late.Compare(s.job.newest) < 0 {
			keys = append(keys, key)
		}
	}
	return keys
}

// queueEarly reads what the rewinds of suspects begin with, and if they are few, also
// what they replay.
func (s *viewStep[S]) queueEarly(b *pgx.Batch, keys []string) {
	if len(keys) == 0 {
		return
	}
	late := s.lates(keys)
	s.shelf.read(s.tables, b, keys, late, s.view.Schema, true)
	if len(keys) > earlyKeys {
		return
	}
	b.Queue(s.tables.sql(replayLate), keys, idColumn(late), s.view.Schema).Query(func(rows pgx.Rows) error {
		for e, err := range eventstore.ScanEvents(rows) {
			if err != nil {
				return err
			}
			s.early[string(e.Stream)] = append(s.early[string(e.Stream)], e)
		}
		return nil
	})
}

// refoldEarly folds the ranges of which everything came along, and returns the others.
func (s *viewStep[S]) refoldEarly(folds map[weir.StreamID]*refold[S], ranges []eventstore.Range) (rest []eventstore.Range, err error) {
	for _, span := range ranges {
		events := within(s.early[string(span.Stream)], span)
		if weir.Version(len(events)) != span.Last-span.First+1 {
			rest = append(rest, span)
			continue
		}
		for _, e := range events {
			e.IsNew = false
			if err := folds[span.Stream].take(s.job.item(e)); err != nil {
				return nil, err
			}
		}
	}
	return rest, nil
}

// within are the events of a range.
func within(events []weir.Event, span eventstore.Range) (inside []weir.Event) {
	for _, e := range events {
		if e.Version >= span.First && e.Version <= span.Last {
			inside = append(inside, e)
		}
	}
	return inside
}
