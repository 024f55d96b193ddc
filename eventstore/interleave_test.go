package eventstore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/eventstore"
	"github.com/weir-es/weir/internal/testkit"
)

// step is one statement of one actor: 0 and 1 are writers, 2 is the reader.
type step struct {
	actor int
	what  byte
}

// What the actors do, statement by statement.
const (
	writes     = "RIAC" // register, insert (which draws), advance, commit or roll back
	writesFast = "MIC"  // move the head and register in one statement, insert, commit or roll back
	writesLate = "IRAC" // registers when it has drawn already
	reads      = "LFP"  // look at the last position drawn, at the floor; read the page
)

// meet says whether the order of two steps can be told from what they see. A
// writer's own row in streams is nobody else's business; a commit changes the
// floor, what is stored and what a page holds; a draw changes the last position.
func meet(a, b step) bool {
	if a.actor == b.actor {
		return true
	}
	if a.actor > b.actor {
		a, b = b, a
	}
	return slices.Contains([]string{"II", "RI", "IR", "MI", "IM", "IL", "RF", "MF", "CF", "CP"}, string([]byte{a.what, b.what}))
}

// isCanonical picks one of all interleavings that differ only in the order of
// steps that do not meet: the first in lexicographic order (Anisimov and Knuth,
// "Inhomogeneous sorting", 1979), where no step could have gone before one of a
// later actor.
func isCanonical(steps []step) bool {
	for j, s := range steps {
		for i := j - 1; i >= 0 && !meet(steps[i], s); i-- {
			if s.actor < steps[i].actor {
				return false
			}
		}
	}
	return true
}

// interleavings are the orders in which three programs can run: 11,550 for these,
// of which 182 can be told apart. A sample of the others stands for the
// claim that these cannot.
func interleavings(programs [3]string) (all [][]step) {
	dice := rand.New(rand.NewPCG(1, 2))
	var extend func(done [3]int, steps []step)
	extend = func(done [3]int, steps []step) {
		over := true
		for actor, program := range programs {
			if at := done[actor]; at < len(program) {
				next := done
				next[actor]++
				extend(next, append(slices.Clone(steps), step{actor, program[at]}))
				over = false
			}
		}
		if over && (isCanonical(steps) || dice.IntN(500) == 0) {
			all = append(all, steps)
		}
	}
	extend([3]int{}, nil)
	return all
}

// TestP6_EveryInterleaving of two writers and one reader, statement by statement:
// whatever order the statements come in and however the transactions end, the
// reader is given each committed event once and in the order of positions. Every
// order is tried at ordinary positions and where the 32 bits of a key overflow.
// (emmett#336: a table of interleavings; marten#1629)
//
// The same search finds the loss in readers and writers that are built otherwise,
// so it would find one here.
func TestP6_EveryInterleaving(t *testing.T) {
	t.Parallel()
	if got := len(interleavings([3]string{writes, writes, reads})); got < 182 {
		t.Fatalf("%d interleavings only", got)
	}
	for _, c := range []struct{ ends, writes string }{
		{"commit commit", writes}, {"commit rollback", writes}, {"rollback commit", writes}, {"rollback rollback", writes},
		{"commit commit", writesFast}, {"rollback commit", writesFast},
	} {
		t.Run(c.ends+" "+c.writes, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, c.ends, c.writes, atHorizon)
			for _, steps := range interleavings(s.programs) {
				for edge := range 2 {
					if what := s.play(steps, edge == 1); what != "" {
						t.Fatalf("%s: %s", spell(steps), what)
					}
				}
			}
		})
	}
	for name, broken := range map[string]struct {
		writes string
		look   look
	}{
		"found in a reader that follows the last position": {writes, atLast},
		"found in a reader that looks at the floor first":  {writes, floorFirst},
		"found in a writer that registers after it drew":   {writesLate, atHorizon},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, "commit commit", broken.writes, broken.look)
			for _, steps := range interleavings(s.programs) {
				if s.play(steps, false) != "" {
					return
				}
			}
			t.Error("no interleaving shows that it loses events")
		})
	}
}

func spell(steps []step) (text string) {
	for _, s := range steps {
		text += fmt.Sprintf("%c%c ", "abr"[s.actor], s.what)
	}
	return text
}

// look is how a reader finds out how far it may go.
type look func(ctx context.Context, s *stage) (weir.Position, error)

func atHorizon(ctx context.Context, s *stage) (weir.Position, error) {
	at, _, err := s.store.ReadHorizon(ctx)
	return at, err
}

func atLast(ctx context.Context, s *stage) (at weir.Position, err error) {
	return at, s.store.Pool().QueryRow(ctx, s.sql["horizon_head"]).Scan(&at)
}

func floorFirst(ctx context.Context, s *stage) (at weir.Position, err error) {
	var floor *int64
	err = s.store.Pool().QueryRow(ctx, "select min(objid::bigint) from pg_locks where classid = $1::int4::oid and objsubid = 2", s.lock).Scan(&floor)
	if err != nil {
		return 0, err
	}
	at, err = atLast(ctx, s)
	if floor != nil {
		at = min(at, weir.Position(*floor))
	}
	return at, err
}

// stage is where one interleaving after the other is played, each on what the one
// before left.
type stage struct {
	t        *testing.T
	ctx      context.Context
	sql      map[string]string
	lock     int32
	table    string
	store    *eventstore.Store // of the reader
	gate     *gate
	programs [3]string
	look     look
	writers  [2]*stageWriter

	at   weir.Position // of the reader
	edge int64
}

type stageWriter struct {
	conn    *pgx.Conn
	end     string
	stream  int64
	version int64
	last    weir.ID // of what is committed
	id      weir.ID // in the transaction under way
}

func newStage(t *testing.T, ends, writes string, look look) *stage {
	t.Helper()
	url := testkit.Database(t)
	s := &stage{t: t, ctx: testkit.Context(t), sql: map[string]string{}, gate: newGate(),
		programs: [3]string{writes, writes, reads}, look: look}
	for _, name := range []string{"register", "insert_events", "advance_streams", "move_head", "horizon_head"} {
		text, err := os.ReadFile("sql/" + name + ".sql")
		s.check(err)
		s.sql[name] = string(text)
	}
	config, err := pgxpool.ParseConfig(url)
	s.check(err)
	config.ConnConfig.Tracer = s.gate
	pool, err := pgxpool.NewWithConfig(s.ctx, config)
	s.check(err)
	t.Cleanup(pool.Close)
	s.store, err = eventstore.Open(s.ctx, eventstore.Config{Pool: pool})
	s.check(err)
	s.lock = scalar[int32](t, s.store, "select 'weir'::regnamespace::oid::int4")
	s.table = scalar[string](t, s.store, "select 'weir.events'::regclass::oid::text")
	for w, stream := range []weir.StreamID{"a-1", "b-1"} {
		first := appendOne(t, s.store, stream)
		s.at = first.Position
		conn, err := pgx.Connect(s.ctx, url)
		s.check(err)
		t.Cleanup(func() { conn.Close(context.Background()) })
		var end [2]string
		fmt.Sscan(ends, &end[0], &end[1])
		s.writers[w] = &stageWriter{conn: conn, end: end[w], version: 1, last: first.ID,
			stream: scalar[int64](t, s.store, "select id from weir.streams where name = $1", string(stream))}
	}
	return s
}

func (s *stage) check(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// play runs one interleaving, lets the reader look once more when all is over, and
// says what the reader was given too much, too little or too early.
func (s *stage) play(steps []step, edge bool) string {
	if edge {
		s.nearEdge()
	}
	var seen []weir.Event
	read := make(chan error, 1)
	go func() { read <- s.read(withGate(s.ctx), &seen) }()
	s.gate.waitFor(read)
	for _, step := range steps {
		if step.actor == 2 {
			s.gate.pass(read)
		} else {
			s.check(s.writers[step.actor].do(s, step.what))
		}
	}
	s.check(s.gate.result(read))
	s.check(s.read(s.ctx, &seen))
	return s.compare(seen)
}

// nearEdge moves the sequence to up to three below the next place where a key of 32
// bits, signed or not, overflows.
func (s *stage) nearEdge() {
	s.edge++
	exec(s.t, s.store, "select setval('weir.position', $1)", s.edge<<31-1-s.edge%4)
}

// read is what a reader does: look how far it may go, and go there.
func (s *stage) read(ctx context.Context, seen *[]weir.Event) error {
	to, err := s.look(ctx, s)
	if err != nil {
		return err
	}
	page, err := s.store.Page(ctx, s.at, to, nil, 100)
	*seen = append(*seen, page...)
	s.at = max(s.at, to)
	return err
}

func (s *stage) compare(seen []weir.Event) string {
	want := map[weir.ID]bool{}
	for _, w := range s.writers {
		if w.end == "commit" {
			want[w.id] = true
		}
	}
	for i, e := range seen {
		if !want[e.ID] || i > 0 && e.Position <= seen[i-1].Position {
			return fmt.Sprintf("the reader was given %v", positions(seen))
		}
		delete(want, e.ID)
	}
	if len(want) > 0 {
		return fmt.Sprintf("of the committed events the reader missed %d; it was given %v and is at %d", len(want), positions(seen), s.at)
	}
	return ""
}

// do runs one statement of a writer. The first begins its transaction.
func (w *stageWriter) do(s *stage, what byte) error {
	var b pgx.Batch
	if w.id == (weir.ID{}) || w.conn.PgConn().TxStatus() == 'I' {
		w.id = weir.NewID()
		b.Queue("begin isolation level read committed")
		// Else the schema would refuse the writer that registers late.
		b.Queue("select set_config('weir_append.registered', $1, true)", s.table)
	}
	switch what {
	case 'R':
		b.Queue(s.sql["register"], s.lock, s.table)
	case 'M':
		b.Queue(s.sql["move_head"], w.stream, w.version, [16]byte(w.last), w.version+1, [16]byte(w.id), s.lock, s.table).
			QueryRow(wantHeld)
	case 'I':
		data, version := "{}", w.version+1
		b.Queue(s.sql["insert_events"], []int64{w.stream}, []int64{version}, [][16]byte{w.id}, []*[16]byte{nil},
			[]int16{0}, []string{"test.happened"}, []*string{&data}, [][]byte{nil}, []*string{nil}, []*string{nil})
	case 'A':
		b.Queue(s.sql["advance_streams"], []int64{w.stream}, []int64{w.version + 1}, [][16]byte{w.id})
	case 'C':
		b.Queue(w.end)
		if w.end == "commit" {
			w.version, w.last = w.version+1, w.id
		}
	}
	return w.conn.SendBatch(s.ctx, &b).Close()
}

// wantHeld reads whether a head was where it should be.
func wantHeld(row pgx.Row) error {
	var held bool
	if err := row.Scan(&held, nil, nil, nil, nil, nil); err != nil || held {
		return err
	}
	return errors.New("the head is elsewhere")
}

// gate holds back each query of a context that is to be stepped through.
type gate struct{ arrived, open chan struct{} }

type gateKey struct{}

func newGate() *gate { return &gate{make(chan struct{}), make(chan struct{})} }

func withGate(ctx context.Context) context.Context { return context.WithValue(ctx, gateKey{}, true) }

func (g *gate) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	if ctx.Value(gateKey{}) != nil {
		g.arrived <- struct{}{}
		<-g.open
	}
	return ctx
}

func (g *gate) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// waitFor returns when the reader stands at the gate or is done.
func (g *gate) waitFor(read chan error) {
	select {
	case <-g.arrived:
	case err := <-read:
		read <- err
	}
}

// pass lets the reader run the statement it stands at, if it is not done: one that
// sees nothing new needs fewer.
func (g *gate) pass(read chan error) {
	select {
	case err := <-read:
		read <- err
	case g.open <- struct{}{}:
		g.waitFor(read)
	}
}

// result is how the reader ended.
func (g *gate) result(read chan error) error {
	for {
		select {
		case err := <-read:
			return err
		case g.open <- struct{}{}:
			g.waitFor(read)
		}
	}
}
