package eventstore

import (
	"context"
	"fmt"
	"math"
	"regexp"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-es/weir"
)

// checkCheckpoints looks whether a consumer is further than the log is complete:
// it would pass what appears there.
func (d *doctor) checkCheckpoints(ctx context.Context) (f Finding, err error) {
	var consumer string
	var shards int64
	var lowest, highest weir.Position
	var moved time.Time
	type reader struct {
		name            string
		lowest, highest weir.Position
	}
	var readers []reader
	err = d.each(ctx, d.sql.DoctorCheckpoints, nil, []any{&consumer, &shards, &lowest, &highest, &moved}, func() {
		readers = append(readers, reader{consumer, lowest, highest})
	})
	if err != nil {
		return f, err
	}
	horizon, _, err := d.ReadHorizon(ctx) // after the checkpoints: it only grows
	if err != nil {
		return f, err
	}
	var fine []string
	for _, r := range readers {
		if r.highest > horizon {
			f.add("%s is at position %d, the log is complete up to %d", r.name, r.highest, horizon)
		}
		fine = append(fine, fmt.Sprintf("%s at %d", r.name, r.lowest))
	}
	f.blame(listed("nobody reads yet", fine), "consumers are ahead of the log, and will pass what appears there",
		"stop them, set their checkpoints to the horizon or below, and start them again; a consumer whose effects must be right is to be rebuilt")
	return f, err
}

// listed joins the first of many.
func listed(none string, all []string) string {
	switch n := len(all); {
	case n == 0:
		return none
	case n > doctorDetails:
		return fmt.Sprintf("%s, and %d more", strings.Join(all[:doctorDetails], ", "), n-doctorDetails)
	}
	return strings.Join(all, ", ")
}

// checkViews compares the rows of views that are keyed by stream with the log, as
// far as can be told without their code.
func (d *doctor) checkViews(ctx context.Context) (f Finding, err error) {
	var name string
	var views []string
	if err := d.each(ctx, d.sql.DoctorViews, nil, []any{&name}, func() { views = append(views, name) }); err != nil {
		return f, err
	}
	for _, view := range views {
		if err := d.checkView(ctx, &f, view); err != nil {
			return f, fmt.Errorf("view %s: %w", view, err)
		}
	}
	f.blame(listed("there are no views that are keyed by stream", views), "rows of views know of events that the log has not",
		"rebuild these views: drop their tables and their checkpoints while nobody runs them")
	return f, nil
}

func (d *doctor) checkView(ctx context.Context, f *Finding, view string) error {
	err := d.spans(func(after, to weir.Position) (bool, error) {
		var key string
		var row, head weir.Version
		err := d.each(ctx, d.viewSQL(d.sql.DoctorRows, view), []any{int64(after), int64(to), f.rest()}, []any{&key, &row, &head}, func() {
			f.add("%s: row %q is at version %d, its stream at %d", view, key, row, head)
		})
		return f.rest() > 0, err
	})
	if err != nil || f.rest() <= 0 {
		return err
	}
	rows := int64(doctorSpan)
	if d.full {
		rows = math.MaxInt64
	}
	var key string
	return d.each(ctx, d.viewSQL(d.sql.DoctorStrays, view), []any{rows, f.rest()}, []any{&key}, func() {
		f.add("%s: row %q has no stream", view, key)
	})
}

// viewSQL puts the quoted name of the view's table in.
func (d *doctor) viewSQL(sql, view string) string {
	return strings.ReplaceAll(sql, "view_name", pgx.Identifier{"view_" + view}.Sanitize())
}

// checkParked counts streams that wait for somebody.
func (d *doctor) checkParked(ctx context.Context) (f Finding, err error) {
	var consumer, stream, reason string
	var version weir.Version
	var attempts, n int
	var at time.Time
	err = d.each(ctx, d.sql.DoctorParked, []any{doctorDetails}, []any{&consumer, &stream, &version, &reason, &attempts, &at, &n}, func() {
		f.add("%s stopped at version %d of %s after %d tries, at %s: %s", consumer, version, stream, attempts, at.UTC().Format(time.RFC3339), reason)
	})
	f.blame("no stream is parked", fmt.Sprintf("%d parked", n),
		"mend what the events fail at, then release the streams")
	return f, err
}

// checkDeadLetters counts messages that could not be stored.
func (d *doctor) checkDeadLetters(ctx context.Context) (f Finding, err error) {
	var reason string
	var n, total int64
	var first time.Time
	err = d.each(ctx, d.sql.DoctorDeadLetters, nil, []any{&reason, &n, &first}, func() {
		total += n
		f.add("%d because of %s, the first at %s", n, reason, first.UTC().Format(time.RFC3339))
	})
	f.blame("there are none", fmt.Sprintf("%d messages could not become events", total),
		"look at them in the table dead_letters; delete those that are dealt with")
	return f, err
}

// checkInstances tells who runs, and whether they are one service.
func (d *doctor) checkInstances(ctx context.Context) (f Finding, err error) {
	var id [16]byte
	var name string
	var started time.Time
	var silent float64
	var leases, alive, gone int
	names := map[string]bool{}
	err = d.each(ctx, d.sql.DoctorInstances, []any{1000}, []any{&id, &name, &started, &silent, &leases}, func() {
		if silent < Stale.Seconds() {
			alive++
			names[name] = true
			f.add("%s %s, since %s, %d leases", name, weir.ID(id), started.UTC().Format(time.RFC3339), leases)
			return
		}
		gone++
	})
	f.Found = fmt.Sprintf("%d alive, %d ended without a word in the last day or so", alive, gone)
	if len(names) > 1 {
		f.Todo = "services of different names share this schema, but not its work: give each a schema of its own, or all one name"
	}
	return f, err
}

// checkLeases finds work whose owner is dead and that nobody took over.
func (d *doctor) checkLeases(ctx context.Context) (f Finding, err error) {
	var scope string
	var all, dead, total int
	err = d.each(ctx, d.sql.DoctorLeases, []any{Stale}, []any{&scope, &all, &dead}, func() {
		total += all
		if dead > 0 {
			f.add("%s: %d of %d", scope, dead, all)
		}
	})
	f.blame(fmt.Sprintf("%d leases, none of them with a dead owner", total), "leases belong to instances that are silent",
		"start an instance of the application: it takes them over after "+Stale.String())
	return f, err
}

// leadingComments are the lines before a statement.
var leadingComments = regexp.MustCompile(`^(\s*--[^\n]*\n)+`)

// firstWords is the beginning of a statement on one line, unless it may hold a
// secret.
func firstWords(query string) string {
	query = strings.Join(strings.Fields(leadingComments.ReplaceAllString(query, "")), " ")
	if strings.Contains(strings.ToLower(query), "password") {
		return "(not shown)"
	}
	if runes := []rune(query); len(runes) > 60 {
		return string(runes[:60]) + "…"
	}
	return query
}

func quoteLiteral(text string) string {
	return "'" + strings.ReplaceAll(text, "'", "''") + "'"
}
