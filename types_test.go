package weir_test

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/weir-es/weir"
)

type hold struct{ Seat, Guest string }

type held struct {
	Seat  string `json:"seat"`
	Guest string `json:"guest"`
	Row   int    `json:"row,omitempty"`
}

type reservedV1 struct {
	Seat string `json:"seat"`
	Name string `json:"name"`
}

var seats = weir.Types{
	"seat.hold":     weir.CommandOf[hold](),
	"seat.held":     weir.EventOf[held](),
	"seat.reserved": weir.Upcast(func(old reservedV1) held { return held{Seat: old.Seat, Guest: old.Name} }),
}

func registry(t testing.TB, types weir.Types) *weir.Registry {
	t.Helper()
	r, err := weir.NewRegistry(types)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestTypesEncodeAndDecode(t *testing.T) {
	r := registry(t, seats)
	for name, value := range map[string]any{
		"seat.hold": hold{"A1", "Ada"},
		"seat.held": held{"A1", "Ada", 3},
	} {
		m, err := r.Encode("seat-A1", value)
		if err != nil {
			t.Fatal(err)
		}
		if m.Type != name || m.Stream != "seat-A1" || m.ID != (weir.ID{}) || !m.Metadata.IsJSON() {
			t.Errorf("encoded as %+v", m)
		}
		if back, err := r.Decode(m); err != nil || back != value {
			t.Errorf("decoded %#v, %v, want %#v", back, err, value)
		}
	}
}

// What a past release has stored is read for ever.
func TestGoldenPayloads(t *testing.T) {
	r := registry(t, seats)
	for name, c := range map[string]struct {
		typ, data string
		want      any
	}{
		"an event":         {"seat.held", `{"seat":"A1","guest":"Ada","row":3}`, held{"A1", "Ada", 3}},
		"before row":       {"seat.held", `{"seat":"A1","guest":"Ada"}`, held{"A1", "Ada", 0}},
		"a field too many": {"seat.held", `{"seat":"A1","guest":"Ada","aisle":true}`, held{"A1", "Ada", 0}},
		"the old name":     {"seat.reserved", `{"seat":"A1","name":"Ada"}`, held{"A1", "Ada", 0}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := r.Decode(weir.Message{Type: c.typ, Data: []byte(c.data)})
			if err != nil || got != c.want {
				t.Errorf("decoded %#v, %v, want %#v", got, err, c.want)
			}
		})
	}
	m, err := r.Encode("seat-A1", held{"A1", "Ada", 3})
	if want := `{"seat":"A1","guest":"Ada","row":3}`; err != nil || string(m.Data) != want {
		t.Errorf("encoded as %s, %v, want %s", m.Data, err, want)
	}
}

func TestUpcastOnlyReads(t *testing.T) {
	r := registry(t, seats)
	m, err := r.Encode("seat-A1", held{Seat: "A1"})
	if err != nil || m.Type != "seat.held" {
		t.Errorf("encoded as %q, %v", m.Type, err)
	}
	if _, err := r.Encode("seat-A1", reservedV1{}); !errors.Is(err, weir.ErrUnknownType) {
		t.Errorf("the old form was encoded: %v", err)
	}
}

func TestUnknownTypes(t *testing.T) {
	r := registry(t, seats)
	for name, value := range map[string]any{"unregistered": struct{}{}, "a pointer": &held{}, "nil": nil} {
		if m, err := r.Encode("seat-A1", value); !errors.Is(err, weir.ErrUnknownType) {
			t.Errorf("%s was encoded as %+v, %v", name, m, err)
		}
	}
	for _, name := range []string{"seat.sold", "", "seat.held ", "Seat.held"} {
		if v, err := r.Decode(weir.Message{Type: name, Data: []byte("{}")}); !errors.Is(err, weir.ErrUnknownType) || r.Knows(name) {
			t.Errorf("%q was decoded as %#v, %v; known: %t", name, v, err, r.Knows(name))
		}
	}
	if !r.Knows("seat.held") || !r.Knows("seat.reserved") {
		t.Error("registered names are not known")
	}
}

func TestBadPayloadsAreErrors(t *testing.T) {
	r := registry(t, seats)
	for _, data := range []string{"", "{", `{"row":"three"}`, `[]`, `"text"`} {
		for _, name := range []string{"seat.held", "seat.reserved"} {
			if name == "seat.reserved" && strings.Contains(data, "row") {
				continue // its old form had no row
			}
			v, err := r.Decode(weir.Message{ID: idAt(noon, 1, 1), Type: name, Data: []byte(data)})
			if err == nil || errors.Is(err, weir.ErrUnknownType) || !strings.Contains(err.Error(), name) {
				t.Errorf("%s %q was decoded as %#v, %v", name, data, v, err)
			}
		}
	}
	r = registry(t, weir.Types{"number": weir.EventOf[float64]()})
	if _, err := r.Encode("a-b", math.NaN()); err == nil || errors.Is(err, weir.ErrUnknownType) {
		t.Errorf("not a number was encoded: %v", err)
	}
}

func TestRegistryRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		types weir.Types
		want  string
	}{
		"two names for one Go type":  {weir.Types{"a": weir.EventOf[held](), "b": weir.EventOf[held]()}, `already named "a"`},
		"an event that is a command": {weir.Types{"a": weir.EventOf[held](), "b": weir.CommandOf[held]()}, `already named "a"`},
		"the zero Type":              {weir.Types{"a": {}}, "use EventOf"},
		"no name":                    {weir.Types{"": weir.EventOf[held]()}, "a name has 1 to 200"},
		"a long name":                {weir.Types{strings.Repeat("a", 201): weir.EventOf[held]()}, "a name has 1 to 200"},
		"NUL in a name":              {weir.Types{"a\x00": weir.EventOf[held]()}, "a name has 1 to 200"},
		"a broken name":              {weir.Types{"a\xff": weir.EventOf[held]()}, "a name has 1 to 200"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := weir.NewRegistry(c.types); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
	if r := registry(t, nil); r.Knows("a") {
		t.Error("an empty registry knows a type")
	}
}

func TestRegistryKeepsItsOwnCopy(t *testing.T) {
	types := weir.Types{"a": weir.EventOf[held]()}
	r := registry(t, types)
	delete(types, "a")
	if !r.Knows("a") {
		t.Error("the caller's map is the registry's")
	}
}

type anything struct{ Name string }

func TestPrefixesReadWhatHasNoEntry(t *testing.T) {
	read := func(label string) weir.Type {
		return weir.Upcast(func(anything) anything { return anything{label} })
	}
	r := registry(t, weir.Types{
		"loan.*":     read("loan"),
		"loan.w.*":   read("work"),
		"loan.w.end": read("end"),
		"loans":      weir.EventOf[held](),
	})
	for name, want := range map[string]string{
		"loan.a": "loan", "loan.": "loan", "loan.w": "loan", "loan.w.a": "work", "loan.w.a.b": "work", "loan.w.end": "end", "loan.w.ended": "work",
	} {
		got, err := r.Decode(weir.Message{Type: name, Data: []byte("{}")})
		if err != nil || got != (anything{want}) {
			t.Errorf("%q was read as %v, %v, want %s", name, got, err, want)
		}
	}
	for _, name := range []string{"loan", "loa", "other.loan.a"} {
		if r.Knows(name) {
			t.Errorf("%q is known", name)
		}
	}
}

func TestPrefixesOnlyRead(t *testing.T) {
	r := registry(t, weir.Types{"loan.*": weir.EventOf[anything]()})
	if m, err := r.Encode("a-b", anything{}); !errors.Is(err, weir.ErrUnknownType) {
		t.Errorf("encoded as %+v, %v", m, err)
	}
}

type heldV1 struct{ Name string }
type heldV2 struct{ First, Last string }
type heldV3 struct{ First, Last, Row string }

// Each old form needs only the step to the next.
func TestUpcastsChain(t *testing.T) {
	r := registry(t, weir.Types{
		"held.1": weir.Upcast(func(v heldV1) heldV2 {
			first, last, _ := strings.Cut(v.Name, " ")
			return heldV2{first, last}
		}),
		"held.2":     weir.Upcast(func(v heldV2) heldV3 { return heldV3{v.First, v.Last, "?"} }),
		"held.3":     weir.EventOf[heldV3](),
		"held.three": weir.Renamed[heldV3](),
		"held.two":   weir.Renamed[heldV2](),
		"held.pair":  weir.UpcastMany(func(p [2]heldV2) []any { return []any{p[0], p[1]} }),
		"held.none":  weir.Dropped(),
	})
	ada, ben := heldV3{"Ada", "L", "?"}, heldV3{"Ben", "B", "?"}
	for typ, c := range map[string]struct {
		data string
		want []any
	}{
		"held.1":     {`{"Name":"Ada L"}`, []any{ada}},
		"held.2":     {`{"First":"Ada","Last":"L"}`, []any{ada}},
		"held.two":   {`{"First":"Ada","Last":"L"}`, []any{ada}},
		"held.3":     {`{"First":"Ada","Last":"L","Row":"?"}`, []any{ada}},
		"held.three": {`{"First":"Ada","Last":"L","Row":"?"}`, []any{ada}},
		"held.pair":  {`[{"First":"Ada","Last":"L"},{"First":"Ben","Last":"B"}]`, []any{ada, ben}},
		"held.none":  {`whatever`, nil},
	} {
		if got, err := r.DecodeAll(weir.Message{Type: typ, Data: []byte(c.data)}); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: got %v, %v, want %v", typ, got, err, c.want)
		}
	}
	if m, err := r.Encode("a-1", ada); err != nil || m.Type != "held.3" {
		t.Errorf("written as %q, %v", m.Type, err)
	}
}

func TestUpcastsThatGoRoundAreAnError(t *testing.T) {
	r := registry(t, weir.Types{
		"a": weir.Upcast(func(heldV1) heldV2 { return heldV2{} }),
		"b": weir.Upcast(func(heldV2) heldV1 { return heldV1{} }),
	})
	if v, err := r.DecodeAll(weir.Message{Type: "a", Data: []byte("{}")}); err == nil {
		t.Errorf("got %v", v)
	}
}

type photo []byte

// upper is a codec of the user's.
type upper struct{}

func (upper) ContentType() string                { return "text/upper" }
func (upper) Marshal(v any) ([]byte, error)      { return []byte(strings.ToUpper(v.(held).Seat)), nil }
func (upper) Unmarshal(data []byte, v any) error { v.(*held).Seat = string(data); return nil }

func TestCodecs(t *testing.T) {
	r := registry(t, weir.Types{"photo": weir.EventOf[photo]().With(weir.Raw), "held": weir.EventOf[held]().With(upper{})})
	raw := photo("\x00\xff any bytes")
	m, err := r.Encode("a-1", raw)
	if err != nil || string(m.Data) != string(raw) || m.Metadata.ContentType != "application/octet-stream" {
		t.Fatalf("encoded as %+v, %v", m, err)
	}
	if back, err := r.Decode(m); err != nil || string(back.(photo)) != string(raw) {
		t.Errorf("decoded %v, %v", back, err)
	}
	m, err = r.Encode("a-1", held{Seat: "a1"})
	if err != nil || string(m.Data) != "A1" || m.Metadata.ContentType != "text/upper" {
		t.Fatalf("encoded as %+v, %v", m, err)
	}
	if back, err := r.Decode(m); err != nil || back != (held{Seat: "A1"}) {
		t.Errorf("decoded %v, %v", back, err)
	}
	before := weir.Message{Type: "held", Data: []byte(`{"seat":"B2"}`)}
	if back, err := r.Decode(before); err != nil || back != (held{Seat: "B2"}) {
		t.Errorf("what was stored as JSON before is read as %v, %v", back, err)
	}
	before.Metadata.ContentType = "text/other"
	if v, err := r.Decode(before); err == nil {
		t.Errorf("another encoding was read as %v", v)
	}
}
