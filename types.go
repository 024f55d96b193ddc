package weir

import (
	"encoding/json"
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
//	}
type Types map[string]Type

// Type is how messages of one name become Go values. Make it with EventOf,
// CommandOf or Upcast.
type Type struct {
	command bool
	// goType is what Encode takes; nil for an upcast, which only reads.
	goType reflect.Type
	decode func(data []byte) (any, error)
}

// EventOf registers events of Go type T, as JSON with the rules of encoding/json.
func EventOf[T any]() Type {
	return Type{goType: reflect.TypeFor[T](), decode: decodeAs[T]}
}

// CommandOf registers commands of Go type T, encoded like events.
func CommandOf[T any]() Type {
	return Type{command: true, goType: reflect.TypeFor[T](), decode: decodeAs[T]}
}

// Upcast reads an old name as a newer Go type. Nothing is written under it.
func Upcast[Old, New any](up func(Old) New) Type {
	return Type{decode: func(data []byte) (any, error) {
		old, err := decodeAs[Old](data)
		if err != nil {
			return nil, err
		}
		return up(old.(Old)), nil
	}}
}

func decodeAs[T any](data []byte) (any, error) {
	var v T
	if err := json.Unmarshal(data, &v); err != nil {
		return nil, err
	}
	return v, nil
}

// Registry is Types made ready: looked up in both directions, checked once.
// Safe for concurrent use.
type Registry struct {
	types    Types
	names    map[reflect.Type]string
	prefixes []string // longest first
}

// NewRegistry checks types and makes them ready. Two names for one Go type are
// an error, since Encode could not choose; so is the zero Type.
func NewRegistry(types Types) (*Registry, error) {
	r := &Registry{types: maps.Clone(types), names: map[reflect.Type]string{}}
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
	if t.decode == nil {
		return fmt.Errorf("register type %q: use EventOf, CommandOf or Upcast", name)
	}
	if prefix, ok := strings.CutSuffix(name, "*"); ok && strings.HasSuffix(prefix, ".") {
		r.prefixes = append(r.prefixes, prefix)
		return nil
	}
	if t.goType == nil {
		return nil
	}
	if other, ok := r.names[t.goType]; ok {
		return fmt.Errorf("register type %q: %s is already named %q; read the old name with Upcast", name, t.goType, other)
	}
	r.names[t.goType] = name
	return nil
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
	data, err := json.Marshal(value)
	if err != nil {
		return Message{}, fmt.Errorf("encode %s for %s: %w", name, stream, err)
	}
	return Message{Stream: stream, Type: name, Data: data}, nil
}

// Decode gives the Go value of a message, upcast to its newest form. An
// unregistered name gives an error that is ErrUnknownType.
func (r *Registry) Decode(m Message) (any, error) {
	t, ok := r.find(m.Type)
	if !ok {
		return nil, fmt.Errorf("decode message %s of type %q: %w", m.ID, m.Type, ErrUnknownType)
	}
	value, err := t.decode(m.Data)
	if err != nil {
		return nil, fmt.Errorf("decode message %s of type %q: %w", m.ID, m.Type, err)
	}
	return value, nil
}
