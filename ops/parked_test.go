package ops_test

import (
	"testing"

	"github.com/weir-es/weir/ops"
)

// TestP8_ParkedStreamsAreListedAndReleased, by any program. (hatchet#2573: nobody could
// cancel or skip what was stuck)
func TestP8_ParkedStreamsAreListedAndReleased(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.program.Projections, d.program.Store.Types = nil, nil
	if out, _ := d.run(ops.Done, "parked"); out != "" {
		t.Errorf("parked: %s", out)
	}
	d.sql(`insert into weir.parked (consumer, stream_id, version, shard, reason, error, attempts)
		select c, id, 2, shard, 'poison', 'oops', 5 from weir.streams, unnest(array['notes', 'even']) c where name = 'n-1'`)
	out, _ := d.run(ops.Done, "parked")
	like(t, out, `CONSUMER +STREAM +VERSION +REASON +ATTEMPTS +ERROR
even +n-1 +2 +poison +5 +oops
notes +n-1 +2 +poison +5 +oops
`)
	out, _ = d.run(ops.Done, "parked", "list", "even", "-o", "json")
	like(t, out, `{"consumer":"even","stream":"n-1","version":2,"reason":"poison","attempts":5,"error":"oops"}
`)
	_, errs := d.run(ops.Unable, "parked", "retry", "notes")
	has(t, errs, "--all")
	_, errs = d.run(ops.Problem, "parked", "retry", "notes", "n-7")
	has(t, errs, "no such stream")
	out, _ = d.run(ops.Done, "parked", "retry", "notes", "n-1", "-o", "json")
	like(t, out, `{"consumer":"notes","stream":"n-1"}
`)
	d.run(ops.Done, "parked", "retry", "even", "--all")
	if out, _ := d.run(ops.Done, "parked"); out != "" {
		t.Errorf("still parked: %s", out)
	}
	var noted int
	if err := d.store.Pool().QueryRow(t.Context(), d.store.Qualify("select count(*) from weir.rewinding")).Scan(&noted); err != nil || noted != 2 {
		t.Errorf("%d are to be caught up with: %v", noted, err)
	}
}
