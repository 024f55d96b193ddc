package app_test

import (
	"testing"
	"time"

	"github.com/weir-es/weir/internal/testkit"
)

// TestP3_RepeatsAfterTheBrokersWindow, which here is shorter than its two minutes: the
// broker stores the same facts again and gives them out again, faster than anybody can
// acknowledge, and the store has each once. They change no view, are counted, and are
// nobody's error. (nats-server#7302, nats-server#5142: the window ends, however often an id
// was repeated; eventhorizon PR#273: what came again to a model that had it was an error)
func TestP3_RepeatsAfterTheBrokersWindow(t *testing.T) {
	t.Parallel()
	ctx := testkit.Context(t)
	config, log := service(t), &logs{}
	config.Inbox, config.Logger = soon, log.logger()
	a, b := open(t, config), outsider(t, config)
	stream, err := b.js.Stream(ctx, b.name)
	if err != nil {
		t.Fatal(err)
	}
	settings, before := stream.CachedInfo().Config, stream.CachedInfo().State.LastSeq
	settings.Duplicates = 100 * time.Millisecond
	if _, err := b.js.UpdateStream(ctx, settings); err != nil {
		t.Fatal(err)
	}
	begin(t, a)
	c := newCrowd(t, a, 100, 7)
	repeats := func() int {
		info, err := stream.Info(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return int(info.State.LastSeq-before) - 100
	}
	testkit.Await(t, 20*time.Second, "the broker has stored three times as much", func() bool {
		if err := c.send(ctx, a); err != nil {
			t.Fatal(err)
		}
		return repeats() >= 200
	})
	settle(t, a, 20*time.Second)
	c.check(t, a)
	if s := a.Stats(); s.Stored != 100 || s.Duplicates < int64(repeats()) || s.DeadLetters > 0 {
		t.Errorf("%d repeats were given out, counted are %+v", repeats(), s)
	}
	if log.has("cannot store") || log.has("level=ERROR") {
		t.Error("repeats were somebody's error")
	}
}
