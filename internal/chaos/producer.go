package main

import (
	"bufio"
	"container/heap"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/transport"
)

// errand is what a producer is told to do. A producer is a process of its own: it
// reads its errand from standard input, says when it is ready, is told when to start,
// and says of each message what it was and when it was sent. It ends well when the
// broker has acknowledged everything, and at once when its parent is gone.
type errand struct {
	Producer  int // from 0
	Seed      uint64
	NATS      string
	Namespace string
	Events    int
	Every     time.Duration // between two events
	Ahead     time.Duration // of its clock; below zero it is behind
	Delay     span
	Turns     int
	Observe   bool
}

// sent is what a producer says of a message.
type sent struct {
	ID     weir.ID       `json:"id"`
	Stream weir.StreamID `json:"stream"`
	Note   noted         `json:"note"`
	// Issued is when its id was issued, and At when it was handed to the publisher,
	// by the clock of the machine.
	Issued time.Time `json:"issued"`
	At     time.Time `json:"at"`
}

// fanStreams is how many streams the producers of fan-in share.
const fanStreams = 350

// turnLength is how long a group of streams is busy before the next one is.
const turnLength = time.Second

// producer issues ids at an even pace by a clock of its own, and holds each message
// back for its own time before it is sent.
type producer struct {
	errand
	ids   *weir.Generator
	types *weir.Registry
	dice  *rand.Rand
	send  func(context.Context, weir.Message) error
	words *json.Encoder // to the parent

	// Owned by run.
	start  time.Time
	issued int
	held   heldHeap
}

// produce is the whole life of a producer.
func produce(ctx context.Context, in io.Reader, out io.Writer) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	orders, words := json.NewDecoder(in), bufio.NewWriter(out)
	var e errand
	if err := orders.Decode(&e); err != nil {
		return fmt.Errorf("read the errand: %w", err)
	}
	conn, err := transport.Connect(ctx, transport.Config{URL: e.NATS, Namespace: e.Namespace, Name: fmt.Sprint("producer ", e.Producer)})
	if err != nil {
		return err
	}
	defer conn.Close()
	publisher := conn.Publisher()
	p, err := newProducer(e, publisher.Send, json.NewEncoder(words))
	if err != nil {
		return err
	}
	if e.Observe {
		end, err := gossip(ctx, e.NATS, p.ids)
		if err != nil {
			return err
		}
		defer end()
	}
	if err := p.await(orders, out); err != nil {
		return err
	}
	go func() {
		orders.Decode(new(any)) // nothing comes any more but the end of the parent
		stop()
	}()
	return errors.Join(p.run(ctx), publisher.Flush(ctx), words.Flush())
}

func newProducer(e errand, send func(context.Context, weir.Message) error, words *json.Encoder) (*producer, error) {
	types, err := weir.NewRegistry(notes)
	clock := func() time.Time { return time.Now().Add(e.Ahead) }
	return &producer{errand: e, types: types, send: send, words: words,
		ids: &weir.Generator{Clock: clock}, dice: dice(e.Seed, fmt.Sprint("producer ", e.Producer))}, err
}

// await says that the producer is ready, and returns when it knows its start.
func (p *producer) await(orders *json.Decoder, out io.Writer) error {
	if _, err := fmt.Fprintln(out, `"ready"`); err != nil {
		return err
	}
	return orders.Decode(&p.start)
}

// run issues and sends until nothing is left.
func (p *producer) run(ctx context.Context) error {
	for p.issued < p.Events || len(p.held) > 0 {
		if !pause(ctx, time.Until(p.next())) {
			return ctx.Err()
		}
		if err := p.issueDue(); err != nil {
			return err
		}
		if err := p.sendDue(ctx); err != nil {
			return err
		}
	}
	return nil
}

// next is when something is to be done.
func (p *producer) next() time.Time {
	switch {
	case p.issued == p.Events:
		return p.held[0].due
	case len(p.held) > 0 && p.held[0].due.Before(p.issueAt()):
		return p.held[0].due
	}
	return p.issueAt()
}

// issueAt is when the next id is issued.
func (p *producer) issueAt() time.Time { return p.start.Add(time.Duration(p.issued) * p.Every) }

func (p *producer) issueDue() error {
	for p.issued < p.Events && !time.Now().Before(p.issueAt()) {
		note := noted{p.Producer, p.issued + 1}
		m, err := p.types.Encode(p.stream(), note)
		if err != nil {
			return err
		}
		m.ID = p.ids.New()
		p.issued++
		now := time.Now()
		heap.Push(&p.held, held{m, note, now, now.Add(p.Delay.draw(p.dice))})
	}
	return nil
}

// stream is one of the group whose turn it is.
func (p *producer) stream() weir.StreamID {
	turn := int(time.Duration(p.issued) * p.Every / turnLength % time.Duration(p.Turns))
	from, to := turn*fanStreams/p.Turns, (turn+1)*fanStreams/p.Turns
	return weir.Stream("chaos", fmt.Sprintf("%03d", from+p.dice.IntN(to-from)))
}

func (p *producer) sendDue(ctx context.Context) error {
	for len(p.held) > 0 && !time.Now().Before(p.held[0].due) {
		h := heap.Pop(&p.held).(held)
		word := sent{h.message.ID, h.message.Stream, h.note, h.issued, time.Now()}
		if err := p.send(ctx, h.message); err != nil {
			return err
		}
		if err := p.words.Encode(word); err != nil {
			return err
		}
	}
	return nil
}

// held is a message that is held back.
type held struct {
	message weir.Message
	note    noted
	issued  time.Time
	due     time.Time
}

type heldHeap []held

func (h heldHeap) Len() int           { return len(h) }
func (h heldHeap) Less(i, j int) bool { return h[i].due.Before(h[j].due) }
func (h heldHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *heldHeap) Push(x any)        { *h = append(*h, x.(held)) }
func (h *heldHeap) Pop() any {
	last := len(*h) - 1
	x := (*h)[last]
	*h = (*h)[:last]
	return x
}
