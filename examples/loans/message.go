package main

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"strings"
	"time"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/examples/loans/xes"
)

// Logged is the event of this example: one line of the log.
type Logged struct {
	// Case is the full name of the case; the stream may have a shorter one.
	Case       string    `json:"case"`
	Activity   string    `json:"activity"`
	Transition string    `json:"transition,omitempty"`
	Resource   string    `json:"resource,omitempty"`
	At         time.Time `json:"at"`
	// AmountReq is the amount the case asks for, where the log gives one.
	AmountReq *int64 `json:"amount_req,omitempty"`
}

// Step is what a variant is a sequence of.
func (l Logged) Step() string { return l.Activity + "+" + l.Transition }

// typePrefix begins the type of every event; the rest comes from the log, so one
// entry reads them all.
const typePrefix = "loan."

var types = weir.Types{typePrefix + "*": weir.EventOf[Logged]()}

// mapper makes messages of the events of one log, in file order.
type mapper struct{ ids *weir.Importer }

// newMapper takes the identity of the log: the same log gives the same ids.
func newMapper(logID string) *mapper { return &mapper{ids: weir.Import(logID)} }

// message makes the message of one event of a trace.
func (m *mapper) message(trace xes.Trace, event xes.Event) (weir.Message, error) {
	id, err := m.ids.At(event.Time)
	if err != nil {
		return weir.Message{}, fmt.Errorf("line %d: %w", event.Line, err)
	}
	data, err := json.Marshal(Logged{
		Case:       trace.Name,
		Activity:   event.Activity,
		Transition: event.Transition,
		Resource:   event.Resource,
		At:         event.Time,
		AmountReq:  trace.AmountReq,
	})
	if err != nil {
		return weir.Message{}, fmt.Errorf("line %d: %w", event.Line, err)
	}
	return weir.Message{
		ID:       id,
		Stream:   streamOf(trace.Name),
		Type:     typeOf(event),
		Data:     data,
		Metadata: weir.Metadata{Producer: systems[systemOf(event.Activity)]},
	}, nil
}

// streamOf names the stream of a case. A name of nothing but zeros would count as
// an id that somebody forgot to set, so it goes by its hash.
func streamOf(name string) weir.StreamID {
	stream := weir.Stream("case", short(name, maxKeyBytes, encodedSize))
	if stream.IsEmpty() {
		return weir.Stream("case", "0"+hashTail(name))
	}
	return stream
}

func typeOf(event xes.Event) string {
	name := event.Activity
	if event.Transition != "" {
		name += "." + event.Transition
	}
	return typePrefix + short(name, weir.MaxTypeBytes-len(typePrefix), plainSize)
}

// systems are the three that write about a case.
var systems = [...]string{"applications", "offers", "work items"}

// systemOf says which system writes an activity: by its prefix as in the bank's
// log, else by a hash, so that any log has three producers.
func systemOf(activity string) int {
	switch {
	case strings.HasPrefix(activity, "A_"):
		return 0
	case strings.HasPrefix(activity, "O_"):
		return 1
	case strings.HasPrefix(activity, "W_"):
		return 2
	}
	h := fnv.New32a()
	h.Write([]byte(activity))
	return int(h.Sum32() % uint32(len(systems)))
}
