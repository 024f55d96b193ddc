package eventstore_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/eventstore"
	"github.com/weir-es/weir/internal/testkit"
)

// impatient makes a look at what is held short.
var impatient = eventstore.Checkup{Patience: 100 * time.Millisecond}

// examined is what Doctor found, by check.
func examined(t testing.TB, s *eventstore.Store, c eventstore.Checkup) map[string]eventstore.Finding {
	t.Helper()
	findings, err := s.Doctor(testkit.Context(t), c)
	if err != nil {
		t.Fatal(err)
	}
	by := map[string]eventstore.Finding{}
	for _, f := range findings {
		by[f.Check] = f
	}
	return by
}

// wantFault expects check and no other to have found something with want in its
// details, and something to do.
func wantFault(t testing.TB, found map[string]eventstore.Finding, check, want string) {
	t.Helper()
	for name, f := range found {
		if name != check && !f.OK {
			t.Errorf("%s is blamed too: %+v", name, f)
		}
	}
	f := found[check]
	if f.OK || f.Todo == "" || !strings.Contains(f.Found+"\n"+strings.Join(f.Details, "\n"), want) {
		t.Errorf("%s says %+v, want something with %q", check, f, want)
	}
}

// furnished is a store with some of everything, and a view that read it all.
func furnished(t testing.TB) *eventstore.Store {
	t.Helper()
	s, err := eventstore.Open(testkit.Context(t), eventstore.Config{URL: testkit.Database(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close) // Run would not survive what is done to it
	for _, stream := range []weir.StreamID{"seat-A1", "seat-A2", "guest-Ada"} {
		if _, err := s.Append(testkit.Context(t), stream, weir.NewStream, messages(stream, 5)...); err != nil {
			t.Fatal(err)
		}
	}
	for _, sql := range []string{
		"create table weir.view_house (key text collate \"C\" primary key, state jsonb, version bigint, event_id uuid, position bigint, updated_at timestamptz)",
		"insert into weir.view_house (key, state, version, position) values ('seat-A1', '{}', 5, 5), ('seat-A2', '{}', 3, 8), ('guest-Ada', null, null, null)",
		"insert into weir.checkpoints (consumer, shard, position) select 'house', s, 14 from generate_series(0, 31) s",
	} {
		if _, err := s.Pool().Exec(testkit.Context(t), sql); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// TestDoctorFindsNothing where nothing is wrong.
func TestDoctorFindsNothing(t *testing.T) {
	t.Parallel()
	empty := testkit.Store(t, eventstore.Config{})
	for _, s := range []*eventstore.Store{empty, furnished(t)} {
		for _, full := range []bool{false, true} {
			findings, err := s.Doctor(testkit.Context(t), eventstore.Checkup{Full: full})
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range findings {
				if !f.OK || f.Found == "" || f.Todo != "" {
					t.Errorf("full %t: %+v", full, f)
				}
			}
			if len(findings) != 11 {
				t.Errorf("%d checks", len(findings))
			}
		}
	}
}

// TestDoctorFindsDamage that somebody with psql did, each blamed on the right thing.
// (spatie#170: uniqueness that nobody checked)
func TestDoctorFindsDamage(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ damage, check, want string }{
		"first event deleted":  {"delete from weir.events where position = 1", "streams", "seat-A1: version 1 is missing"},
		"middle event deleted": {"delete from weir.events where position = 7", "streams", "seat-A2: version 2 is missing, the stream is at 5"},
		"last event deleted":   {"delete from weir.events where position = 15", "streams", "guest-Ada: version 5 is missing"},
		"stream emptied":       {"delete from weir.events where position between 6 and 10; delete from weir.view_house", "streams", "seat-A2: version 1 is missing"},
		"head moved back":      {"update weir.streams set version = 4 where name = 'seat-A1'", "streams", "seat-A1: version 5 exists, but the stream is at 4"},
		"head moved on":        {"update weir.streams set version = 7 where name = 'guest-Ada'", "streams", "guest-Ada: version 6 is missing, the stream is at 7"},
		"stream deleted":       {"delete from weir.streams where name = 'guest-Ada'", "streams", "position 11 belongs to no stream"},
		"order in the log": {"update weir.events set position = 1000 - position where position between 11 and 15; " +
			"select setval('weir.position', 1000); update weir.checkpoints set position = 989", "streams", "guest-Ada: version 2 lies before version 1"},
		"id twice": {"alter table weir.events drop constraint events_event_id; alter table weir.events add constraint events_event_id unique (event_id, position); " +
			"update weir.events set event_id = (select event_id from weir.events where position = 1) where position = 2", "ids", "0"},
		"version twice": {"alter table weir.events drop constraint events_stream_version; alter table weir.events add constraint events_stream_version primary key (stream_id, version, position); " +
			"alter table weir.events disable trigger all; " +
			"insert into weir.events (stream_id, version, event_id, shard, type, data) select stream_id, 1, gen_random_uuid(), shard, type, data from weir.events where position = 1; " +
			"alter table weir.events enable trigger all", "streams", "seat-A1: version 1 is there more than once"},
		"constraint dropped": {"alter table weir.events drop constraint events_event_id", "schema", "events_event_id"},
		"trigger off":        {"alter table weir.events disable trigger all", "schema", "events_require_registration"},
		"sequence behind":    {"select setval('weir.position', 14)", "sequence", "drawn is 14, the last one stored 15"},
		"checkpoint ahead":   {"update weir.checkpoints set position = 16 where shard = 3", "checkpoints", "house is at position 16, the log is complete up to 15"},
		"row ahead":          {"update weir.view_house set version = 6 where key = 'seat-A2'", "views", `house: row "seat-A2" is at version 6, its stream at 5`},
		"row too late":       {"update weir.view_house set position = 9 where key = 'seat-A2'", "views", `"seat-A2" is at version 3`},
		"row of nothing":     {"insert into weir.view_house (key, version) values ('seat-B7', 1)", "views", `row "seat-B7" has no stream`},
		"stream parked": {"insert into weir.parked (consumer, stream_id, version, shard, reason, error, attempts) select 'house', id, 4, shard, 'poison', 'oops', 5 from weir.streams where name = 'seat-A1'",
			"parked", "house stopped at version 4 of seat-A1 after 5 tries"},
		"dead letter": {"insert into weir.dead_letters (digest, reason, error, subject, header, data) values ('x', 'serialization', 'no JSON', 's', '', '')", "dead_letters", "1 because of serialization"},
		"dead owner": {"insert into weir.instances values (gen_random_uuid(), 'boxoffice', now(), now() - interval '1 minute'); " +
			"insert into weir.leases (scope, shard, owner) select 'shards', n, id from generate_series(0, 2) n, weir.instances", "leases", "shards: 3 of 3"},
		"unknown owner": {"insert into weir.leases (scope, shard, owner) values ('shards', 0, gen_random_uuid()), ('shards', 1, null)", "leases", "shards: 1 of 2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := furnished(t)
			if _, err := s.Pool().Exec(testkit.Context(t), c.damage, pgx.QueryExecModeSimpleProtocol); err != nil {
				t.Fatal(err)
			}
			for _, full := range []bool{false, true} {
				found := examined(t, s, eventstore.Checkup{Full: full, Patience: time.Millisecond})
				if name == "id twice" || name == "version twice" || name == "constraint dropped" {
					found["schema"] = eventstore.Finding{OK: true} // the guard had to go first
					if name == "constraint dropped" {
						found["schema"] = examined(t, s, impatient)["schema"]
					}
				}
				wantFault(t, found, c.check, c.want)
			}
		})
	}
}

// TestDoctorLooksAtTheEndOfALongLog unless it is told to look at all.
func TestDoctorLooksAtTheEndOfALongLog(t *testing.T) {
	t.Parallel()
	s := furnished(t)
	exec(t, s, "delete from weir.events where position = 3")
	exec(t, s, "select setval('weir.position', 300000)")
	appendOne(t, s, "seat-A3")
	if f := examined(t, s, impatient)["streams"]; !f.OK || !strings.Contains(f.Found, "from position 200002 to 300001") {
		t.Errorf("the end: %+v", f)
	}
	wantFault(t, examined(t, s, eventstore.Checkup{Full: true}), "streams", "seat-A1: version 3 is missing")
}

// TestDoctorNamesAtMostTwenty of a thousand faults.
func TestDoctorNamesAtMostTwenty(t *testing.T) {
	t.Parallel()
	s := testkit.Store(t, eventstore.Config{})
	for n := range 30 {
		stream := weir.Stream("seat", fmt.Sprint(n))
		if _, err := s.Append(testkit.Context(t), stream, weir.NewStream, messages(stream, 3)...); err != nil {
			t.Fatal(err)
		}
	}
	exec(t, s, "delete from weir.events where version = 2")
	if f := examined(t, s, impatient)["streams"]; len(f.Details) != 20 || !strings.Contains(f.Found, "perhaps more") {
		t.Errorf("%d details: %s", len(f.Details), f.Found)
	}
}

// TestDoctorNamesWhoHoldsTheHorizon: a session, by its pid, and a prepared
// transaction, by the command that ends it. Appends that end in time are nobody's
// fault.
// (watermill-sql's AckDeadline: nobody saw the oldest transaction)
func TestDoctorNamesWhoHoldsTheHorizon(t *testing.T) {
	t.Parallel()
	s := furnished(t)
	tx, _ := opened(t, s, message("seat-A1", 1))
	var pid int
	if err := tx.QueryRow(testkit.Context(t), "select pg_backend_pid()").Scan(&pid); err != nil {
		t.Fatal(err)
	}
	wantFault(t, examined(t, s, impatient), "horizon", fmt.Sprintf("pid %d, application", pid))
	appendOne(t, s, "seat-A2") // now there is something to hold back
	found := examined(t, s, impatient)
	wantFault(t, found, "horizon", fmt.Sprintf("pid %d, application", pid))
	if todo := found["horizon"].Todo; !strings.Contains(todo, fmt.Sprintf("pg_terminate_backend(%d)", pid)) {
		t.Error(todo)
	}
	end(t, tx.Commit)
	if f := examined(t, s, impatient)["horizon"]; !f.OK {
		t.Errorf("after its end: %+v", f)
	}
}

// TestDoctorNamesThePreparedTransaction, also when the session that prepared it
// goes on with something else.
func TestDoctorNamesThePreparedTransaction(t *testing.T) {
	t.Parallel()
	s := furnished(t)
	ctx := testkit.Context(t)
	gid := "it's " + weir.NewID().String()
	quoted := "'" + strings.ReplaceAll(gid, "'", "''") + "'"
	tx, _ := opened(t, s, message("seat-A1", 1))
	if _, err := tx.Exec(ctx, "prepare transaction "+quoted); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Pool().Exec(context.Background(), "rollback prepared "+quoted) })
	appendOne(t, s, "seat-A2")
	found := examined(t, s, impatient)
	wantFault(t, found, "horizon", fmt.Sprintf("prepared transaction %q", gid))
	_, command, _ := strings.Cut(found["horizon"].Todo, "given up: ")
	exec(t, s, command)
	if f := examined(t, s, impatient)["horizon"]; !f.OK {
		t.Errorf("after %s: %+v", command, f)
	}
}

// TestDoctorSaysWhenTheLogWentBack under a program that knew more of it.
func TestDoctorSaysWhenTheLogWentBack(t *testing.T) {
	t.Parallel()
	s := furnished(t)
	examined(t, s, impatient)
	exec(t, s, "delete from weir.events where position > 10")
	exec(t, s, "select setval('weir.position', 10)")
	if f := examined(t, s, impatient)["horizon"]; f.OK || !strings.Contains(f.Found, "went back from position 15 to 10") {
		t.Errorf("%+v", f)
	}
}

// TestDoctorWaitsForWhatEnds: an append that is open at the first look and ended
// before patience did is no problem.
func TestDoctorWaitsForWhatEnds(t *testing.T) {
	t.Parallel()
	for _, holdsBack := range []bool{false, true} {
		t.Run(fmt.Sprint("events behind it ", holdsBack), func(t *testing.T) {
			t.Parallel()
			s := furnished(t)
			tx, _ := opened(t, s, message("seat-A1", 1))
			if holdsBack {
				appendOne(t, s, "seat-A2")
			}
			done := make(chan eventstore.Finding)
			go func() { done <- examined(t, s, eventstore.Checkup{Patience: time.Minute})["horizon"] }()
			testkit.Await(t, 10*time.Second, "the doctor has looked", func() bool {
				return scalar[int](t, s, "select count(*) from pg_stat_activity where datname = current_database() and query like '-- Who is in flight%' and state = 'idle'") > 0
			})
			end(t, tx.Commit)
			if f := <-done; !f.OK {
				t.Errorf("%+v", f)
			}
		})
	}
}

// TestDoctorTellsWhoLives and who does not, by the clock of the database.
func TestDoctorTellsWhoLives(t *testing.T) {
	t.Parallel()
	s := furnished(t)
	alive := join(t, s, "boxoffice")
	claim(t, alive, 3)
	exec(t, s, "insert into weir.instances values (gen_random_uuid(), 'cellar', now(), now() - interval '1 minute')")
	f := examined(t, s, impatient)["instances"]
	if !f.OK || !strings.HasPrefix(f.Found, "1 alive, 1 ended") || len(f.Details) != 1 ||
		!strings.HasPrefix(f.Details[0], "boxoffice "+alive.ID().String()) || !strings.HasSuffix(f.Details[0], "3 leases") {
		t.Errorf("%+v", f)
	}
	join(t, s, "kitchen")
	if f := examined(t, s, impatient)["instances"]; f.OK || !strings.Contains(f.Todo, "a schema of its own") {
		t.Errorf("with two services on one schema: %+v", f)
	}
}

// TestDoctorKeepsSecrets of the statements of others.
func TestDoctorKeepsSecrets(t *testing.T) {
	t.Parallel()
	s := furnished(t)
	tx, _ := opened(t, s, message("seat-A1", 1))
	if _, err := tx.Exec(testkit.Context(t), "select 'PassWord s3cr3t'"); err != nil {
		t.Fatal(err)
	}
	if f := examined(t, s, impatient)["horizon"]; strings.Contains(fmt.Sprint(f), "s3cr3t") || !strings.Contains(fmt.Sprint(f), "(not shown)") {
		t.Errorf("%+v", f)
	}
}

// TestDoctorSaysWhatItMayNotSee, and looks at the rest.
func TestDoctorSaysWhatItMayNotSee(t *testing.T) {
	t.Parallel()
	ctx := testkit.Context(t)
	admin := furnished(t)
	role := "blind_" + strings.ToLower(weir.NewID().String())
	for _, sql := range []string{
		"create role " + role + " login password 'secret'",
		"grant usage on schema weir to " + role,
		"grant select on all tables in schema weir to " + role,
		"grant select on all sequences in schema weir to " + role,
		"revoke select on weir.dead_letters from " + role,
	} {
		exec(t, admin, sql)
	}
	tx, _ := opened(t, admin, message("seat-A1", 1))
	s := testkit.Store(t, eventstore.Config{URL: withUser(t, admin.Pool().Config().ConnString(), role, "secret"), NoMigrate: true})
	findings, err := s.Doctor(ctx, impatient)
	if err == nil || !strings.Contains(err.Error(), "permission denied") {
		t.Errorf("error %v", err)
	}
	ok := 0
	for _, f := range findings {
		switch {
		case f.OK:
			ok++
		case f.Check == "dead_letters" && strings.HasPrefix(f.Found, "could not look"):
		case f.Check == "horizon" && strings.Contains(fmt.Sprint(f.Details), "pid "):
		default:
			t.Errorf("%+v", f)
		}
	}
	if ok != 9 {
		t.Errorf("%d of 11 checks are fine", ok)
	}
	end(t, tx.Rollback)
}
