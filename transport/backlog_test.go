package transport

import (
	"fmt"
	"testing"

	"github.com/weir-es/weir"
)

func TestBacklogCounts(t *testing.T) {
	_, c := declared(t, Config{Shards: 1, Prefetch: 4})
	if b := backlog(t, c); b != (Backlog{}) || !b.IsDone() {
		t.Errorf("at first %+v", b)
	}
	publish(t, c, 10)
	if b := backlog(t, c); b.Messages != 10 || b.IsDone() {
		t.Errorf("published %+v", b)
	}
	r := receive(t, c, 0)
	ack(t, r.take(10)[:7])
	awaitBacklog(t, c, Backlog{Messages: 10, Unacked: 3})
}

// The server counts a message some time after it has answered its publish: asked
// at once, it may say that nothing is waiting. Then nothing is done, and nothing
// may be purged.
func TestP1_APendingCountThatLagsIsNotBelieved(t *testing.T) {
	_, c := declared(t, Config{Shards: 4})
	acked, waiting := message(streamOf(1), 1), message(streamOf(2), 2)
	must(t, c.Publisher().Publish(testContext(t), acked, waiting))
	must(t, receive(t, c, 1).next().Ack())
	awaitBacklog(t, c, Backlog{Messages: 2, Waiting: 1})
	v, err := c.look(testContext(t))
	must(t, err)
	v.shards[2].NumPending = 0
	if b, err := c.count(testContext(t), v); err != nil || b.IsDone() {
		t.Errorf("backlog %+v, %v", b, err)
	}
	if n, err := c.purgeView(testContext(t), v, 0); err != nil || n > 1 {
		t.Errorf("purged %d, %v", n, err)
	}
	checkIDs(t, receive(t, c, 2).take(1), []weir.Message{waiting})
}

func TestPurgeRemovesWhatEveryShardHasAcked(t *testing.T) {
	_, c := declared(t, Config{Shards: 4})
	idle, busy := streamOf(1), streamOf(2)
	must(t, c.Publisher().Publish(testContext(t), message(idle, 1)))
	r1, r2 := receive(t, c, 1), receive(t, c, 2)
	must(t, r1.next().Ack())
	for i := range 20 {
		must(t, c.Publisher().Publish(testContext(t), message(busy, i)))
	}
	got := r2.take(20)
	ack(t, got[:10])
	awaitBacklog(t, c, Backlog{Messages: 21, Unacked: 10})

	purge := func(grace uint64, want uint64) {
		t.Helper()
		n, err := c.Purge(testContext(t), grace)
		if err != nil || n != want {
			t.Errorf("purged %d, %v; want %d", n, err, want)
		}
	}
	purge(100, 0)
	purge(3, 8) // 1 idle and 10 busy are acked, less 3
	purge(0, 3) // the idle shard holds nothing back
	purge(0, 0)
	ack(t, got[10:])
	awaitDone(t, c)
	purge(0, 10)
	if b := backlog(t, c); b.Messages != 0 {
		t.Errorf("left %+v", b)
	}
}

func awaitBacklog(t testing.TB, c *Conn, want Backlog) {
	t.Helper()
	eventually(t, fmt.Sprintf("%+v", want), func() bool { return backlog(t, c) == want })
}

// streamOf finds a stream of a shard of 4.
func streamOf(shard weir.Shard) weir.StreamID {
	for i := 0; ; i++ {
		if s := weir.Stream("order", fmt.Sprint(i)); s.Shard(4) == shard {
			return s
		}
	}
}

func TestP1_PurgingWhilePublishingLosesNothing(t *testing.T) {
	_, c := declared(t, Config{Shards: 8})
	acked := receiveAll(t, c)
	p := c.Publisher()
	const n = 5000
	for i := range n {
		must(t, p.Send(testContext(t), message(weir.Stream("order", fmt.Sprint(i%300)), i)))
		if i%50 == 0 {
			_, err := c.Purge(testContext(t), 0)
			must(t, err)
		}
	}
	must(t, p.Flush(testContext(t)))
	eventually(t, "all are received", func() bool { return acked() == n })
}
