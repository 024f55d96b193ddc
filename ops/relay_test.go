package ops_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/app"
	"github.com/weir-es/weir/internal/testkit"
	"github.com/weir-es/weir/ops"
)

// relayedUpTo notes that the relay is at a position.
func (d *desk) relayedUpTo(at weir.Position) {
	d.t.Helper()
	was := map[weir.Shard]weir.Position{}
	for shard := range d.store.Shards() {
		was[weir.Shard(shard)] = 0
	}
	var b pgx.Batch
	d.store.QueueAdvance(&b, app.RelayConsumer, was, at)
	if err := d.store.Pool().SendBatch(testkit.Context(d.t), &b).Close(); err != nil {
		d.t.Fatal(err)
	}
}

// TestP2_RelayIsToldToPublishAgain, from a position or from a time, and says how much
// before it does so.
func TestP2_RelayIsToldToPublishAgain(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	out, _ := d.run(ops.Done, "relay", "-o", "json")
	like(t, out, `\{"position":0,"head":4,"lag_events":4\}\n`)
	d.relayedUpTo(4)
	out, _ = d.run(ops.Done, "relay")
	like(t, out, `POSITION +HEAD +LAG_EVENTS\n4 +4 +0\n`)

	_, errs := d.run(ops.Problem, "relay", "--from", "3")
	has(t, errs, "nothing was done: the relay publishes 2 events above position 2 once more", "--yes")
	out, _ = d.run(ops.Done, "relay", "--from", "3", "--yes", "-o", "json")
	like(t, out, fmt.Sprintf(`\{"after":2,"events":2,"shards":%d\}\n`, d.store.Shards()))
	out, _ = d.run(ops.Done, "relay", "--from", "4", "--yes", "-o", "json")
	like(t, out, `\{"after":3,"events":0,"shards":0\}\n`)
	d.sql("update weir.events set recorded_at = recorded_at - interval '1 hour' where position < 2")
	for place, after := range map[string]weir.Position{"30m": 1, "2h": 0, time.Now().Add(time.Hour).UTC().Format(time.RFC3339): 4} {
		d.sql("update weir.checkpoints set position = 4 where consumer = 'relay'")
		out, _ = d.run(ops.Done, "relay", "--from", place, "--yes", "-o", "json")
		var row ops.RelayedAgainRow
		if err := json.Unmarshal([]byte(out), &row); err != nil || row.After != after {
			t.Errorf("from %s: %+v, %v, want after %d", place, row, err, after)
		}
	}
	_, errs = d.run(ops.Unable, "relay", "--from", "yesterday")
	has(t, errs, "is no place")
}
