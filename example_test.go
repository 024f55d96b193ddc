package weir_test

import (
	"errors"
	"fmt"
	"time"

	"github.com/weir-es/weir"
)

// Names are stored, Go types are not: an old name is read as today's type.
func ExampleTypes() {
	type Held struct{ Seat, Guest string }
	type ReservedV1 struct{ Seat, Name string }

	types, err := weir.NewRegistry(weir.Types{
		"seat.held":     weir.EventOf[Held](),
		"seat.reserved": weir.Upcast(func(old ReservedV1) Held { return Held{old.Seat, old.Name} }),
	})
	if err != nil {
		panic(err)
	}

	written, _ := types.Encode("seat-A1", Held{"A1", "Ada"})
	fmt.Printf("%s %s\n", written.Type, written.Data)

	stored := weir.Message{Type: "seat.reserved", Data: []byte(`{"Seat":"A2","Name":"Ben"}`)}
	event, _ := types.Decode(stored)
	fmt.Printf("%+v\n", event)
	// Output:
	// seat.held {"Seat":"A1","Guest":"Ada"}
	// {Seat:A2 Guest:Ben}
}

// What is emitted while a message is handled gets an id that follows from it, so
// that handling it again emits nothing new.
func ExampleDerive() {
	order := weir.NewID()
	invoice := weir.Derive(order, 0, "invoice")
	receipt := weir.Derive(order, 1, "receipt")

	fmt.Println("the same again:", weir.Derive(order, 0, "invoice") == invoice)
	fmt.Println("in order:", invoice.Compare(receipt) < 0)
	fmt.Println("before what comes next:", receipt.Compare(weir.NewID()) < 0)
	// Output:
	// the same again: true
	// in order: true
	// before what comes next: true
}

// The category ends at the first dash; the key may hold anything.
func ExampleStream() {
	seat := weir.Stream("seat", "row-7 A")
	fmt.Printf("%s: category %q, key %q\n", seat, seat.Category(), seat.Key())
	fmt.Println(weir.EncodeToken(seat.Key()))
	// Output:
	// seat-row-7 A: category "seat", key "row-7 A"
	// row-7=20A
}

// Importing a log again gives the same ids, so that nothing is stored twice.
func ExampleImport() {
	at := time.Date(2012, 3, 1, 9, 0, 0, 0, time.UTC)
	first, again := weir.Import("loans"), weir.Import("loans")
	for range 2 {
		a, _ := first.At(at)
		b, _ := again.At(at)
		fmt.Println(a == b, a.Timestamp().UTC())
	}
	// Output:
	// true 2012-03-01 09:00:00 +0000 UTC
	// true 2012-03-01 09:00:00 +0000 UTC
}

// What could not be stored is refused where it enters, with an error to ask.
func ExampleMessage_Validate() {
	m := weir.Message{ID: weir.NewID(), Stream: "seat-", Type: "seat.held", Data: []byte(`{}`)}

	var empty *weir.EmptyStreamError
	fmt.Println(errors.As(m.Validate(0), &empty))

	m.Stream = weir.Singleton
	fmt.Println(m.Validate(0))
	// Output:
	// true
	// <nil>
}
