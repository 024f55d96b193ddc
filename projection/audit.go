package projection

import (
	"context"
	"slices"
	"time"

	"github.com/weir-es/weir"
)

// The horizon is proven, and databases are operated by people. An audit is the
// second witness: what a worker has passed is counted again, some time later, from
// the table itself.

// passage is a part of the log that the worker has passed, and how many events it
// was given there.
type passage struct {
	after, to weir.Position
	given     int64
}

// rounds is how often each passage is counted again.
const rounds = 3

// audit remembers the last passages. The first is the one under way.
type audit struct {
	passages [rounds]passage
	began    time.Time // of the first
}

func (a *audit) pass(p passage) {
	first := &a.passages[0]
	if a.began.IsZero() || first.to != p.after {
		*first, a.began = p, time.Now()
		return
	}
	first.to = p.to
	first.given += p.given
}

// due is when to count, if there is anything to count.
func (a *audit) due(every time.Duration) (time.Time, bool) {
	return a.began.Add(every), !a.began.IsZero()
}

// turn begins a new first passage at at, and forgets the last when all are empty.
func (a *audit) turn(at weir.Position) {
	copy(a.passages[1:], a.passages[:rounds-1])
	a.passages[0] = passage{after: at, to: at}
	a.began = time.Now()
	if !slices.ContainsFunc(a.passages[:], func(p passage) bool { return p.to > p.after }) {
		a.began = time.Time{}
	}
}

func (w *Worker) auditEvery() time.Duration {
	if w.Audit == 0 {
		return 30 * time.Second
	}
	return w.Audit
}

// look counts the last passages again when it is time to. An event that was not
// there when the worker passed is an alarm: somebody wrote past the horizon. A view
// that is keyed by stream repairs itself, since its rows know what they have seen;
// others have to be rebuilt.
func (w *Worker) look(ctx context.Context) error {
	due, ok := w.audit.due(w.auditEvery())
	if !ok || time.Now().Before(due) {
		return nil
	}
	for i := range w.audit.passages {
		if err := w.lookAt(ctx, &w.audit.passages[i]); err != nil {
			return err
		}
	}
	w.audit.turn(w.at)
	return nil
}

func (w *Worker) lookAt(ctx context.Context, p *passage) error {
	if p.to == p.after {
		return nil
	}
	there, err := w.Store.CountRange(ctx, p.after, p.to, w.filter())
	if err != nil || there == p.given {
		return err
	}
	w.Store.Logger().Error("events turned up behind a projection: somebody wrote past the horizon",
		"projection", w.Projection.ProjectionName(), "after", p.after, "to", p.to, "given", p.given, "stored", there,
		"repaired", w.knowsRows())
	w.committed(ctx, &job{count: Counts{Alarms: max(there-p.given, p.given-there)}})
	p.given = there
	if !w.knowsRows() {
		return nil
	}
	return w.again(ctx, *p)
}

// knowsRows reports whether the projection can be given events again.
func (w *Worker) knowsRows() bool {
	p, ok := w.Projection.(interface{ knowsItsEvents() bool })
	return ok && p.knowsItsEvents()
}

// again applies a passage once more. Rows skip what they have seen.
func (w *Worker) again(ctx context.Context, p passage) error {
	for p.after < p.to {
		page, err := w.Store.Page(ctx, p.after, p.to, w.filter(), w.limit(false))
		if err != nil {
			return err
		}
		items := slices.DeleteFunc(decoderOf(w.Projection, w.Store).all(page), w.passesOver)
		if shards := touched(items, w.shardOf); len(shards) > 0 {
			j := w.job()
			if err := w.transact(ctx, j, shards, p.to, anyway, w.Projection.begin(j, items)); err != nil {
				return err
			}
			w.committed(ctx, j)
		}
		if len(page) < w.limit(false) {
			return nil
		}
		p.after = page[len(page)-1].Position
	}
	return nil
}
