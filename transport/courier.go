package transport

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-es/weir"
)

const (
	// sweepEvery is how often unanswered publishes are looked at.
	sweepEvery = 50 * time.Millisecond
	firstRetry = 50 * time.Millisecond
	lastRetry  = 2 * time.Second
	// complainEvery is how often at most a publish that has to wait is logged.
	complainEvery = 10 * time.Second
)

// letter is a message on its way to the broker.
type letter struct {
	id    weir.ID
	msg   nats.Msg
	tally *tally

	// Guarded by courier.mu.
	next    *letter // behind it, of the same event stream
	ahead   *letter // whose next it is, while it waits
	passed  int     // how many with lower ids went before it since it was posted
	token   uint64  // names it in the reply subject, once it has been sent
	above   uint64  // what was stored last before it was sent: its own sequence is higher
	due     time.Time
	tries   int
	waiting bool  // between a negative answer and the next try
	unsure  bool  // a try went unanswered, so it may be stored
	silence int   // tries in a row that went unanswered
	dropped bool  // nobody waits for it any more
	reason  error // why the last try did not succeed
}

// compareLetters orders letters as their messages were emitted.
func compareLetters(a, b *letter) int { return a.id.Compare(b.id) }

func (l *letter) isUnanswered() bool { return l.silence > 0 }

func (l *letter) isIgnored() bool { return l.silence > 1 }

// tally counts letters until each has its answer. Guarded by courier.mu.
type tally struct {
	open    int
	sealed  bool // no more letters
	errs    []error
	unnamed int           // errors beyond maxErrors
	done    chan struct{} // closed when sealed and none is open
}

// maxErrors is how many errors a tally keeps; the others are counted.
const maxErrors = 100

func newTally() *tally { return &tally{done: make(chan struct{})} }

func (t *tally) settle(err error) {
	t.open--
	switch {
	case err == nil:
	case len(t.errs) < maxErrors:
		t.errs = append(t.errs, err)
	default:
		t.unnamed++
	}
	t.finish()
}

func (t *tally) seal() {
	t.sealed = true
	t.finish()
}

func (t *tally) finish() {
	if t.isDone() {
		close(t.done)
	}
}

func (t *tally) isDone() bool { return t.sealed && t.open == 0 }

func (t *tally) err() error {
	if t.unnamed == 0 {
		return errors.Join(t.errs...)
	}
	return errors.Join(append(t.errs, fmt.Errorf("and %d more", t.unnamed))...)
}

// courier sends letters and repeats each until the broker gives a definite
// answer. Of every event stream one letter is under way and the others wait
// behind it in the order of their ids, so that whatever is lost, late or repeated
// the broker stores them in that order. Many streams are under way at once. What the
// store has numbered keeps the order in which it is posted instead.
//
// The client library's own retries and buffers are not used: they would let a
// later message of a stream overtake an earlier one.
type courier struct {
	nats    *nats.Conn
	stream  string
	inOrder bool          // of posting, not of ids
	wait    time.Duration // for an answer, then again
	revive  func()        // when answers are missing although the connection stands
	log     *slog.Logger
	inbox   string // replies go to inbox + token
	sub     *nats.Subscription
	slots   chan struct{} // one taken per letter

	mu         sync.Mutex
	lanes      map[string]*letter // by subject: the last letter
	open       map[uint64]*letter // by token: those under way
	token      uint64
	closed     error  // why no more letters are taken
	stored     uint64 // the highest sequence that the broker has told
	back       bool   // it has told lower ones since
	timer      *time.Timer
	armed      bool
	complained time.Time
	idle       chan struct{} // closed when nothing is open; nil unless drain waits
}

func newCourier(c *Conn, n names) (*courier, error) {
	k := &courier{
		nats:   c.nats,
		stream: n.stream(),
		wait:   c.config.answerWait,
		revive: c.revive,
		log:    c.log,
		inbox:  c.nats.NewInbox() + ".",
		slots:  make(chan struct{}, c.config.Pending),
		lanes:  map[string]*letter{},
		open:   map[uint64]*letter{},
	}
	k.timer = time.AfterFunc(time.Hour, k.sweep)
	k.timer.Stop()
	var err error
	if k.sub, err = c.nats.Subscribe(k.inbox+"*", k.answered); err != nil {
		return nil, fmt.Errorf("subscribe to replies: %w", err)
	}
	return k, k.sub.SetPendingLimits(-1, -1) // bounded by the slots
}

// post takes a letter over and counts it in *t, which is read under the lock; the
// caller holds a slot for it. It is sent when the one of its stream that is under
// way is answered, and those that wait and sort before it.
func (k *courier) post(l *letter, t **tally) error {
	k.mu.Lock()
	if err := k.closed; err != nil {
		k.mu.Unlock()
		<-k.slots
		return err
	}
	l.tally = *t
	l.tally.open++
	first := k.queue(l)
	k.mu.Unlock()
	if first {
		k.send(l)
	}
	return nil
}

// queue puts l among the waiting of its stream, by id, or launches it. Lock held.
// Ids nearly always come in order, so the place is looked for from the end; there
// are never more letters than slots. Nor does one let more than that go before it,
// or an id from the future would wait for as long as its stream is busy.
func (k *courier) queue(l *letter) (first bool) {
	ahead := k.lanes[l.msg.Subject]
	if ahead == nil {
		k.lanes[l.msg.Subject] = l
		k.launch(l)
		return true
	}
	for !k.inOrder && ahead.token == 0 && ahead.passed < cap(k.slots) && compareLetters(l, ahead) < 0 {
		ahead.passed++
		ahead = ahead.ahead
	}
	k.insert(l, ahead)
	return false
}

// insert puts l right behind another. Lock held.
func (k *courier) insert(l, ahead *letter) {
	l.ahead, l.next, ahead.next = ahead, ahead.next, l
	if l.next == nil {
		k.lanes[l.msg.Subject] = l
		return
	}
	l.next.ahead = l
}

// launch makes l the letter of its stream that is under way. Lock held.
func (k *courier) launch(l *letter) {
	k.token++
	l.token, l.ahead, l.above = k.token, nil, k.stored
	l.msg.Reply = k.inbox + strconv.FormatUint(l.token, 36)
	l.due = time.Now().Add(k.wait)
	k.open[l.token] = l
	k.arm()
}

// send gives a letter to the client. It must not hold the lock: a full socket
// blocks.
func (k *courier) send(l *letter) {
	if err := k.nats.PublishMsg(&l.msg); err != nil {
		k.resolve(l.token, 0, err)
	}
}

// answered handles a reply of the broker.
func (k *courier) answered(m *nats.Msg) {
	token, err := strconv.ParseUint(strings.TrimPrefix(m.Subject, k.inbox), 36, 64)
	if err != nil {
		return
	}
	sequence, err := k.readAnswer(m)
	k.resolve(token, sequence, err)
}

// note remembers where the broker has stored a letter, 0 where it has not just now. A
// place that was given away before the letter was sent means that the stream is not what
// it was. Lock held.
func (k *courier) note(l *letter, sequence uint64) {
	switch {
	case sequence == 0:
	case sequence <= l.above:
		k.back, k.stored = true, sequence
		for _, other := range k.open {
			other.above = 0
		}
	default:
		k.stored = max(k.stored, sequence)
	}
}

// wentBack reports once that the stream was replaced, or went back to an earlier state.
func (k *courier) wentBack() (back bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	back, k.back = k.back, false
	return back
}

var (
	errNoStream  = errors.New("no stream takes this subject: is it declared, and JetStream running?")
	errBadAnswer = errors.New("the answer is no publish acknowledgement")
)

// readAnswer has no error if the message is stored: now, at a sequence, or earlier.
func (k *courier) readAnswer(m *nats.Msg) (sequence uint64, err error) {
	if len(m.Data) == 0 && m.Header.Get("Status") == "503" {
		return 0, errNoStream
	}
	var answer struct {
		Stream    string              `json:"stream"`
		Sequence  uint64              `json:"seq"`
		Duplicate bool                `json:"duplicate"`
		Error     *jetstream.APIError `json:"error"`
	}
	if err := json.Unmarshal(m.Data, &answer); err != nil {
		return 0, errBadAnswer
	}
	switch {
	case answer.Error != nil:
		return 0, answer.Error
	case answer.Stream != k.stream:
		return 0, &misstoredError{answer.Stream}
	case answer.Duplicate:
		return 0, nil
	}
	return answer.Sequence, nil
}

// misstoredError says that another JetStream stream has taken our subjects.
type misstoredError struct{ stream string }

func (e *misstoredError) Error() string {
	return fmt.Sprintf("stored by stream %q, which is not ours", e.stream)
}

// resolve ends a letter, or decides when to try again, and sends what comes next.
func (k *courier) resolve(token, sequence uint64, err error) {
	k.mu.Lock()
	var next *letter
	if l := k.open[token]; l != nil {
		k.note(l, sequence)
		next = k.decide(l, err)
	}
	k.mu.Unlock()
	if next != nil {
		k.send(next)
	}
}

// decide returns the letter to send now, if any. Lock held.
func (k *courier) decide(l *letter, err error) *letter {
	switch {
	case err == nil:
		return k.settle(l, nil)
	case permanent(err):
		return k.settle(l, &RefusedError{l.id, l.msg.Subject, err})
	case l.dropped && !l.unsure:
		return k.settle(l, err)
	}
	l.reason, l.waiting, l.silence = err, true, 0
	l.tries++
	l.due = time.Now().Add(retryWait(l.tries))
	k.complain(l)
	return nil
}

// permanent reports whether trying again cannot help. What the server answers
// with 4xx is about the message or the configuration, save for "conflict" (the
// same id is just being stored) and "too many requests". 5xx is about the server:
// full (10077, 10047), short of resources (10023), without a leader (10008).
func permanent(err error) bool {
	for _, final := range []error{nats.ErrMaxPayload, nats.ErrBadSubject, nats.ErrBadHeaderMsg,
		nats.ErrHeadersNotSupported, nats.ErrPermissionViolation} {
		if errors.Is(err, final) {
			return true
		}
	}
	var misstored *misstoredError
	var api *jetstream.APIError
	if errors.As(err, &api) {
		return api.Code < 500 && api.Code != 404 && api.Code != 409 && api.Code != 429
	}
	return errors.As(err, &misstored)
}

func retryWait(tries int) time.Duration {
	return jitter(min(firstRetry<<min(tries-1, 10), lastRetry))
}

// settle ends a letter and launches the next of its stream, which it returns.
// Lock held.
func (k *courier) settle(l *letter, err error) *letter {
	delete(k.open, l.token)
	refused := k.inOrder && errors.As(err, new(*RefusedError))
	for {
		k.finish(l, err)
		next := l.next
		if next == nil {
			delete(k.lanes, l.msg.Subject)
			k.rest()
			return nil
		}
		if !next.dropped && !refused {
			k.launch(next)
			return next
		}
		if l = next; !refused { // else it must not overtake
			err = errDropped // nobody waits for it and it was never sent
		}
	}
}

var errDropped = errors.New("given up before it was sent")

func (k *courier) finish(l *letter, err error) {
	l.tally.settle(err)
	<-k.slots
}

// rest wakes drain when nothing is under way. Lock held.
func (k *courier) rest() {
	if k.idle != nil && len(k.open) == 0 {
		close(k.idle)
		k.idle = nil
	}
}

// complain logs a letter that has to wait, once in a while. Lock held.
func (k *courier) complain(l *letter) {
	if l.tries < 3 || time.Since(k.complained) < complainEvery {
		return
	}
	k.complained = time.Now()
	k.log.Warn("publishing has to wait", "subject", l.msg.Subject, "tries", l.tries, "unanswered", len(k.slots), "error", l.reason)
}

// arm sees to it that sweep runs while something is under way. Lock held.
func (k *courier) arm() {
	if !k.armed && len(k.open) > 0 {
		k.armed = true
		k.timer.Reset(sweepEvery)
	}
}

// sweep repeats what is due: a publish that got no answer, or whose pause after a
// negative answer is over. Without a connection nothing is repeated.
func (k *courier) sweep() {
	connected := k.nats.IsConnected()
	k.mu.Lock()
	k.armed = false
	var again []*letter
	if connected {
		again = k.due(time.Now())
	}
	k.arm()
	unanswered, ignored := slices.ContainsFunc(again, (*letter).isUnanswered), slices.ContainsFunc(again, (*letter).isIgnored)
	k.mu.Unlock()
	for _, l := range again {
		k.send(l)
	}
	// The caller's own connection says only when asked what it must not do.
	if err := k.nats.LastError(); unanswered {
		if subject, ok := forbidden(err); ok {
			k.deny(subject, err)
		}
	}
	if ignored {
		k.revive()
	}
}

// due takes the letters whose time has come, in the order of their first try.
func (k *courier) due(now time.Time) (due []*letter) {
	for _, l := range k.open {
		if l.due.After(now) {
			continue
		}
		if !l.waiting {
			l.unsure, l.reason = true, errNoAnswer
			l.tries++
			l.silence++
			k.complain(l)
		}
		l.waiting, l.due = false, now.Add(k.wait)
		due = append(due, l)
	}
	slices.SortFunc(due, func(a, b *letter) int { return cmp.Compare(a.token, b.token) })
	return due
}

var errNoAnswer = errors.New("no answer from the broker")

// again repeats everything under way at once: the connection was lost, and with
// it perhaps the messages or the answers.
func (k *courier) again() {
	k.mu.Lock()
	now := time.Now()
	for _, l := range k.open {
		l.due, l.silence = now, 0
	}
	k.mu.Unlock()
	k.sweep()
}

// deny ends what the server does not allow. Without answers nothing can ever be
// known, so a forbidden inbox ends everything.
func (k *courier) deny(subject string, err error) {
	all := strings.HasPrefix(subject, k.inbox)
	k.mu.Lock()
	var next []*letter
	for _, l := range k.open {
		if !all && l.msg.Subject != subject {
			continue
		}
		if n := k.decide(l, err); n != nil {
			next = append(next, n)
		}
	}
	k.mu.Unlock()
	for _, l := range next {
		k.send(l)
	}
}

// drop says that nobody waits for these letters any more. Those that were never
// sent are taken back; those that were are followed until it is known whether
// they are stored, so that nothing of their stream overtakes them. It returns how
// many had no answer and why the first of them has none.
func (k *courier) drop(letters []*letter) (unanswered int, reason error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, l := range letters {
		if l.token != 0 && k.open[l.token] != l {
			continue
		}
		unanswered++
		l.dropped = true
		if reason == nil {
			reason = l.reason
		}
	}
	return unanswered, reason
}

func (k *courier) seal(t *tally) {
	k.mu.Lock()
	defer k.mu.Unlock()
	t.seal()
}

// errorsOf are those that a tally has by now.
func (k *courier) errorsOf(t *tally) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return t.err()
}

// drain takes no more letters and waits until none is under way, at most d.
func (k *courier) drain(d time.Duration) {
	k.mu.Lock()
	k.closed = cmp.Or(k.closed, ErrClosed)
	idle := make(chan struct{})
	k.idle = idle
	k.rest()
	k.mu.Unlock()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-idle:
	case <-timer.C:
	}
}

// close ends everything that is still under way.
func (k *courier) close(err error) {
	k.mu.Lock()
	k.closed = cmp.Or(k.closed, err)
	k.timer.Stop()
	for token, l := range k.open {
		delete(k.open, token)
		for ; l != nil; l = l.next {
			k.finish(l, fmt.Errorf("publish message %s: %w: %w", l.id, err, ErrUnknownOutcome))
		}
	}
	clear(k.lanes)
	k.rest()
	k.mu.Unlock()
	_ = k.sub.Unsubscribe() // fails only on a closed connection
}
