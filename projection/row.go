package projection

import (
	"cmp"
	"encoding/json"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/weir-es/weir"
)

// state is a row while events are folded into it.
type state[S weir.Evolver[S]] struct {
	key      string
	value    S
	gone     bool // the fold deleted it
	version  weir.Version
	last     weir.ID
	position weir.Position
	print    fingerprint
	blind    bool // made before there were fingerprints
	changed  bool
	err      error // why the row cannot be read
}

// apply folds one event.
func (r *state[S]) apply(i item, version weir.Version) error {
	if err := cmp.Or(i.err, r.err); err != nil {
		return &eventError{i.Event, err}
	}
	for _, value := range i.values {
		if err := r.evolve(value); err != nil {
			return &eventError{i.Event, err}
		}
	}
	r.changed = true
	r.version = max(r.version, version)
	r.position = max(r.position, i.Position)
	r.print = r.print.chain(i.ID, version)
	if order := i.Order(); order.Compare(r.last) > 0 {
		r.last = order
	}
	return nil
}

// evolve calls the user's fold; a panic is that event's failure, not the end of the
// process. What follows a deletion begins with nothing, as it would had the row been
// written meanwhile.
func (r *state[S]) evolve(event any) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the fold panicked: %v", p)
		}
	}()
	value := r.value
	if r.gone {
		value = *new(S)
	}
	r.value = value.Evolve(event)
	d, ok := any(r.value).(interface{ Deleted() bool })
	r.gone = ok && d.Deleted()
	return nil
}

// encode is the value of the column state: null for a tombstone. It calls the
// user's code too.
func (r *state[S]) encode() (text *string, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the state panicked: %v", p)
		}
	}()
	if r.gone {
		return nil, nil
	}
	encoded, err := json.Marshal(r.value)
	state := string(encoded)
	return &state, err
}

// fill reads the column state.
func (r *state[S]) fill(text []byte) {
	if r.gone = text == nil; r.gone {
		return
	}
	if err := unmarshal(text, &r.value); err != nil {
		r.err = fmt.Errorf("read row %q: %w", r.key, err)
	}
}

// unmarshal reads a state. It calls the user's code too.
func unmarshal(text []byte, into any) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the state panicked: %v", p)
		}
	}()
	return json.Unmarshal(text, into)
}

// scanState reads a row as load_rows.sql selects it.
func scanState[S weir.Evolver[S]](rows pgx.Rows) (*state[S], error) {
	r := &state[S]{}
	var text, print []byte
	var version, position *int64
	var last *[16]byte
	if err := rows.Scan(&r.key, &text, &version, &last, &position, &print); err != nil {
		return nil, err
	}
	if version != nil {
		r.version = weir.Version(*version)
	}
	if position != nil {
		r.position = weir.Position(*position)
	}
	if last != nil {
		r.last = *last
	}
	r.blind = len(print) != len(r.print)
	copy(r.print[:], print)
	r.fill(text)
	return r, nil
}

// column is the value of the column fingerprint.
func (r *state[S]) column() []byte {
	if r.blind {
		return nil
	}
	return r.print[:]
}
