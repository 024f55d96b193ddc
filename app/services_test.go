package app_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/app"
	"github.com/weir-es/weir/internal/testkit"
)

// TestP4_OneServiceHandlesWhatAnotherCommits, each event once and in the order of its
// stream, while instances of both come and go.
func TestP4_OneServiceHandlesWhatAnotherCommits(t *testing.T) {
	t.Parallel()
	source := service(t)
	source.Inbox, source.Relay = soon, true
	sink := service(t)
	sink.Name, sink.Projections = "sink_of_"+source.Name[:min(len(source.Name), 30)], nil
	sink.Handlers = []app.Handler{{Name: "bookkeeping", From: source.Name,
		Handle: func(ctx context.Context, tx pgx.Tx, e weir.Event, value any) error {
			_, err := tx.Exec(ctx, "insert into handled (stream, version, guest) values ($1, $2, $3)", string(e.Stream), int64(e.Version), value.(held).Guest)
			return err
		}}}
	a, a2, b, b2 := open(t, source), open(t, source), open(t, sink), open(t, sink)
	alter(t, b, "create table public.handled (at bigserial, stream text, version bigint, guest text)")
	stopA, stopB := begin(t, a), begin(t, b)
	sent := 0
	send := func() {
		for n := range 30 {
			publish(t, a, weir.StreamID(fmt.Sprint("seat-", n%5)), fmt.Sprint(sent))
			sent++
		}
	}
	handled := func() (rows, distinct, disordered int) {
		row := b2.Store.Pool().QueryRow(testkit.Context(t), `
			select count(*), count(distinct (stream, version)), count(*) filter (where version <> n)
			  from (select *, row_number() over (partition by stream order by at) as n from public.handled) h`)
		if err := row.Scan(&rows, &distinct, &disordered); err != nil {
			t.Fatal(err)
		}
		return rows, distinct, disordered
	}
	all := func() {
		t.Helper()
		testkit.Await(t, 30*time.Second, "everything is handled", func() bool {
			_, distinct, _ := handled()
			return distinct == sent
		})
	}
	send()
	all()
	begin(t, a2)
	begin(t, b2)
	send()
	if err := stopB(); err != nil {
		t.Fatal(err)
	}
	send()
	all()
	send()
	if err := stopA(); err != nil {
		t.Fatal(err)
	}
	all()
	if rows, distinct, disordered := handled(); rows != sent || distinct != sent || disordered != 0 {
		t.Errorf("%d rows for %d of %d events, %d of them out of order", rows, distinct, sent, disordered)
	}
}
