package transport

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-es/weir"
)

// BenchmarkPublish compares Send and Flush with a native twin, which does the
// least that stores the same messages with the same ids: PublishMsgAsync in a
// loop. They take turns in one run; the ratio is ours to the twin's rate.
func BenchmarkPublish(b *testing.B) {
	for _, streams := range []int{1, 100, 1000, 10_000} {
		b.Run(fmt.Sprintf("streams=%d", streams), func(b *testing.B) { benchmarkPublish(b, streams) })
	}
}

const benchTurn = 20_000 // messages

func benchmarkPublish(b *testing.B, streams int) {
	server, c := declared(b, Config{Shards: weir.DefaultShards})
	nc, err := nats.Connect(server.URL())
	must(b, err)
	defer nc.Close()
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(DefaultPending))
	must(b, err)
	var ours, twin time.Duration
	n := 0
	for b.Loop() {
		count := benchTurn
		if streams == 1 {
			count /= 10
		}
		twin += publishNative(b, js, c.names, benchMessages(streams, count))
		ours += publishOurs(b, c, benchMessages(streams, count))
		n += count
		_, err := c.purge(b.Context(), 1<<60)
		must(b, err)
	}
	b.ReportMetric(float64(n)/ours.Seconds(), "ours/s")
	b.ReportMetric(float64(n)/twin.Seconds(), "twin/s")
	b.ReportMetric(twin.Seconds()/ours.Seconds(), "ratio")
}

func benchMessages(streams, count int) []weir.Message {
	messages := make([]weir.Message, count)
	for i := range messages {
		messages[i] = message(weir.Stream("order", fmt.Sprint(i%streams)), i)
		messages[i].Data = fmt.Appendf(nil, `{"n":%d,"pad":%q}`, i, strings.Repeat("x", 220))
	}
	return messages
}

func publishOurs(b *testing.B, c *Conn, messages []weir.Message) time.Duration {
	begin := time.Now()
	p := c.Publisher()
	for i := range messages {
		must(b, p.Send(b.Context(), messages[i]))
	}
	must(b, p.Flush(b.Context()))
	return time.Since(begin)
}

func publishNative(b *testing.B, js jetstream.JetStream, n names, messages []weir.Message) time.Duration {
	begin := time.Now()
	for i := range messages {
		m := &messages[i]
		subject, err := n.subject(m.Stream)
		must(b, err)
		_, err = js.PublishMsgAsync(&nats.Msg{Subject: subject, Data: m.Data, Header: nats.Header{headerType: {m.Type}}},
			jetstream.WithMsgID(m.ID.String()), jetstream.WithStallWait(time.Minute))
		must(b, err)
	}
	<-js.PublishAsyncComplete()
	return time.Since(begin)
}

// BenchmarkReceive compares Receive, with an ack for each message, with a native
// twin: Consume of the same kind of consumer.
func BenchmarkReceive(b *testing.B) {
	_, c := declared(b, Config{Shards: 1, Pending: 1000})
	var ours, twin time.Duration
	n := 0
	for b.Loop() {
		messages := benchMessages(1000, benchTurn)
		publishOurs(b, c, messages)
		twin += receiveNative(b, c)
		publishOurs(b, c, benchMessages(1000, benchTurn))
		ours += receiveOurs(b, c)
		n += benchTurn
		_, err := c.purge(b.Context(), 1<<60)
		must(b, err)
	}
	b.ReportMetric(float64(n)/ours.Seconds(), "ours/s")
	b.ReportMetric(float64(n)/twin.Seconds(), "twin/s")
	b.ReportMetric(twin.Seconds()/ours.Seconds(), "ratio")
}

func receiveOurs(b *testing.B, c *Conn) time.Duration {
	begin := time.Now()
	r := receive(b, c, 0)
	for range benchTurn {
		must(b, (<-r.got).Ack())
	}
	took := time.Since(begin)
	awaitDone(b, c)
	must(b, r.end())
	return took
}

func receiveNative(b *testing.B, c *Conn) time.Duration {
	begin := time.Now()
	consumer, err := c.js.Consumer(b.Context(), c.names.stream(), c.names.consumer(0))
	must(b, err)
	got := make(chan jetstream.Msg, benchTurn)
	consume, err := consumer.Consume(func(m jetstream.Msg) { got <- m })
	must(b, err)
	for range benchTurn {
		must(b, (<-got).Ack())
	}
	took := time.Since(begin)
	awaitDone(b, c)
	consume.Stop()
	<-consume.Closed()
	return took
}
