package ops_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/app"
	"github.com/weir-es/weir/eventstore"
	"github.com/weir-es/weir/internal/testkit"
	"github.com/weir-es/weir/ops"
	"github.com/weir-es/weir/projection"
)

// outgoing inserts a row for each event into a table without a key, so that what is
// handled twice shows.
var outgoing = projection.Handler{Name: "outgoing", Handle: func(ctx context.Context, tx pgx.Tx, e weir.Event, value any) error {
	_, err := tx.Exec(ctx, "insert into public.outgoing values ($1, $2)", string(e.Stream), value.(noted).N)
	return err
}}

// pair is two instances of an application, and its operator.
type pair struct {
	*desk
	apps []*app.App
}

func newPair(t *testing.T) *pair {
	t.Helper()
	ctx := testkit.Context(t)
	config := app.Config{Name: "pair_" + strings.ToLower(weir.NewID().String()), Postgres: testkit.Database(t), NATS: testkit.NATS(t),
		Types: noteTypes, MaxIngestBytes: 8 << 20, Shards: 8, Projections: []projection.Projection{notesView, evenView, outgoing}}
	p := &pair{desk: &desk{t: t}}
	for range 2 {
		a, err := app.New(ctx, config)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(a.Close)
		p.apps = append(p.apps, a)
	}
	p.store = p.apps[0].Store
	p.sql("create table public.outgoing (stream text, n int)")
	for _, a := range p.apps {
		run, stop := context.WithCancel(ctx)
		done := make(chan error, 1)
		go func() { done <- a.Run(run) }()
		t.Cleanup(func() {
			stop()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
	program, err := ops.Of(config)
	if err != nil {
		t.Fatal(err)
	}
	program.Name, program.Stdin, program.Stdout, program.Stderr = "desk ops", strings.NewReader(""), &p.out, &p.errs
	p.program = program
	return p
}

// shared waits until both hold a fair share of all nine leases, and lists them.
func (p *pair) shared() (rows []ops.ShardRow) {
	p.t.Helper()
	testkit.Await(p.t, 20*time.Second, "two instances share nine leases", func() bool {
		var err error
		if rows, err = ops.Shards(testkit.Context(p.t), p.store); err != nil {
			p.t.Fatal(err)
		}
		held := map[weir.ID]int{}
		for _, r := range rows {
			held[r.Owner]++
		}
		return len(rows) == 9 && len(held) == 2 && held[weir.ID{}] == 0 && min(held[rows[1].Owner], 4) == 4
	})
	return rows
}

// TestP7_ReleaseLosesAndDoublesNothing: leases are taken from two instances again and
// again, in all ways, while facts come in; afterwards every fact is stored, folded and
// handled once.
func TestP7_ReleaseLosesAndDoublesNothing(t *testing.T) {
	t.Parallel()
	ctx := testkit.Context(t)
	p := newPair(t)
	before := p.shared()

	const streams = 6
	done, sent := make(chan struct{}), make(chan int)
	go func() {
		for n := 1; ; n++ {
			for i := range streams {
				if err := p.apps[n%2].Publish(ctx, weir.StreamID(fmt.Sprintf("n-%d", i)), noted{n}); err != nil {
					t.Error(err)
				}
			}
			select {
			case <-done:
				sent <- n
				return
			default:
			}
		}
	}()
	released := 0
	for range 3 {
		for _, choice := range [][]string{{"--all"}, {"--instance", "OWNER"}, {"--scope", "shards", "--shard", "2", "--shard", "5"}, {"--scope", "view:even"}} {
			rows := p.shared()
			owner := rows[1].Owner.String()
			if choice[0] == "--instance" {
				choice[1] = strings.ToLower(owner[len(owner)-8:])
			}
			out, _ := p.run(ops.Done, append([]string{"shards", "release", "--yes", "-o", "json"}, choice...)...)
			lines := strings.Split(strings.TrimSpace(out), "\n")
			var one ops.ReleasedShardRow
			if err := json.Unmarshal([]byte(lines[0]), &one); err != nil || one.Epoch == 0 || one.Owner == (weir.ID{}) {
				t.Errorf("%v released %s: %v", choice, lines[0], err)
			}
			released += len(lines)
		}
	}
	after := p.shared()
	close(done)
	n := <-sent
	for _, a := range p.apps {
		if err := a.Settle(ctx); err != nil {
			t.Fatal(err)
		}
	}
	for i := range streams {
		got, err := notesView.Get(ctx, p.store, fmt.Sprintf("n-%d", i))
		if err != nil || !slices.Equal(got.Seen, upTo(n)) {
			t.Errorf("of %d facts n-%d has %v: %v", n, i, got.Seen, err)
		}
	}
	p.count("select count(*) from weir.events", streams*n)
	p.count("select count(*) from public.outgoing", streams*n)
	p.count("select count(*) from (select distinct * from public.outgoing) o", streams*n)
	even, _ := evenView.Get(ctx, p.store, "even")
	odd, _ := evenView.Get(ctx, p.store, "odd")
	if got := len(even.Seen) + len(odd.Seen); got != streams*n {
		t.Errorf("the view of the whole log has %d events of %d", got, streams*n)
	}
	moved := int64(0)
	for i := range after {
		moved += after[i].Epoch - before[i].Epoch
	}
	if released < 3*9 || moved < 2*int64(released) {
		t.Errorf("%d releases, and %d new epochs", released, moved)
	}
	t.Logf("%d facts, %d releases, %d new epochs", streams*n, released, moved)
}

func upTo(n int) (all []int) {
	for i := range n {
		all = append(all, i+1)
	}
	return all
}

func (p *pair) count(query string, want int) {
	p.t.Helper()
	var got int
	if err := p.store.Pool().QueryRow(testkit.Context(p.t), p.store.Qualify(query)).Scan(&got); err != nil || got != want {
		p.t.Errorf("%s: %d, want %d: %v", query, got, want, err)
	}
}

// TestShardsAreListed for people and for programs, and released by nobody's mistake.
func TestShardsAreListed(t *testing.T) {
	t.Parallel()
	ctx := testkit.Context(t)
	d := &desk{t: t, store: testkit.Store(t, eventstore.Config{Schema: "shards", Shards: 2})}
	d.program = ops.Program{Name: "weir", Stdin: strings.NewReader(""), Stdout: &d.out, Stderr: &d.errs,
		Store: eventstore.Config{Pool: d.store.Pool(), Schema: "shards"}}
	out, errs := d.run(ops.Done, "shards")
	if out != "" || !strings.Contains(errs, "has no leases yet") {
		t.Errorf("%q, %q", out, errs)
	}
	instance := d.store.Join("boxoffice")
	t.Cleanup(func() { instance.Disconnect(context.Background()) })
	if _, err := instance.Heartbeat(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := instance.Claim(ctx, "shards", []weir.Shard{0, 1}); err != nil {
		t.Fatal(err)
	}
	id := instance.ID().String()
	short := id[len(id)-8:]
	d.sql("update weir.leases set owner = null, taken_at = null where shard = 1")
	d.sql("update weir.instances set heartbeat_at = clock_timestamp() - interval '75 s'")
	const head = `SCOPE +SHARD +OWNER +EPOCH +TAKEN +HEARTBEAT +LAG_EVENTS +LAG_SECONDS +SLOWEST\n`
	out, _ = d.run(ops.Done, "shards")
	like(t, out, head+`shards +0 +boxoffice `+short+` +1 +[\d.]+m?s +1m1\ds \(stale\) +0 +0\nshards +1 +nobody +1 +0 +0\n`)
	out, _ = d.run(ops.Done, "shards", "-o", "json")
	like(t, out, `{"scope":"shards","shard":0,"owner":"`+id+`","name":"boxoffice","epoch":1,"taken_seconds":[\d.]+,"heartbeat_seconds":7\d[\d.]*,"stale":true,"lag_events":0,"lag_seconds":0}
{"scope":"shards","shard":1,"epoch":1,"stale":false,"lag_events":0,"lag_seconds":0}
`)
	refuse := func(status int, says string, args ...string) {
		t.Helper()
		out, errs := d.run(status, append([]string{"shards", "release"}, args...)...)
		if out != "" || !strings.Contains(errs, says) {
			t.Errorf("%v: %q, %q", args, out, errs)
		}
	}
	refuse(ops.Unable, "say which leases")
	refuse(ops.Problem, "nobody holds one of these", "--shard", "1", "--yes")
	refuse(ops.Problem, "nobody holds one of these", "--instance", "00000000", "--yes")
	refuse(ops.Problem, "nothing was done: releasing 1 leases takes them from boxoffice "+short, "--all")
	if held, err := d.store.Leases(ctx); err != nil || held[0].Epoch != 1 || held[0].Owner != instance.ID() {
		t.Errorf("what nobody agreed to was done: %+v, %v", held, err)
	}
	out, errs = d.run(ops.Done, "shards", "release", "--instance", short, "--yes", "-o", "json")
	if !strings.HasPrefix(errs, "releasing 1 leases") {
		t.Error(errs)
	}
	like(t, out, `{"scope":"shards","shard":0,"released_from":"`+id+`","name":"boxoffice","epoch":2}`+"\n")

	other := d.store.Join("boxoffice")
	t.Cleanup(func() { other.Disconnect(context.Background()) })
	for i, owner := range []*eventstore.Instance{instance, other} {
		if _, err := owner.Claim(ctx, "shards", []weir.Shard{weir.Shard(i)}); err != nil {
			t.Fatal(err)
		}
	}
	d.sql("update weir.leases set owner = format('%s0000000-0000-0000-0000-0000000000ff', shard + 1)::uuid")
	refuse(ops.Problem, "the ids of 2 instances end in", "--instance", "z", "--yes")
	d.sql("update weir.leases set owner = case shard when 0 then $1::uuid else $2::uuid end", [16]byte(instance.ID()), [16]byte(other.ID()))
	if _, err := ops.ReleaseShards(ctx, d.store, ops.ReleaseOptions{}); err == nil {
		t.Error("it released what nobody chose")
	}
	rows, err := ops.ReleaseShards(ctx, d.store, ops.ReleaseOptions{All: true})
	if err != nil || len(rows) != 2 || rows[0].Owner != instance.ID() || rows[1].Owner != other.ID() {
		t.Errorf("%+v, %v", rows, err)
	}
	if _, err := ops.ReleaseShards(ctx, d.store, ops.ReleaseOptions{All: true}); !errors.Is(err, weir.ErrNotFound) {
		t.Errorf("there was nothing left, and it said %v", err)
	}
}
