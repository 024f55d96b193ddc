package eventstore

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/internal/crash"
	"github.com/weir-es/weir/internal/pace"
)

// Limits of a group: beyond a thousand events a larger transaction wins nothing.
const (
	groupEvents  = 1000
	groupMany    = 500 // an event of these costs hardly more than one of a thousand
	groupBytes   = 8 << 20
	groupWaiting = 10_000
)

// group lets concurrent appends of a process share transactions. The first is
// written at once, alone; those that come meanwhile are written together by the
// next. No caller waits for company, and one's conflict or poison is its own.
//
// A leader writes until nobody waits and then ends, so an idle store has none.
// It is no caller's own goroutine, so that a caller who gives up takes nobody
// else's write along.
type group struct {
	mu      sync.Mutex
	waiting []*request
	events  int // of those who wait
	leaders int
	most    int           // leaders at a time
	room    chan struct{} // one token per waiting request
	hurry   chan struct{} // ends a leader's rest

	// careful counts down the groups that look for stored ids beforehand:
	// where one repeat came, more are likely to follow.
	careful atomic.Int32
}

// init allows one leader per two cores: on fewer, a second one only makes the
// groups smaller.
func (g *group) init() {
	g.room = make(chan struct{}, groupWaiting)
	g.hurry = make(chan struct{}, 1)
	g.most = max(1, min(4, runtime.GOMAXPROCS(0)/2))
}

// do stores r with whoever else is waiting and returns its outcome.
func (g *group) do(ctx context.Context, s *Store, r *request) error {
	select {
	case g.room <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	if g.enter(r) {
		go g.lead(s)
	}
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// enter queues r and reports whether a leader has to be started for it.
func (g *group) enter(r *request) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.waiting = append(g.waiting, r)
	g.events += len(r.ids)
	if isBehind := len(r.ids) >= groupMany/2; !r.facts || isBehind || g.events >= groupMany {
		g.rouse()
	}
	if g.leaders == g.most {
		return false
	}
	g.leaders++
	return true
}

// rouse lets no leader rest any longer.
func (g *group) rouse() {
	select {
	case g.hurry <- struct{}{}:
	default:
	}
}

func (g *group) lead(s *Store) {
	for {
		requests := g.take()
		if len(requests) == 0 {
			return
		}
		crash.At(crash.AppendGrouped)
		began := time.Now()
		g.write(s, requests)
		took := time.Since(began)
		for _, r := range requests {
			close(r.done)
			<-g.room
		}
		crash.At(crash.AppendAnswered)
		s.horizon.poke()
		g.rest(requests, took)
		runtime.Gosched() // those who were answered may have more to write
	}
}

// rest lets more facts come together under load. A group that somebody called for is
// followed at once by those of the others, and one that is large needs no company.
func (g *group) rest(requests []*request, took time.Duration) {
	n := 0
	for _, r := range requests {
		if !r.facts {
			return
		}
		n += len(r.ids)
	}
	if n < groupMany {
		pace.Sleep(context.Background(), pace.Rest(n, took), g.hurry)
	}
}

// take removes the next group from the queue, or the leader from its post.
func (g *group) take() []*request {
	g.mu.Lock()
	defer g.mu.Unlock()
	n, events, size := 0, 0, 0
	for _, r := range g.waiting {
		events, size = events+len(r.ids), size+r.size
		if n > 0 && (events > groupEvents || size > groupBytes) {
			break
		}
		n++
		g.events -= len(r.ids)
	}
	requests := g.waiting[:n:n]
	g.waiting = g.waiting[n:]
	if n == 0 {
		g.leaders--
		g.waiting = nil
	}
	return requests
}

// write stores the requests, each with its own outcome in err.
func (g *group) write(s *Store, requests []*request) {
	careful := g.careful.Load() > 0 && g.careful.Add(-1) >= 0
	for _, r := range requests {
		careful = careful || r.careful
	}
	g.try(s, requests, careful)
	if careful {
		return
	}
	// What looks like a conflict may be a repeat of what is stored.
	if unsure := conflicts(requests); len(unsure) > 0 {
		g.try(s, unsure, true)
	}
}

func conflicts(requests []*request) (in []*request) {
	for _, r := range requests {
		if errors.Is(r.err, weir.ErrConflict) {
			in = append(in, r)
		}
	}
	return in
}

// try writes the requests in one transaction, again with a lookup where an id
// turned out to be stored or the outcome was lost, and one by one where the
// database refused something in it for good.
func (g *group) try(s *Store, requests []*request, careful bool) {
	ctx, cancel := context.WithTimeout(context.Background(), s.config.RetryTimeout)
	defer cancel()
	attempt := func() (struct{}, error) {
		// Half the time, so that a connection on which nothing comes back any
		// more leaves enough for another.
		ctx, cancel := context.WithTimeout(ctx, s.config.RetryTimeout/2)
		defer cancel()
		err := s.transact(ctx, requests, careful)
		for tries := 0; isOvertaken(err) && tries < 5; tries++ {
			careful = true
			g.careful.Store(100)
			err = s.transact(ctx, requests, careful)
		}
		careful = true
		if err != nil && !isTransient(err) && !isOvertaken(err) {
			err = backoff.Permanent(err)
		}
		return struct{}{}, err
	}
	_, err := backoff.Retry(ctx, attempt, backoff.WithBackOff(newBackOff()))
	switch {
	case err == nil:
	case len(requests) > 1 && !isTransient(err) && ctx.Err() == nil:
		for _, r := range requests {
			g.try(s, []*request{r}, careful)
		}
	case requests[0].facts && !requests[0].apart && isInline(err):
		requests[0].apart = true
		g.try(s, requests, careful)
	default:
		for _, r := range requests {
			r.err = err
		}
	}
}

// isOvertaken reports that what the plan was made from is not so any more: an id is
// stored, perhaps since the look-up and in another stream, or streams are gone.
func isOvertaken(err error) bool {
	return isDuplicateEvent(err) || errors.Is(err, errDeleted)
}

// rollBack ends what did not come to its commit. The pool would do it too, by closing
// the connection, and a new one costs more than a transaction.
func rollBack(conn *pgxpool.Conn) {
	pg := conn.Conn().PgConn()
	if pg.IsClosed() || pg.TxStatus() == 'I' {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if _, err := conn.Exec(ctx, "rollback"); err != nil {
		conn.Conn().Close(ctx)
	}
}

const (
	beginSQL  = "begin isolation level read committed"
	commitSQL = "commit"
	// limitIdleSQL is for transactions with more than one round trip: readers wait for
	// whoever is in flight, and must not wait for a process that has been stopped.
	limitIdleSQL = "set local idle_in_transaction_session_timeout = '4s'"
)

func (s *Store) transact(ctx context.Context, requests []*request, careful bool) error {
	if len(s.inline.now()) > 0 {
		return s.transactInline(ctx, requests, careful)
	}
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	defer rollBack(conn)
	w := &writer{s: s, requests: requests, careful: careful}
	done, err := w.runAtOnce(ctx, conn)
	if !done && err == nil {
		err = w.run(ctx, conn, []string{beginSQL, limitIdleSQL}, []string{commitSQL})
	}
	if err == nil {
		crash.At(crash.AppendCommitted)
		s.existing.add(w.plan.heads)
	}
	return err
}
