package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/weir-es/weir"
)

// payment is the only event type of the benchmarks.
type payment struct {
	Amount  int    `json:"amount"`
	Account string `json:"account"`
	Note    string `json:"note"`
}

const (
	paymentMade = "payment.made"
	producer    = "bench"
	// metadata is how the store keeps what facts carries besides the payload.
	metadata = `{"producer":"bench"}`
	// factBytes is the length of a payload.
	factBytes = 256
	// manyStreamsCount is how many streams the facts of a full round belong to.
	manyStreamsCount = 10_000
)

var registry = func() *weir.Registry {
	r, err := weir.NewRegistry(weir.Types{paymentMade: weir.EventOf[payment]()})
	if err != nil {
		panic(err) // part of the program
	}
	return r
}()

// streamsOf is over how many streams n facts are spread: ten facts each, at most
// ten thousand streams.
func streamsOf(n int) int { return min(manyStreamsCount, max(1, n/10)) }

func streamName(i int) weir.StreamID { return weir.Stream("account", fmt.Sprint(i)) }

// facts are n facts of that many streams, in an order without pattern but the
// same each time, with increasing ids.
func facts(n, streams int) []weir.Message {
	random := rand.New(rand.NewPCG(1, 2))
	messages := make([]weir.Message, n)
	for i := range messages {
		messages[i] = fact(random.IntN(streams))
	}
	return messages
}

// fact is the next fact of a stream.
func fact(stream int) weir.Message {
	name := streamName(stream)
	return weir.Message{ID: weir.NewID(), Stream: name, Type: paymentMade, Data: payload(string(name)),
		Metadata: weir.Metadata{Producer: producer}}
}

// payload is a payment of factBytes bytes.
func payload(account string) []byte {
	p := payment{Amount: 7, Account: account}
	bare, _ := json.Marshal(p) // numbers and texts
	p.Note = strings.Repeat("n", factBytes-len(bare))
	full, _ := json.Marshal(p)
	return full
}
