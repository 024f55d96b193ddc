package eventstore

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-es/weir"
)

// repair is what to do when the log itself is damaged.
const repair = "do not append to what is named; compare with a backup. Events are never changed or deleted by this program, so look for who did, and for a restore that was not complete"

// checkGuards looks whether what the database watches over is still in place.
func (d *doctor) checkGuards(ctx context.Context) (f Finding, err error) {
	var name string
	err = d.each(ctx, d.sql.DoctorGuards, nil, []any{&name}, func() { f.add("%s", name) })
	f.blame(fmt.Sprintf("migration %d, %d shards", len(migrations()), d.shards),
		"constraints or triggers are missing, broken or switched off",
		"make them again as the migrations do (weir migrate sql against an empty database prints them), or switch the trigger on with: alter table events enable trigger events_require_registration")
	return f, err
}

// checkSequence looks whether positions could be given out twice.
func (d *doctor) checkSequence(ctx context.Context) (f Finding, err error) {
	if err := d.pool.QueryRow(ctx, d.sql.HorizonHead).Scan(&d.drawn); err != nil {
		return f, err
	}
	f.Found = fmt.Sprintf("the last position drawn is %d, the last one stored %d", d.drawn, d.head)
	if d.drawn < d.head {
		f.Todo = (&SequenceBehindError{d.config.Schema, d.drawn, d.head}).Mend()
	}
	return f, nil
}

// checkStreams looks whether versions are contiguous and in the order of the log,
// and whether streams are where their events are.
func (d *doctor) checkStreams(ctx context.Context) (f Finding, err error) {
	seen := map[string]bool{}
	err = d.spans(func(after, to weir.Position) (bool, error) {
		var fault streamFault
		err := d.each(ctx, d.sql.DoctorStreams, []any{int64(after), int64(to), f.rest()}, fault.targets(), func() {
			if text := fault.String(); !seen[text] {
				seen[text] = true
				f.add("%s", text)
			}
		})
		return f.rest() > 0, err
	})
	if err == nil {
		err = d.checkHeads(ctx, &f, seen)
	}
	f.blame("versions are contiguous in "+d.where(), "streams and their events do not agree", repair)
	return f, err
}

// streamFault is a row of doctor_streams.sql.
type streamFault struct {
	stream        string
	version, head weir.Version
	kind          string
	position      weir.Position
}

func (f *streamFault) targets() []any {
	return []any{&f.stream, &f.version, &f.kind, &f.head, &f.position}
}

func (f *streamFault) String() string {
	switch f.kind {
	case "orphan":
		return fmt.Sprintf("the event at position %d belongs to no stream", f.position)
	case "order":
		return fmt.Sprintf("%s: version %d lies before version %d in the log", f.stream, f.version, f.version-1)
	case "twice":
		return fmt.Sprintf("%s: version %d is there more than once", f.stream, f.version)
	case "beyond":
		return fmt.Sprintf("%s: version %d exists, but the stream is at %d", f.stream, f.version, f.head)
	}
	return fmt.Sprintf("%s: version %d is missing, the stream is at %d", f.stream, f.version, f.head)
}

// checkHeads finds streams whose last event is missing, where no other event of
// theirs was looked at.
func (d *doctor) checkHeads(ctx context.Context, f *Finding, seen map[string]bool) error {
	for below := int64(math.MaxInt64); ; {
		var n, lowest int64
		var names []string
		var heads, lasts []weir.Version
		err := d.pool.QueryRow(ctx, d.sql.DoctorHeads, below, doctorSpan).Scan(&n, &lowest, &names, &heads, &lasts)
		if err != nil {
			return err
		}
		for i, name := range names {
			fault := streamFault{stream: name, version: lasts[i] + 1, head: heads[i], kind: "missing"}
			if lasts[i] > heads[i] {
				fault.version, fault.kind = lasts[i], "beyond"
			}
			if text := fault.String(); !seen[text] {
				f.add("%s", text)
			}
		}
		if n < doctorSpan || !d.full || f.rest() <= 0 {
			return nil
		}
		below = lowest
	}
}

// checkIDs looks whether an id is stored twice. The index forbids it; one that is
// broken or gone does not.
func (d *doctor) checkIDs(ctx context.Context) (f Finding, err error) {
	after := max(0, d.head-doctorSpan)
	if d.full {
		after = 0
	}
	var id [16]byte
	err = d.each(ctx, d.sql.DoctorTwice, []any{int64(after), int64(d.head), doctorDetails}, []any{&id}, func() { f.add("%s", weir.ID(id)) })
	f.blame("ids are unique in "+d.where(), "ids are stored more than once", repair)
	return f, err
}

// checkHorizon looks whether readers get to the end of the log, and who holds them
// back. Appends in flight are nothing unusual; what is still there after a while
// is.
func (d *doctor) checkHorizon(ctx context.Context) (f Finding, err error) {
	at, head, err := d.ReadHorizon(ctx)
	if err != nil {
		return f, err
	}
	if d.drawn < d.head {
		head = d.drawn // readers stop at the sequence, which is behind
	}
	held, err := d.holders(ctx)
	for began := time.Now(); err == nil && (at < head || len(held) > 0) && time.Since(began) < d.patience; {
		sleep(ctx, 50*time.Millisecond, nil)
		if at, _, err = d.ReadHorizon(ctx); err == nil {
			held, err = d.stillHeld(ctx, held)
		}
	}
	if err != nil {
		return f, err
	}
	for _, h := range held {
		f.add("%s", h)
	}
	switch {
	case len(held) > 0:
		f.Found = fmt.Sprintf("readers stop at position %d, since appends before %d are open for too long", at, d.head+1)
		f.Todo = held[0].mend(d.database())
	case at < head:
		f.Found = fmt.Sprintf("readers have not passed position %d in %s, though nobody holds them there", at, d.patience)
		f.Todo = "look again; if it stays, append an event, which makes the horizon move"
	default:
		f.Found = fmt.Sprintf("readers get to position %d, the end of the log", at)
	}
	return f, nil
}

func (d *doctor) database() string { return d.pool.Config().ConnConfig.Database }

// holder is somebody who has registered in flight and not ended.
type holder struct {
	pid                  int
	gid                  string // of a prepared transaction, which has no pid
	key                  int64
	program, user, state string
	queryStart           *time.Time
	query                string
	age                  float64 // of the transaction, in seconds
}

func (d *doctor) holders(ctx context.Context) (all []holder, err error) {
	rows, err := d.pool.Query(ctx, d.sql.DoctorHolders, d.lock)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (h holder, err error) {
		return h, row.Scan(&h.pid, &h.gid, &h.key, &h.program, &h.user, &h.state, &h.queryStart, &h.query, &h.age)
	})
}

// stillHeld are those of before that have not ended since.
func (d *doctor) stillHeld(ctx context.Context, before []holder) (still []holder, err error) {
	now, err := d.holders(ctx)
	for _, h := range now {
		for _, b := range before {
			if h.pid == b.pid && h.gid == b.gid && h.key == b.key {
				still = append(still, h)
				break
			}
		}
	}
	return still, err
}

func (h holder) String() string {
	age := (time.Duration(h.age*1000) * time.Millisecond).Round(100 * time.Millisecond)
	if h.pid == 0 {
		return fmt.Sprintf("prepared transaction %q of user %s, %s old", h.gid, h.user, age)
	}
	text := fmt.Sprintf("pid %d, application %q, user %s, open for %s", h.pid, h.program, h.user, age)
	if h.queryStart != nil {
		text += fmt.Sprintf(", %s, last statement at %s: %s", h.state, h.queryStart.UTC().Format(time.RFC3339), firstWords(h.query))
	}
	return text
}

// mend is the command that ends it.
func (h holder) mend(database string) string {
	if h.pid == 0 {
		gid := quoteLiteral(h.gid)
		return fmt.Sprintf("in database %s, run: commit prepared %s; or, if it was given up: rollback prepared %s;", pgx.Identifier{database}.Sanitize(), gid, gid)
	}
	return fmt.Sprintf("let that program end its transaction, or run: select pg_terminate_backend(%d);", h.pid)
}
