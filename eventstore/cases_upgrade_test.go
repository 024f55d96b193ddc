package eventstore_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/eventstore"
	"github.com/weir-es/weir/internal/testkit"
)

// oldProgram writes to the stream seat-A1 as a program does that was started before
// the schema changed: on its own connection, statement by statement.
type oldProgram struct {
	t    *testing.T
	conn *pgx.Conn
	sql  map[string]string

	lock    int32
	table   string
	version int64
	wrote   []weir.Position
}

func newOldProgram(t *testing.T, url string) *oldProgram {
	t.Helper()
	p := &oldProgram{t: t, sql: map[string]string{}, version: 1}
	for _, name := range []string{"register", "insert_events", "advance_streams"} {
		text, err := os.ReadFile("sql/" + name + ".sql")
		if err != nil {
			t.Fatal(err)
		}
		p.sql[name] = string(text)
	}
	var err error
	if p.conn, err = pgx.Connect(testkit.Context(t), url); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.conn.Close(context.Background()) })
	if err := p.conn.QueryRow(testkit.Context(t), "select 'weir'::regnamespace::oid::int4, 'weir.events'::regclass::oid::text").Scan(&p.lock, &p.table); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *oldProgram) append() {
	data, id := "{}", weir.NewID()
	var position weir.Position
	var b pgx.Batch
	b.Queue("begin isolation level read committed")
	b.Queue(p.sql["register"], p.lock, p.table)
	b.Queue(p.sql["insert_events"], []int64{1}, []int64{p.version + 1}, [][16]byte{id}, []*[16]byte{nil},
		[]int16{3}, []string{"seat.held"}, []*string{&data}, [][]byte{nil}, []*string{nil}, []*string{nil}).
		QueryRow(func(row pgx.Row) error { return row.Scan(&position) })
	b.Queue(p.sql["advance_streams"], []int64{1}, []int64{p.version + 1}, [][16]byte{id})
	b.Queue("commit")
	if err := p.conn.SendBatch(testkit.Context(p.t), &b).Close(); err != nil {
		p.t.Errorf("the old program: %v", err)
		return
	}
	p.version++
	p.wrote = append(p.wrote, position)
}

// TestP6_OldProgramBesideANewOne: a program that has been writing since before the
// upgrade goes on through it and beside the new ones. Positions grow as events are
// written, by whichever, and the reader of the new one is given all of them.
// (zitadel PR#9201: old and new gave out positions in different ways)
func TestP6_OldProgramBesideANewOne(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("migrations/*.sql")
	if err != nil || len(files) < 2 {
		t.Fatalf("%d migrations, %v", len(files), err)
	}
	for n := 1; n < len(files); n++ {
		t.Run(fmt.Sprint("since version ", n), func(t *testing.T) {
			t.Parallel()
			url := testkit.Empty(t)
			version(t, url, files, n)
			old := newOldProgram(t, url)
			begun, opened := make(chan bool), make(chan bool)
			var writing sync.WaitGroup
			writing.Go(func() {
				old.append()
				close(begun)
				for over := false; !over; {
					select {
					case <-opened:
						over = true
					default:
					}
					old.append()
				}
			})
			<-begun
			s := testkit.Store(t, eventstore.Config{URL: url})
			close(opened)
			writing.Wait()
			want := append([]weir.Position{1}, old.wrote...)
			for range 10 {
				old.append()
				want = append(want, old.wrote[len(old.wrote)-1], appendOne(t, s, "seat-A2").Position)
			}
			if got := positions(logged(t, s)); !slices.Equal(got, want) || !slices.IsSorted(want) {
				t.Errorf("the log shows %v, written were %v", got, want)
			}
			if f := examined(t, s, eventstore.Checkup{Full: true})["streams"]; !f.OK {
				t.Errorf("the doctor: %+v", f)
			}
		})
	}
}
