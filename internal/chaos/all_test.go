package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/internal/testkit"
)

// spoils are things that must not be, done to the tables of a good day, and what the
// checker has to say about each.
var spoils = []struct{ name, sql, want string }{
	{"a lost fact", `delete from weir.events where position = (select max(position) from weir.events where type = 'chaos.said')`, "was published, and is not stored"},
	{"a lost append", `delete from weir.events where position = (select max(position) from weir.events where type = 'chaos.moved')`, "was appended, and is not stored"},
	{"a handler row that is doubled", `insert into chaos_entries select * from chaos_entries limit 1`, "the handler ran 2 times"},
	{"a handler row that is missing", `delete from chaos_entries where event_id = (select event_id from chaos_entries limit 1)`, "the handler ran 0 times"},
	{"a handler row of nothing", `insert into chaos_entries select gen_random_uuid(), stream, version, position, shard, writer, owner, epoch from chaos_entries limit 1`, "is not stored"},
	{"a wrong fold", `update weir.view_ordered set state = jsonb_set(state, '{hash}', '"00"') where key = 'topic-01'`, "of view ordered is"},
	{"a wrong count", `update weir.view_count set state = jsonb_set(state, '{count}', '1') where key = 'account-01'`, "of view count is"},
	{"a wrong row of many streams", `update weir.view_grouped set version = version + 1 where key = 'accounts-1'`, "of view grouped has seen"},
	{"a wrong inline row", `update weir.view_balance set event_id = gen_random_uuid() where key = 'topic-02'`, "of view balance has seen"},
	{"a missing row", `delete from weir.view_ordered where key = 'topic-03'`, "is missing"},
	{"a row of nothing", `update weir.view_ordered set key = 'topic-none' where key = 'topic-03'`, "is of no event"},
	{"a broken sum", `update weir.events set data = '{"amount": 7, "transfer": "x"}' where position = (select max(position) from weir.events where type = 'chaos.moved')`, "of money"},
	{"a broken sum of balances", `update weir.view_balance set state = jsonb_set(state, '{sum}', '1') where key = 'account-02'`, "the view of balances shows"},
	{"an account below zero", `update weir.events set data = '{"amount": -1000000, "transfer": "x"}' where position = (select max(position) from weir.events where type = 'chaos.moved')`, "is at -"},
	{"a gap of versions", `update weir.events set version = version + 7 where position = (select max(position) from weir.events)`, "is version"},
	{"a head that is ahead", `update weir.streams set version = version + 1 where name = 'topic-04'`, "its last event at"},
	{"two processes under one epoch", `update chaos_entries set writer = 'nobody' where event_id = (select (array_agg(event_id))[1] from chaos_entries group by shard, epoch having count(*) > 1 limit 1)`, "have both written for shard"},
	{"two owners of one epoch", `insert into chaos_leases (scope, shard, owner, epoch) select scope, shard, gen_random_uuid(), epoch from chaos_leases where owner is not null limit 1`, "has two owners under epoch"},
	{"an epoch that is not the writer's", `update chaos_entries set epoch = epoch + 1000 where event_id = (select event_id from chaos_entries limit 1)`, "which is noted as that of"},
	{"a parked stream", `insert into weir.parked values ('count', 1, 1, 1, 'poison', 'no', 5)`, "is parked"},
	{"a rewind without an end", `insert into weir.rewinding values ('ordered', 1, 1, 1)`, "still rewinds"},
	{"a dead letter", `insert into weir.dead_letters (digest, reason, error, subject, header, data) values ('x', 'poison', 'no', 's', '', '')`, "became a dead letter"},
	{"a consumer that is behind", `update weir.checkpoints set position = 1 where consumer = 'entries'`, "entries is at position 1"},
	{"the same of the whole log", `update weir.checkpoints set position = 1 where consumer = 'grouped'`, "grouped is at"},
}

// TestP4_WhateverFailsEveryReadModelIsItsFold is a short bad day; make chaos has long
// ones. Then it spoils the tables that came out, in every way that the checker is for,
// and the checker notices each.
func TestP4_WhateverFailsEveryReadModelIsItsFold(t *testing.T) {
	o, err := parse(strings.Fields("-run all -instances 2 -seed 76 -seconds 10"))
	if err != nil {
		t.Fatal(err)
	}
	ctx := testkit.Context(t)
	out, err := playAll(ctx, o, func(d *day) error {
		for _, s := range spoils {
			t.Run(s.name, func(t *testing.T) { d.spoil(ctx, t, s.sql, s.want) })
		}
		t.Run("a refused append that is stored", func(t *testing.T) { d.storeRefused(ctx, t) })
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if out.Violations != 0 || out.complaint() != nil {
		t.Errorf("%v", out.complaint())
	}
	if out.Events < 300 || out.Faults["total"] < 5 {
		t.Errorf("%d events and %v faults are no bad day", out.Events, out.Faults)
	}
}

// spoil does something to the tables, asks the checker, and undoes it.
func (d *day) spoil(ctx context.Context, t *testing.T, sql, want string) {
	promises, err := readJournals(d.dir)
	if err != nil {
		t.Fatal(err)
	}
	err = d.ask(ctx, func(conn *pgx.Conn) error {
		tx, err := conn.Begin(ctx)
		if err != nil {
			return err
		}
		defer tx.Rollback(ctx)
		tag, err := tx.Exec(ctx, sql)
		if err != nil || tag.RowsAffected() == 0 {
			return fmt.Errorf("it changed %d rows: %w", tag.RowsAffected(), err)
		}
		found, err := readTables(ctx, tx)
		if err != nil {
			return err
		}
		wantFinding(t, check(found, promises), want)
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func wantFinding(t *testing.T, f *findings, want string) {
	t.Helper()
	if f.count == 0 || !slices.ContainsFunc(f.named, func(text string) bool { return strings.Contains(text, want) }) {
		t.Errorf("%d findings, none with %q: %q", f.count, want, f.named)
	}
}

func (d *day) storeRefused(ctx context.Context, t *testing.T) {
	err := d.ask(ctx, func(conn *pgx.Conn) error {
		found, err := readTables(ctx, conn)
		if err == nil {
			wantFinding(t, check(found, map[string][]weir.ID{"refused": {found.events[0].id}}), "was refused for a conflict, and is stored")
			found.events = append(found.events, found.events[0])
			wantFinding(t, check(found, nil), "is stored twice")
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// TestP7_AnOwnerThatWasStoppedWritesNothing: it is stopped for 15 s inside the
// transaction in which it applies an event.
func TestP7_AnOwnerThatWasStoppedWritesNothing(t *testing.T) {
	var out bytes.Buffer
	if err := run(testkit.Context(t), strings.Fields("-run zombie -instances 2 -seed 1 -json"), &out); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	var r revenant
	if err := json.Unmarshal(out.Bytes(), &r); err != nil || r.Refusal == "" || r.Faults["stopped"] != 1 {
		t.Errorf("%v: %s", err, out.String())
	}
}

// TestTheSameSeedHasTheSameFaults, and every kind of them within a minute or two.
func TestTheSameSeedHasTheSameFaults(t *testing.T) {
	one, same, other := schedule(3, time.Minute, 4, 11), schedule(3, time.Minute, 4, 11), schedule(4, time.Minute, 4, 11)
	if !slices.Equal(one, same) || slices.Equal(one, other) {
		t.Error("a schedule does not follow from its seed")
	}
	if len(one) < 25 {
		t.Errorf("%d faults in a minute", len(one))
	}
	seen := map[mishap]bool{}
	for _, f := range schedule(3, 2*time.Minute, 4, 11) {
		seen[f.what] = true
		if f.what == stopped && (f.length < 6*time.Second || f.length > 12*time.Second) {
			t.Errorf("%s is not longer than a lease, or for too long", f)
		}
		if f.whom < 0 || f.whom >= 11 || !isOfLink(f.what) && f.whom >= 4 {
			t.Errorf("%s: there is no such", f)
		}
	}
	if len(seen) != len(weights) {
		t.Errorf("in two minutes there are only %v", seen)
	}
}

// echo is a server that says what it is told.
func echo(t *testing.T) string {
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	go func() {
		for {
			conn, err := server.Accept()
			if err != nil {
				return
			}
			go func() { io.Copy(conn, conn); conn.Close() }()
		}
	}()
	return server.Addr().String()
}

// TestLinksHaveWeather: what each kind of it does to a connection.
func TestLinksHaveWeather(t *testing.T) {
	l, err := newLink("to the echo", echo(t))
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()
	conn := call(t, l)
	if took, err := shout(conn, time.Minute); err != nil {
		t.Fatalf("in good weather: %v after %s", err, took)
	}
	l.set(weather{delay: 50 * time.Millisecond})
	if took, err := shout(conn, time.Minute); err != nil || took < 100*time.Millisecond {
		t.Errorf("a delay of 50 ms each way: %v after %s", err, took)
	}
	for direction := range 2 {
		var w weather
		w.stalled[direction] = true
		l.set(w)
		if _, err := shout(conn, 50*time.Millisecond); !isTimeout(err) {
			t.Errorf("direction %d stalls: %v", direction, err)
		}
		l.set(weather{})
		conn.SetReadDeadline(time.Now().Add(time.Minute))
		if _, err := io.ReadFull(conn, make([]byte, 4)); err != nil {
			t.Errorf("what was on its way does not arrive: %v", err)
		}
	}
	l.set(weather{cut: true})
	if _, err := shout(conn, time.Minute); err == nil || isTimeout(err) {
		t.Errorf("an open connection is not cut: %v", err)
	}
	if _, err := shout(call(t, l), time.Minute); err == nil || isTimeout(err) {
		t.Errorf("a new connection is not cut: %v", err)
	}
	l.set(weather{})
	if _, err := shout(call(t, l), time.Minute); err != nil {
		t.Errorf("in good weather again: %v", err)
	}
}

func call(t *testing.T, l *link) net.Conn {
	conn, err := net.Dial("tcp", l.address())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// shout says four bytes and waits for them to come back.
func shout(conn net.Conn, limit time.Duration) (time.Duration, error) {
	began := time.Now()
	conn.SetDeadline(began.Add(limit))
	if _, err := conn.Write([]byte("weir")); err != nil {
		return 0, err
	}
	_, err := io.ReadFull(conn, make([]byte, 4))
	return time.Since(began), err
}

func isTimeout(err error) bool {
	var network net.Error
	return errors.As(err, &network) && network.Timeout()
}

// TestAJournalCutShort keeps what was said before.
func TestAJournalCutShort(t *testing.T) {
	dir := t.TempDir()
	j, err := openJournal(dir + "/one.journal")
	if err != nil {
		t.Fatal(err)
	}
	id := weir.NewID()
	if err := errors.Join(j.note("published", id), j.note("appended", id, id)); err != nil {
		t.Fatal(err)
	}
	if _, err := j.file.WriteString(`{"what":"published","ids":["01`); err != nil {
		t.Fatal(err)
	}
	got, err := readJournals(dir)
	if err != nil || len(got["published"]) != 1 || len(got["appended"]) != 2 {
		t.Errorf("%v, %v", got, err)
	}
}

func TestFailoverIsSlowOrFast(t *testing.T) {
	for _, c := range []struct {
		took time.Duration
		bad  int
	}{{5 * time.Second, 0}, {11 * time.Second, 1}, {0, 1}} {
		h := &handover{}
		h.within("SIGKILL", failoverOf([]time.Duration{c.took}), maxAfterKill)
		if h.Violations != c.bad || (h.complaint() == nil) != (c.bad == 0) {
			t.Errorf("%s: %d violations", c.took, h.Violations)
		}
	}
}
