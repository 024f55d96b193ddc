package transport

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"pgregory.net/rapid"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/devserver"
)

// stored reads everything in the ingest stream, in order.
func stored(t testing.TB, server *devserver.NATS, c *Conn) (messages []weir.Message) {
	t.Helper()
	nc, err := nats.Connect(server.URL())
	must(t, err)
	defer nc.Close()
	js, err := jetstream.New(nc)
	must(t, err)
	stream, err := js.Stream(testContext(t), c.names.stream())
	must(t, err)
	state := stream.CachedInfo().State
	for seq := state.FirstSeq; seq <= state.LastSeq && state.Msgs > 0; seq++ {
		raw, err := stream.GetMsg(testContext(t), seq)
		must(t, err)
		m, err := c.names.message(&nats.Msg{Subject: raw.Subject, Header: raw.Header, Data: raw.Data}, 0)
		must(t, err)
		messages = append(messages, m)
	}
	return messages
}

// byStream sorts ids into their streams, keeping the order.
func byStream(messages []weir.Message) map[weir.StreamID][]weir.ID {
	ids := map[weir.StreamID][]weir.ID{}
	for _, m := range messages {
		ids[m.Stream] = append(ids[m.Stream], m.ID)
	}
	return ids
}

func sameOrder(t interface{ Errorf(string, ...any) }, got, want []weir.Message) {
	g, w := byStream(got), byStream(want)
	for stream, ids := range w {
		if !slices.Equal(g[stream], ids) {
			t.Errorf("stream %s holds %d messages %v, sent were %d %v", stream, len(g[stream]), g[stream], len(ids), ids)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d messages are stored, sent were %d", len(got), len(want))
	}
}

// murmur#141: a retry inside the window was counted as a failure although stored.
// (nats-server#6980, PR#7391: one duplicate refused the whole batch)
func TestP3_ADuplicateIsASuccess(t *testing.T) {
	server, c := declared(t, Config{})
	m := message("order-1", 1)
	for range 3 {
		must(t, c.Publisher().Publish(testContext(t), m))
	}
	must(t, c.Publisher().Publish(testContext(t), m, m))
	sameOrder(t, stored(t, server, c), []weir.Message{m})
}

func TestInvalidMessagesAreNotSent(t *testing.T) {
	server, c := declared(t, Config{MaxDataBytes: 1000})
	good := message("order-1", 1)
	for name, test := range map[string]struct {
		change func(*weir.Message)
		want   any
	}{
		"no stream":   {func(m *weir.Message) { m.Stream = "" }, new(*weir.EmptyStreamError)},
		"zero stream": {func(m *weir.Message) { m.Stream = "order-00000000-0000-0000-0000-000000000000" }, new(*weir.EmptyStreamError)},
		"no dash":     {func(m *weir.Message) { m.Stream = "order" }, new(*weir.InvalidStreamError)},
		"not UTF-8":   {func(m *weir.Message) { m.Stream = "order-\xff" }, new(*weir.InvalidStreamError)},
		"long stream": {func(m *weir.Message) { m.Stream = weir.Stream("order", strings.Repeat("*", 100)) }, new(*SubjectTooLongError)},
		"no id":       {func(m *weir.Message) { m.ID = weir.ID{} }, new(*weir.InvalidMessageError)},
		"no type":     {func(m *weir.Message) { m.Type = "" }, new(*weir.InvalidMessageError)},
		"no JSON":     {func(m *weir.Message) { m.Data = []byte("{") }, new(*weir.InvalidMessageError)},
		"large":       {func(m *weir.Message) { m.Data = fmt.Appendf(nil, "%q", strings.Repeat("x", 1000)) }, new(*weir.TooLargeError)},
	} {
		bad := message("order-1", 2)
		test.change(&bad)
		p := c.Publisher()
		if err := p.Publish(testContext(t), good, bad); !errors.As(err, test.want) {
			t.Errorf("%s: Publish returned %v", name, err)
		}
		if err := p.Send(testContext(t), bad); !errors.As(err, test.want) {
			t.Errorf("%s: Send returned %v", name, err)
		}
	}
	if got := stored(t, server, c); len(got) != 0 {
		t.Errorf("%d messages were sent", len(got))
	}
}

// nats-server#2525, argo-events#2163: at the limit messages failed in the pipeline.
func TestMessagesAroundMaxPayload(t *testing.T) {
	server, c := declared(t, Config{MaxDataBytes: 16 << 20})
	limit := int(c.nats.MaxPayload())
	sized := func(n int) weir.Message {
		m := message("order-1", n)
		m.Metadata.ContentType = "text/plain"
		m.Data = []byte(strings.Repeat("x", n))
		return m
	}
	small, large := sized(limit-1000), sized(limit)
	must(t, c.Publisher().Publish(testContext(t), small))
	for _, m := range []weir.Message{large, sized(8 << 20)} {
		var e *weir.TooLargeError
		if err := c.Publisher().Publish(testContext(t), m); !errors.As(err, &e) || e.ID != m.ID || e.Limit != limit {
			t.Errorf("%d bytes: %v", len(m.Data), err)
		}
	}
	sameOrder(t, stored(t, server, c), []weir.Message{small})
}

func TestHostileStreamsArePublished(t *testing.T) {
	server, c := declared(t, Config{})
	var want []weir.Message
	for i, key := range []string{"a b", "a.b.c", "*", ">", "a>b", `"q"`, "'", "💧", "\\", "a\tb\n", strings.Repeat("k", 150)} {
		want = append(want, message(weir.Stream("order", key), i))
	}
	single := message(weir.Singleton, 99)
	must(t, c.Publisher().Publish(testContext(t), append(want, single)...))
	single.Stream = single.Stream.Resolve(single.ID)
	sameOrder(t, stored(t, server, c), append(want, single))
}

// nats.go PR#1819: without a bound, unanswered publishes pile up and the loop
// errors at 4,000.
func TestP9_SendBlocksWhileManyAreUnanswered(t *testing.T) {
	server, c := declared(t, Config{Pending: 10})
	server.Stop()
	p := c.Publisher()
	for i := range 10 {
		must(t, p.Send(testContext(t), message("order-1", i)))
	}
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := p.Send(short, message("order-1", 10)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the eleventh Send returned %v", err)
	}
	must(t, server.Resume(testContext(t)))
	must(t, p.Flush(testContext(t)))
	if got := stored(t, server, c); len(got) != 10 {
		t.Errorf("%d are stored", len(got))
	}
}

func TestP5_AStoppedServerCostsTimeOnly(t *testing.T) {
	server, c := declared(t, Config{})
	p := c.Publisher()
	var sent []weir.Message
	for i := range 3000 {
		m := message(weir.Stream("order", fmt.Sprint(i%40)), i)
		must(t, p.Send(testContext(t), m))
		sent = append(sent, m)
		if i == 1000 {
			server.Stop()
		}
		if i == 2000 {
			must(t, server.Resume(testContext(t)))
		}
	}
	must(t, p.Flush(testContext(t)))
	sameOrder(t, stored(t, server, c), sent)
}

// Random streams, cuts and restarts: within each stream the order of Send is the
// order of the broker, and every id is there once.
func TestP5_OrderOfSendIsOrderOfStream(t *testing.T) {
	server := startServer(t)
	wire := startProxy(t, server.URL())
	rounds := 0
	rapid.Check(t, func(r *rapid.T) {
		if rounds++; rounds > 20 {
			return // each costs some reconnects
		}
		c, err := Connect(testContext(t), Config{URL: wire.url(), Namespace: fmt.Sprintf("r%d", rounds), Shards: 3,
			MaxBytes: 16 << 20, reconnectWait: impatience, Pending: rapid.SampledFrom([]int{1, 7, 100, 4000}).Draw(r, "pending")})
		must(t, err)
		defer c.Close()
		must(t, c.Declare(testContext(t)))

		count := rapid.IntRange(1, 500).Draw(r, "messages")
		streams := rapid.SliceOfN(rapid.IntRange(0, 20), count, count).Draw(r, "streams")
		disturb := rapid.MapOfN(rapid.IntRange(0, count), rapid.SampledFrom([]func(){
			wire.cut, wire.cut, func() { must(t, server.Restart(testContext(t))) },
		}), 0, 5).Draw(r, "disturb")
		publishers := []*Publisher{c.Publisher(), c.Publisher()}
		var sent []weir.Message
		for i, stream := range streams {
			if act := disturb[i]; act != nil {
				act()
			}
			m := message(weir.Stream("order", fmt.Sprint(stream)), i)
			must(t, publishers[i%2].Send(testContext(t), m))
			sent = append(sent, m)
		}
		for _, p := range publishers {
			must(t, p.Flush(testContext(t)))
		}
		sameOrder(r, stored(t, server, c), sent)
	})
}

// The outbox: whatever order Send gets them in, what waits leaves in the order of
// ids. Nothing is declared, so the first of each stream is under way and the others
// wait behind it.
func TestP5_WhatWaitsLeavesInTheOrderOfIds(t *testing.T) {
	server := startServer(t)
	round := 0
	rapid.Check(t, func(r *rapid.T) {
		if round++; round > 30 {
			return // each has a stream of its own
		}
		c, err := Connect(testContext(t), Config{URL: server.URL(), Namespace: fmt.Sprintf("o%d", round), Shards: 3, MaxBytes: 4 << 20})
		must(t, err)
		defer c.Close()
		var all []weir.Message
		for i := range rapid.IntRange(1, 100).Draw(r, "messages") {
			all = append(all, message(weir.Stream("order", fmt.Sprint(i%3)), i))
		}
		p := c.Publisher()
		var sent []weir.Message
		for _, m := range rapid.Permutation(all).Draw(r, "order") {
			must(t, p.Send(testContext(t), m))
			sent = append(sent, m)
		}
		must(t, c.Declare(testContext(t)))
		must(t, p.Flush(testContext(t)))
		sameOrder(r, stored(t, server, c), firstThenSorted(sent))
	})
}

// firstThenSorted keeps the first of each stream where it is and sorts the others
// by id.
func firstThenSorted(messages []weir.Message) (expected []weir.Message) {
	seen := map[weir.StreamID]bool{}
	var others []weir.Message
	for _, m := range messages {
		if seen[m.Stream] {
			others = append(others, m)
		} else {
			expected = append(expected, m)
		}
		seen[m.Stream] = true
	}
	slices.SortFunc(others, weir.CompareMessages)
	return append(expected, others...)
}

// An id from the future, on a stream that is never idle: others go before it as often
// as there are slots, and no more.
func TestP8_NoMessageIsOvertakenForEver(t *testing.T) {
	under := &letter{token: 1, msg: nats.Msg{Subject: "s"}}
	k := &courier{lanes: map[string]*letter{"s": under}, slots: make(chan struct{}, 3)}
	for _, n := range []byte{1, 99, 2, 3, 4, 5, 6} {
		k.queue(&letter{id: weir.ID{n}, msg: nats.Msg{Subject: "s"}})
	}
	var order []byte
	for l := under.next; l != nil; l = l.next {
		order = append(order, l.id[0])
	}
	if want := []byte{1, 2, 3, 4, 99, 5, 6}; !slices.Equal(order, want) {
		t.Errorf("they leave as %v, want %v", order, want)
	}
}

func TestP5_PublishSortsWhatItIsGiven(t *testing.T) {
	server, c := declared(t, Config{})
	var sorted []weir.Message
	for i := range 100 {
		sorted = append(sorted, message(weir.Stream("order", fmt.Sprint(i%3)), i))
	}
	reversed := slices.Clone(sorted)
	slices.Reverse(reversed)
	must(t, c.Publisher().Publish(testContext(t), reversed...))
	sameOrder(t, stored(t, server, c), sorted)
}

func TestP9_AFullStreamMakesProducersWait(t *testing.T) {
	server, c := declared(t, Config{MaxBytes: 100 << 10, Shards: 1})
	r := receive(t, c, 0)
	var sent []weir.Message
	for i := range 300 {
		m := message(weir.Stream("order", fmt.Sprint(i%7)), i)
		m.Data = fmt.Appendf(nil, "%q", strings.Repeat("x", 1000))
		sent = append(sent, m)
	}
	published := make(chan error, 1)
	go func() { published <- c.Publisher().Publish(testContext(t), sent...) }()

	var got []weir.Message
	refusals := 0
	for len(got) < len(sent) {
		select {
		case d := <-r.got:
			got = append(got, d.Message)
			must(t, d.Ack())
		default:
			if c.courier.isRefused(10077) {
				refusals++
				_, err := c.Purge(testContext(t), 0)
				must(t, err)
			}
		}
		if t.Context().Err() != nil {
			t.Fatal("time is over")
		}
	}
	must(t, <-published)
	if refusals == 0 {
		t.Error("the stream was never full")
	}
	sameOrder(t, got, sent)
	if b, err := c.Backlog(testContext(t)); err != nil || b.Messages > 150 {
		t.Errorf("%+v, %v", b, err)
	}
	_ = server
}

// isRefused reports whether a letter waits for this reason.
func (k *courier) isRefused(code jetstream.ErrorCode) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, l := range k.open {
		var api *jetstream.APIError
		if errors.As(l.reason, &api) && api.ErrorCode == code {
			return true
		}
	}
	return false
}

func TestPublishBeforeDeclareWaits(t *testing.T) {
	server := startServer(t)
	c := connect(t, server, Config{})
	m := message("order-1", 1)
	short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	err := c.Publisher().Publish(short, m)
	if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, ErrUnknownOutcome) || !strings.Contains(err.Error(), "is it declared") {
		t.Errorf("before Declare: %v", err)
	}
	// It was never stored and nobody waits for it: it does not go on trying.
	eventually(t, "it is given up", func() bool { return len(c.courier.slots) == 0 })
	p := c.Publisher()
	must(t, p.Send(testContext(t), m))
	must(t, c.Declare(testContext(t)))
	must(t, p.Flush(testContext(t)))
	sameOrder(t, stored(t, server, c), []weir.Message{m})
}

// A server that was shut down in part, or is cut off, takes what is published and
// never answers.
func TestP8_AServerThatDoesNotAnswerIsLeft(t *testing.T) {
	server, c0 := declared(t, Config{})
	dumb := startServer(t)
	nc, err := nats.Connect(dumb.URL())
	must(t, err)
	defer nc.Close()
	_, err = nc.Subscribe("weir.>", func(*nats.Msg) {})
	must(t, err)
	must(t, nc.Flush())

	wire := startProxy(t, dumb.URL())
	c, err := Connect(testContext(t), Config{URL: wire.url(), Namespace: "t", Shards: 4, answerWait: 50 * time.Millisecond})
	must(t, err)
	defer c.Close()
	wire.redirect(server.URL())
	m := message("order-1", 1)
	must(t, c.Publisher().Publish(testContext(t), m))
	sameOrder(t, stored(t, server, c0), []weir.Message{m})
}

// A stream of somebody else has our subjects: what it stores nobody would find.
func TestAnotherStreamIsNoSuccess(t *testing.T) {
	c := connect(t, startServer(t), Config{})
	_, err := c.js.CreateStream(testContext(t), jetstream.StreamConfig{Name: "OTHER", Subjects: []string{"weir.t.>"}})
	must(t, err)
	var refused *RefusedError
	if err := c.Publisher().Publish(testContext(t), message("order-1", 1)); !errors.As(err, &refused) || !strings.Contains(err.Error(), "OTHER") {
		t.Errorf("Publish returned %v", err)
	}
	var api *jetstream.APIError
	if err := c.Declare(testContext(t)); !errors.As(err, &api) {
		t.Errorf("Declare returned %v", err)
	}
}

func TestGivenUpMessagesAreTakenBack(t *testing.T) {
	server, c := declared(t, Config{})
	server.Stop()
	eventually(t, "disconnected", func() bool { return !c.Connected() })
	gone, cancel := context.WithCancel(t.Context())
	first, second := message("order-1", 1), message("order-1", 2)
	result := make(chan error, 1)
	go func() { result <- c.Publisher().Publish(gone, first, second) }()
	eventually(t, "both are posted", func() bool { return len(c.courier.slots) == 2 })
	cancel()
	if err := <-result; !errors.Is(err, context.Canceled) || !errors.Is(err, ErrUnknownOutcome) {
		t.Errorf("Publish returned %v", err)
	}
	must(t, server.Resume(testContext(t)))
	third := message("order-1", 3)
	must(t, c.Publisher().Publish(testContext(t), third))
	got := stored(t, server, c)
	if len(got) == 0 || got[len(got)-1].ID != third.ID || slices.ContainsFunc(got, func(m weir.Message) bool { return m.ID == second.ID }) {
		t.Errorf("stored are %v", byStream(got))
	}
}

func TestARefusedMessageDoesNotStopItsStream(t *testing.T) {
	server, c := declared(t, Config{})
	stream, err := c.js.Stream(testContext(t), c.names.stream())
	must(t, err)
	config := stream.CachedInfo().Config
	config.MaxMsgSize = 2000
	_, err = c.js.UpdateStream(testContext(t), config)
	must(t, err)

	before, large, after := message("order-1", 1), message("order-1", 2), message("order-1", 3)
	large.Data = fmt.Appendf(nil, "%q", strings.Repeat("x", 3000))
	p := c.Publisher()
	for _, m := range []weir.Message{before, large, after} {
		must(t, p.Send(testContext(t), m))
	}
	var refused *RefusedError
	if err := p.Flush(testContext(t)); !errors.As(err, &refused) || refused.ID != large.ID {
		t.Errorf("Flush returned %v", err)
	}
	must(t, p.Flush(testContext(t))) // each error once
	sameOrder(t, stored(t, server, c), []weir.Message{before, after})
}

func TestManyGoroutinesShareAPublisher(t *testing.T) {
	server, c := declared(t, Config{Pending: 50})
	p := c.Publisher()
	var mu sync.Mutex
	var sent []weir.Message
	var group sync.WaitGroup
	for g := range 8 {
		group.Go(func() {
			for i := range 100 {
				m := message(weir.Stream("order", fmt.Sprint(g)), i)
				if err := p.Send(testContext(t), m); err != nil {
					t.Error(err)
				}
				mu.Lock()
				sent = append(sent, m)
				mu.Unlock()
				if i%30 == 0 {
					if err := p.Flush(testContext(t)); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	group.Wait()
	must(t, p.Close(testContext(t)))
	sameOrder(t, stored(t, server, c), sent)
	if err := p.Send(testContext(t), message("order-1", 1)); !errors.Is(err, ErrClosed) {
		t.Errorf("Send after Close: %v", err)
	}
}

func TestCloseEndsWhatWaits(t *testing.T) {
	server, c := declared(t, Config{})
	server.Stop()
	result := make(chan error, 1)
	go func() { result <- c.Publisher().Publish(context.WithoutCancel(t.Context()), message("order-1", 1)) }()
	eventually(t, "it waits", func() bool { return len(c.courier.slots) == 1 })
	c.Close()
	if err := <-result; !errors.Is(err, ErrClosed) || !errors.Is(err, ErrUnknownOutcome) {
		t.Errorf("Publish returned %v", err)
	}
	if err := c.Publisher().Publish(testContext(t), message("order-1", 1)); !errors.Is(err, ErrClosed) {
		t.Errorf("Publish after Close: %v", err)
	}
}

func TestWhatIsPermanent(t *testing.T) {
	for code, want := range map[int]bool{400: true, 413: true, 404: false, 409: false, 429: false, 500: false, 503: false} {
		if got := permanent(&jetstream.APIError{Code: code}); got != want {
			t.Errorf("%d is permanent: %t", code, got)
		}
	}
	if permanent(nats.ErrReconnectBufExceeded) || permanent(errNoStream) || permanent(errBadAnswer) || !permanent(nats.ErrMaxPayload) {
		t.Error("client errors are told apart wrongly")
	}
}
