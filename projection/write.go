package projection

import (
	"context"
	_ "embed"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/eventstore"
)

var (
	//go:embed sql/write_guarded_there.sql
	writtenThere string
	//go:embed sql/write_guarded_columns.sql
	addWritten string
)

// Outcome says what became of the rows of a Write, by their keys, in the order in
// which they were given.
type Outcome struct {
	Written []string
	// Skipped are those that the guard passed over: the row had seen something
	// newer, and nothing of it was changed. To be counted as
	// weir.projection.writes_skipped, as the engine's own are in Counts.
	Skipped []string
}

// Write writes rows of a view past the engine, for user code, a second service or a
// correction, each under the view's guard; see Guard. Of a row it takes Key, State
// (none if Deleted, or if the state says so itself), and the event after which the row
// is so: EventID and Position, where zero means none. Version and UpdatedAt are not
// looked at.
//
// It never touches what the engine knows of a row, so no event is applied twice or
// passed over because of it: the engine folds the next event upon the state that was
// written. The log knows nothing of that state: a rewind or a rebuild of the row
// forgets it, and verify reports it. Where the engine folds the same events, write what
// it has not folded into the row otherwise, or it is in there twice.
//
// q is a pool or the caller's transaction. Workers of the view, appends with it inline
// and other writes to it wait until that transaction ends, so keep it short, and write
// after what may wait for others. The view must have been prepared. Safe to repeat;
// within one call a key that comes several times is written in the order given.
func Write[S weir.Evolver[S]](ctx context.Context, q eventstore.Querier, s *eventstore.Store, v View[S], rows ...Row[S]) (o Outcome, err error) {
	statement := v.tables(s).sql(v.Guard.statement())
	for len(rows) > 0 {
		c, n, err := columnsOf(rows)
		if err == nil {
			err = o.add(ctx, q, statement, v.Name, c)
		}
		if err != nil {
			return o, fmt.Errorf("write %d rows of view %s: %w", len(rows), v.Name, err)
		}
		rows = rows[n:]
	}
	return o, nil
}

// writeColumns are rows as the statements take them.
type writeColumns struct {
	keys      []string
	states    []*string
	positions []*int64
	ids       []*[16]byte
}

// columnsOf takes rows as long as their keys differ, since a statement cannot write a
// row twice, and says how many.
func columnsOf[S weir.Evolver[S]](rows []Row[S]) (c writeColumns, n int, err error) {
	seen := map[string]bool{}
	for _, row := range rows {
		if seen[row.Key] {
			break
		}
		seen[row.Key] = true
		text, err := encodeWritten(row)
		if err != nil {
			return c, n, fmt.Errorf("encode row %q: %w", row.Key, err)
		}
		c.add(row.Key, text, row.Position, row.EventID)
		n++
	}
	return c, n, nil
}

// encodeWritten is the value of the column state, as it would be had the fold made it.
func encodeWritten[S weir.Evolver[S]](row Row[S]) (*string, error) {
	d, ok := any(row.State).(interface{ Deleted() bool })
	made := state[S]{key: row.Key, value: row.State, gone: row.Deleted || ok && d.Deleted()}
	return made.encode()
}

func (c *writeColumns) add(key string, state *string, position weir.Position, id weir.ID) {
	c.keys, c.states = append(c.keys, key), append(c.states, state)
	c.positions, c.ids = append(c.positions, orNull(int64(position))), append(c.ids, orNull([16]byte(id)))
}

// orNull is nil for zero.
func orNull[T comparable](value T) *T {
	if value == *new(T) {
		return nil
	}
	return &value
}

// errUnprepared says that nothing was written because there is no table to speak of.
var errUnprepared = errors.New("the view is not prepared: no application with it has been started here")

// add writes rows whose keys differ.
func (o *Outcome) add(ctx context.Context, q eventstore.Querier, statement, view string, c writeColumns) error {
	rows, err := q.Query(ctx, statement, view, c.keys, c.states, c.positions, c.ids)
	if err != nil {
		return err
	}
	written, err := pgx.CollectExactlyOneRow(rows, func(row pgx.CollectableRow) (keys []string, err error) {
		var editions int
		if err := row.Scan(&editions, &keys); err != nil {
			return nil, err
		}
		if editions == 0 {
			return nil, errUnprepared
		}
		return keys, nil
	})
	if err != nil {
		return err
	}
	done := map[string]bool{}
	for _, key := range written {
		done[key] = true
	}
	for _, key := range c.keys {
		if done[key] {
			o.Written = append(o.Written, key)
		} else {
			o.Skipped = append(o.Skipped, key)
		}
	}
	return nil
}

// ensureWritten adds the columns for Write where they are not there. It asks first, so
// that a role without the right to change tables can run.
func (t tables) ensureWritten(ctx context.Context) error {
	var there bool
	if err := t.store.Pool().QueryRow(ctx, t.sql(writtenThere)).Scan(&there); err != nil || there {
		return err
	}
	return t.store.Create(ctx, t.unqualified(addWritten))
}
