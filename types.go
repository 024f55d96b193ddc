package weir

import (
	"bytes"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// Types names the Go types of an application's messages. Names are stored for
// ever; Go types may be renamed and moved at will. A name that ends in ".*"
// reads every type with that prefix that has no entry of its own, as for logs
// whose types are not known beforehand; such an entry only reads.
//
//	var types = weir.Types{
//		"seat.hold":     weir.CommandOf[Hold](),
//		"seat.held":     weir.EventOf[Held](),
//		"seat.reserved": weir.Upcast(func(old ReservedV1) Held { return Held{old.Seat, old.Name} }),
//		"seat.taken":    weir.Renamed[Held](),
//		"seat.noise":    weir.Dropped(),
//	}
//
// Upcasts chain: where the result of one is what another takes, both run, so each
// old form needs only the step to the next.
type Types map[string]Type

// Type is how messages of one name become Go values. Make it with EventOf,
// CommandOf, Renamed, Upcast, UpcastMany or Dropped.
type Type struct {
	reads  reflect.Type // what the payload is decoded as; nil when dropped
	writes bool         // Encode uses this name
	codec  Codec
	up     func(any) []any // nil: the value is what it is
	fresh  func() any      // a pointer to a new value of reads
}

// EventOf registers events of Go type T, as JSON unless With says otherwise.
func EventOf[T any]() Type {
	t := Renamed[T]()
	t.writes = true
	return t
}

// CommandOf registers commands of Go type T, encoded like events.
func CommandOf[T any]() Type { return EventOf[T]() }

// Renamed reads an old name as T. Nothing is written under it.
func Renamed[T any]() Type {
	return Type{reads: reflect.TypeFor[T](), codec: JSON, fresh: func() any { return new(T) }}
}

// Upcast reads an old form as a newer one. Nothing is written under its name. up
// must depend on its argument only; the event keeps its stream, version and id.
func Upcast[Old, New any](up func(Old) New) Type {
	return UpcastMany(func(old Old) []any { return []any{up(old)} })
}

// UpcastMany reads an old form as any number of newer values, in order: one event
// that says several things now, or none. All of them are the same event, with one
// id and one version.
func UpcastMany[Old any](up func(Old) []any) Type {
	t := Renamed[Old]()
	t.up = func(old any) []any { return up(old.(Old)) }
	return t
}

// Dropped reads a name as nothing: consumers pass over it, whatever its payload.
func Dropped() Type { return Type{codec: JSON} }

// With encodes and decodes the type with another codec. Messages that were stored
// as JSON before are read as JSON still.
func (t Type) With(codec Codec) Type {
	t.codec = codec
	return t
}

// Registry is Types made ready: looked up in both directions, checked once.
// Safe for concurrent use.
type Registry struct {
	types    Types
	names    map[reflect.Type]string // what Encode writes
	ups      map[reflect.Type]func(any) []any
	prefixes []string // longest first
}

// NewRegistry checks types and makes them ready. Two names for one Go type are
// an error, since Encode could not choose; so is the zero Type.
func NewRegistry(types Types) (*Registry, error) {
	r := &Registry{types: maps.Clone(types), names: map[reflect.Type]string{}, ups: map[reflect.Type]func(any) []any{}}
	for _, name := range slices.Sorted(maps.Keys(types)) {
		if err := r.add(name, types[name]); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(r.prefixes, func(a, b string) int { return len(b) - len(a) })
	return r, nil
}

func (r *Registry) add(name string, t Type) error {
	if name == "" || len(name) > MaxTypeBytes || invalidTextAt(name) >= 0 {
		return fmt.Errorf("register type %.60q: a name has 1 to %d bytes of UTF-8 without NUL", name, MaxTypeBytes)
	}
	if t.codec == nil {
		return fmt.Errorf("register type %q: use EventOf, CommandOf, Renamed, Upcast, UpcastMany or Dropped", name)
	}
	r.addUpcast(t)
	if prefix, ok := strings.CutSuffix(name, "*"); ok && strings.HasSuffix(prefix, ".") {
		r.prefixes = append(r.prefixes, prefix)
		return nil
	}
	if !t.writes {
		return nil
	}
	if other, ok := r.names[t.reads]; ok {
		return fmt.Errorf("register type %q: %s is already named %q; read the old name with Renamed", name, t.reads, other)
	}
	r.names[t.reads] = name
	return nil
}

// addUpcast lets results of other upcasts go on with this one. With two upcasts
// from one Go type it would be unclear with which.
func (r *Registry) addUpcast(t Type) {
	if t.up == nil {
		return
	}
	if _, ok := r.ups[t.reads]; ok {
		r.ups[t.reads] = nil
		return
	}
	r.ups[t.reads] = t.up
}

// Knows reports whether messages of this name can be decoded.
func (r *Registry) Knows(name string) bool {
	_, ok := r.find(name)
	return ok
}

func (r *Registry) find(name string) (Type, bool) {
	if t, ok := r.types[name]; ok {
		return t, true
	}
	for _, prefix := range r.prefixes {
		if strings.HasPrefix(name, prefix) {
			return r.types[prefix+"*"], true
		}
	}
	return Type{}, false
}

// Encode makes a message of a registered Go value, without an id. An
// unregistered type gives an error that is ErrUnknownType.
func (r *Registry) Encode(stream StreamID, value any) (Message, error) {
	name, ok := r.names[reflect.TypeOf(value)]
	if !ok {
		return Message{}, fmt.Errorf("encode %T for %s: %w", value, stream, ErrUnknownType)
	}
	codec := r.types[name].codec
	data, err := codec.Marshal(value)
	if err != nil {
		return Message{}, fmt.Errorf("encode %s for %s: %w", name, stream, err)
	}
	m := Message{Stream: stream, Type: name, Data: data}
	if content := codec.ContentType(); content != ContentTypeJSON {
		m.Metadata.ContentType = content
	}
	return m, nil
}

// Decode gives the Go value of a message, upcast to its newest form. An
// unregistered name gives an error that is ErrUnknownType; so does one that is
// read as nothing or as several values, for which there is DecodeAll.
func (r *Registry) Decode(m Message) (any, error) {
	values, err := r.DecodeAll(m)
	if err != nil {
		return nil, err
	}
	if len(values) != 1 {
		return nil, fmt.Errorf("decode message %s of type %q: it is read as %d values", m.ID, m.Type, len(values))
	}
	return values[0], nil
}

// DecodeAll gives the Go values of a message, upcast to their newest forms: one,
// unless an upcast makes more or none of it.
func (r *Registry) DecodeAll(m Message) ([]any, error) {
	t, ok := r.find(m.Type)
	if !ok {
		return nil, fmt.Errorf("decode message %s of type %q: %w", m.ID, m.Type, ErrUnknownType)
	}
	if t.reads == nil {
		return nil, nil
	}
	value, err := t.read(m)
	if err != nil {
		return nil, fmt.Errorf("decode message %s of type %q: %w", m.ID, m.Type, err)
	}
	var values []any
	if t.up == nil {
		values, err = r.upcast(values, value, nil, 0)
	} else {
		values, err = r.upcastAll(values, t.up(value), t.reads, 0)
	}
	if err != nil {
		return nil, fmt.Errorf("decode message %s of type %q: %w", m.ID, m.Type, err)
	}
	return values, nil
}

// read decodes with the codec that the message was encoded with.
func (t Type) read(m Message) (any, error) {
	codec, content := t.codec, m.Metadata.ContentType
	switch {
	case m.Metadata.IsJSON():
		content = ContentTypeJSON
		if codec.ContentType() != content {
			codec = JSON
		}
	case codec.ContentType() != content:
		return nil, fmt.Errorf("it is encoded as %q, the type is registered with %q", content, codec.ContentType())
	}
	value := t.fresh()
	if err := codec.Unmarshal(m.Data, value); err != nil {
		return nil, err
	}
	return reflect.ValueOf(value).Elem().Interface(), nil
}

// maxUpcasts is how many steps a chain may have: more is a circle.
const maxUpcasts = 100

// upcast goes on with a value as far as upcasts lead. One that came from a value
// of its own type was only mended, and is at its end.
func (r *Registry) upcast(into []any, value any, from reflect.Type, steps int) ([]any, error) {
	typ := reflect.TypeOf(value)
	up, ok := r.ups[typ]
	switch {
	case !ok || typ == from:
		return append(into, value), nil
	case up == nil:
		return nil, fmt.Errorf("two names upcast from %T, so it is unclear which of them goes on", value)
	case steps == maxUpcasts:
		return nil, fmt.Errorf("upcasts from %T go round in a circle", value)
	}
	return r.upcastAll(into, up(value), typ, steps+1)
}

func (r *Registry) upcastAll(into, values []any, from reflect.Type, steps int) (_ []any, err error) {
	for _, value := range values {
		if into, err = r.upcast(into, value, from, steps); err != nil {
			return nil, err
		}
	}
	return into, nil
}

func asBytes(value any) ([]byte, bool) {
	v := reflect.ValueOf(value)
	if v.Kind() != reflect.Slice || v.Type().Elem().Kind() != reflect.Uint8 {
		return nil, false
	}
	return v.Bytes(), true
}

func setBytes(into any, data []byte) bool {
	v := reflect.ValueOf(into).Elem()
	if v.Kind() != reflect.Slice || v.Type().Elem().Kind() != reflect.Uint8 {
		return false
	}
	v.SetBytes(bytes.Clone(data))
	return true
}
