package projection

import (
	"context"

	"github.com/weir-es/weir"
)

const (
	liveLimit    = 1000 // events of a batch
	catchUpLimit = 4000 // while pages come back full
)

// page is a part of the log, read and decoded.
type page struct {
	after, to weir.Position
	full      bool
	items     []item
}

// ahead is the page after the one that is being applied, on its way: a worker that
// is behind reads and decodes while it writes.
type ahead struct {
	after weir.Position
	done  chan struct{}
	page  page
	err   error
}

// fetch gives the next page, and begins with the one after it when there is more.
func (w *Worker) fetch(ctx context.Context, horizon weir.Position) (p page, err error) {
	next := w.ahead
	w.ahead = nil
	if next != nil {
		<-next.done
	}
	if next != nil && next.after == w.at && next.err == nil {
		p = next.page
	} else {
		err = w.retry(ctx, func(ctx context.Context) (err error) {
			p, err = w.read(ctx, w.at, horizon, w.limit(false))
			return err
		})
	}
	if err == nil && p.full && p.to < horizon {
		w.ahead = w.readAhead(ctx, p.to, horizon)
	}
	return p, err
}

func (w *Worker) readAhead(ctx context.Context, after, horizon weir.Position) *ahead {
	a := &ahead{after: after, done: make(chan struct{})}
	go func() {
		defer close(a.done)
		a.page, a.err = w.read(ctx, after, horizon, w.limit(true))
	}()
	return a
}

func (w *Worker) limit(behind bool) int {
	switch {
	case w.Limit > 0:
		return w.Limit
	case behind:
		return catchUpLimit
	}
	return liveLimit
}

// read reads and decodes one page. It touches nothing that Run owns.
func (w *Worker) read(ctx context.Context, after, horizon weir.Position, limit int) (page, error) {
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	events, err := w.Store.Page(ctx, after, horizon, w.filter(), limit)
	if err != nil {
		return page{}, err
	}
	p := page{after: after, to: horizon, full: len(events) == limit, items: decoderOf(w.Projection, w.Store).all(events)}
	if p.full {
		p.to = events[len(events)-1].Position
	}
	return p, nil
}
