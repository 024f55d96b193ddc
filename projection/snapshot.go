package projection

import (
	"context"
	_ "embed"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/eventstore"
)

// Snapshots of the rows of a view.
const (
	snapshotEvery = 100 // events, live
	rewindEvery   = 10  // events, in a rewind
	snapshotsKept = 8   // for each key
)

// snapshot is a row as it was at an earlier event: the fold of all events that sort
// up to last, among those stored when it was taken.
type snapshot struct {
	key         string
	last        weir.ID      // the highest order id in it
	upto        weir.Version // every event up to this version is in it
	reached     weir.Version // the highest version in it
	position    weir.Position
	schema      int
	fingerprint []byte
	state       *string // null for a tombstone
}

// take makes a snapshot of a row; seen is what was folded into it.
func (r *state[S]) take(schema int, upto weir.Version) (snapshot, error) {
	text, err := r.encode()
	return snapshot{key: r.key, last: r.last, upto: upto, reached: r.version, position: r.position,
		schema: schema, fingerprint: slices.Clone(r.column()), state: text}, err
}

// add adds a newer snapshot; it takes the place of one that ends with the same event,
// after which only events were read that were in it already.
func add(all []snapshot, newer snapshot) []snapshot {
	if n := len(all); n > 0 && all[n-1].last == newer.last {
		all = all[:n-1]
	}
	return append(all, newer)
}

// restore makes a row of a snapshot, or of nothing.
func restore[S weir.Evolver[S]](key string, from snapshot) *state[S] {
	r := &state[S]{key: key, version: from.reached, last: from.last, position: from.position}
	if from.reached == 0 {
		return r
	}
	r.blind = len(from.fingerprint) != len(r.print)
	copy(r.print[:], from.fingerprint)
	if from.state == nil {
		r.gone = true
	} else {
		r.fill([]byte(*from.state))
	}
	return r
}

// retain says which snapshots of a key stay when there are too many: those at
// exponentially growing distances from the head, so that a slightly and a very late
// event both find one near. at are the versions up to which they hold everything,
// in growing order. The newest always stays. As long as there is one too many, the
// one goes whose place its older neighbour takes best: where a late event that
// would have begun there has the least more to replay, in proportion.
func retain(at []weir.Version, head weir.Version) (keep []int) {
	for i := range at {
		keep = append(keep, i)
	}
	for len(keep) > snapshotsKept {
		worst, least := 0, 0.0
		older := weir.Version(0)
		for i := range len(keep) - 1 {
			more := float64(head-older) / float64(head-at[keep[i+1]]+rewindEvery)
			if i == 0 || more < least {
				worst, least = i, more
			}
			older = at[keep[i]]
		}
		keep = slices.Delete(keep, worst, worst+1)
	}
	return keep
}

// takenAt says whether to take a snapshot with so many events left to fold: at every,
// two times every, four times every and so on before the end.
func takenAt(left, every int) bool {
	times := left / every
	return left > 0 && left%every == 0 && times&(times-1) == 0 && times < 1<<snapshotsKept
}

var (
	//go:embed sql/snapshots.sql
	snapshotsSQL string
	//go:embed sql/write_snapshots.sql
	writeSnapshots string
	//go:embed sql/drop_snapshots.sql
	dropSnapshots string
)

// shelf are the snapshots of some keys, and what a batch does to them.
type shelf struct {
	there map[string][]snapshot // by key, oldest first; the state only of those that were asked for
	late  map[string]weir.ID    // by key: the event that the state was asked for
	write []snapshot
	drop  []snapshot
}

// read reads what there is of keys. Of each key the state comes along of the newest
// snapshot of this schema that sorts below its id in late; with no late, of all. With
// ifLate it leaves out the keys whose rows have seen no later event.
func (s *shelf) read(t tables, b *pgx.Batch, keys []string, late []weir.ID, schema int, ifLate bool) {
	if s.there == nil {
		s.there, s.late = map[string][]snapshot{}, map[string]weir.ID{}
	}
	for i, id := range late {
		s.late[keys[i]] = id
		delete(s.there, keys[i])
	}
	b.Queue(t.sql(snapshotsSQL), keys, idColumn(late), schema, ifLate).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			var one snapshot
			var last [16]byte
			if err := rows.Scan(&one.key, &last, &one.upto, &one.reached, &one.position, &one.schema, &one.fingerprint, &one.state); err != nil {
				return err
			}
			one.last = last
			s.there[one.key] = append(s.there[one.key], one)
		}
		return rows.Err()
	})
}

// idColumn are ids as statements take them; nil is null.
func idColumn(ids []weir.ID) (column [][16]byte) {
	for _, id := range ids {
		column = append(column, id)
	}
	return column
}

// snapshots reads all snapshots of a key, with their states, oldest first.
func (t tables) snapshots(ctx context.Context, q eventstore.Querier, key string, schema int) ([]snapshot, error) {
	var b pgx.Batch
	var s shelf
	s.read(t, &b, []string{key}, nil, schema, false)
	err := q.SendBatch(ctx, &b).Close()
	return slices.DeleteFunc(s.there[key], func(s snapshot) bool { return s.schema != schema }), err
}

// newest is the newest snapshot that holds, or none.
func (s *shelf) newest(key string, holds func(snapshot) bool) (newest snapshot) {
	for _, one := range s.there[key] {
		if holds(one) {
			newest = one
		}
	}
	return newest
}

// replace puts new snapshots of a key in the place of those that hold no more, and of
// those that are too many.
func (s *shelf) replace(key string, holds func(snapshot) bool, fresh []snapshot, head weir.Version) {
	var all []snapshot
	for _, one := range s.there[key] {
		if holds(one) {
			all = append(all, one)
		} else {
			s.drop = append(s.drop, one)
		}
	}
	old := len(all)
	all = append(all, fresh...)
	at := make([]weir.Version, len(all))
	for i, one := range all {
		at[i] = one.upto
	}
	keep := retain(at, head)
	for i, one := range all {
		switch kept := slices.Contains(keep, i); {
		case i < old && !kept:
			s.drop = append(s.drop, one)
		case i >= old && kept:
			s.write = append(s.write, one)
		}
	}
}

// below is what still holds when an event comes late, and is of this schema.
func below(late weir.ID, schema int) func(snapshot) bool {
	return func(s snapshot) bool { return s.schema == schema && s.last.Compare(late) < 0 }
}

// queue writes what was decided.
func (s *shelf) queue(t tables, b *pgx.Batch, j *job) {
	if len(s.drop) > 0 {
		var keys []string
		var lasts [][16]byte
		for _, one := range s.drop {
			keys, lasts = append(keys, one.key), append(lasts, one.last)
		}
		b.Queue(t.sql(dropSnapshots), keys, lasts)
	}
	if j.shots = len(s.write); j.shots > 0 && !j.plain {
		b.Queue(t.sql(writeSnapshots), snapshotColumns(s.write)...)
	}
}

func snapshotColumns(all []snapshot) []any {
	var keys []string
	var lasts [][16]byte
	var uptos, reached, positions []int64
	var schemas []int32
	var prints [][]byte
	var states []*string
	for _, s := range all {
		keys, lasts = append(keys, s.key), append(lasts, s.last)
		uptos, reached = append(uptos, int64(s.upto)), append(reached, int64(s.reached))
		positions, schemas = append(positions, int64(s.position)), append(schemas, int32(s.schema))
		prints, states = append(prints, s.fingerprint), append(states, s.state)
	}
	return []any{keys, lasts, uptos, reached, positions, schemas, prints, states}
}
