package transport

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/internal/crash"
)

const (
	// pullExpires is how long the broker holds a request that it cannot fill: also
	// one of an owner that was stopped, whose messages nobody would see before
	// AckWait is over. So it is shorter than any lease lives without its owner. The
	// end of each request is also the sign that the broker is there.
	pullExpires = 2 * time.Second
	// silence is how long nothing may come before the session is begun anew.
	silence = 5 * pullExpires
	// strangersWait is how often to look whether the requests of others are over.
	strangersWait = 50 * time.Millisecond
	// apiWait is how long an answer of the broker's API may take.
	apiWait = 5 * time.Second
	// pullBytes is how much one shard may have in the client's hands, in bytes,
	// where messages are large.
	pullBytes = 16 << 20

	firstSessionWait = 50 * time.Millisecond
	lastSessionWait  = 2 * time.Second
)

// Delivery is a message that the broker has given to this receiver.
type Delivery struct {
	// Message is what was published, if Err is nil.
	Message weir.Message
	// Event is Message as the store has numbered it, where it came by Subscribe.
	Event weir.Event
	// Err says why the message cannot be read: an *UnreadableError, or an
	// *OmittedError for an event without its payload. Keep what it holds, then ack.
	Err error
	// Failures is how often the function given to Subscribe has failed with it.
	Failures int
	// Subject, Header and Data are the message as it came.
	Subject string
	Header  nats.Header
	Data    []byte
	// Shard is where it was received.
	Shard weir.Shard
	// Sequence is its place in the JetStream stream.
	Sequence uint64
	// Stored is when the broker stored it, by the broker's clock.
	Stored time.Time
	// Redelivered is true if the broker gave the message out before, to us or to
	// an earlier owner: it may be stored already.
	Redelivered bool

	held *held

	// Guarded by held.mu.
	reply   string    // where acks and extensions go
	touched time.Time // when it was given out or extended
}

// Ack tells the broker that the message is stored: call it after the commit and
// never before. It does not wait. An ack that is lost, also one that returns an
// error, is harmless: the message comes again. Safe to repeat, from any
// goroutine, and after Receive has returned.
func (d *Delivery) Ack() error { return d.held.ack(d) }

// Release gives the message back without acknowledging it: it is extended no
// longer and comes again, at the latest when somebody next receives the shard.
func (d *Delivery) Release() { d.held.release(d) }

// source is a durable consumer to receive from.
type source struct {
	names    names // of its stream
	consumer string
	what     string                     // for people
	read     func(*nats.Msg, *Delivery) // makes sense of a message
}

// receiver is one Receive or one Subscribe.
type receiver struct {
	source
	conn    *Conn
	deliver func(*Delivery)
	held    *held
	denied  chan error // what the server forbids us

	// Owned by run.
	created time.Time // of the stream; another one is another stream
	highest uint64    // sequence seen
	before  uint64    // sequence that the broker had given out before the session
	heard   bool      // something from the broker since the session began
}

// Receive gives the messages of a shard to deliver, one after the other in the
// order of the broker, until ctx ends; then it delivers what the client already
// holds and returns nil. The stream must be declared and nobody else may receive
// the shard.
//
// deliver should only enqueue: while it blocks nothing more is asked for. The
// caller acks each Delivery after its commit, also after Receive has returned;
// until then the broker is kept from giving it out again. A message may come
// twice.
//
// It first waits, some two seconds at most, until the broker has no open request of
// an earlier owner, who may be stopped or cut off, and then resets the consumer to its
// ack floor; and does so again after a lost connection, and when something was given
// to somebody else meanwhile: what others or the broken connection left un-acked comes
// at once and in order. What this call has already delivered is not delivered again.
//
// A *GoneError says that the stream or consumer was deleted or replaced: Declare
// and call again. A connection that is lost is waited for.
func (c *Conn) Receive(ctx context.Context, shard weir.Shard, deliver func(*Delivery)) error {
	return c.ReceiveWhile(ctx, c.life, shard, deliver)
}

// ReceiveWhile is Receive for the time of a lease on the shard. When lease ends,
// whatever was delivered and not acked is given back, also after ReceiveWhile has
// returned: it is extended no longer, its acks are not sent, and it comes to whoever
// receives the shard next.
func (c *Conn) ReceiveWhile(ctx, lease context.Context, shard weir.Shard, deliver func(*Delivery)) error {
	if shard < 0 || int(shard) >= c.config.Shards {
		return fmt.Errorf("receive shard %d: there are %d", shard, c.config.Shards)
	}
	return c.receive(ctx, lease, source{c.names, c.names.consumer(shard), fmt.Sprint("shard ", shard), func(m *nats.Msg, d *Delivery) {
		d.Shard = shard
		c.readMessage(m, d)
	}}, deliver)
}

func (c *Conn) receive(ctx, lease context.Context, from source, deliver func(*Delivery)) error {
	r := &receiver{source: from, conn: c, deliver: deliver, held: newHeld(c), denied: make(chan error, 1)}
	ctx, cancel := both(ctx, lease)
	defer cancel()
	if err := c.enter(r); err != nil {
		return err
	}
	defer c.leave(r)
	r.held.follow(lease)
	return r.run(ctx)
}

// enter registers a receiver and starts the extending of its deliveries, which
// goes on after Receive until all are acked or the connection is closed.
func (c *Conn) enter(r *receiver) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.life.Err() != nil {
		return ErrClosed
	}
	c.receivers[r] = struct{}{}
	c.parts.Go(func() { r.held.extend(c.config.AckWait, c.life.Done()) })
	return nil
}

func (c *Conn) leave(r *receiver) {
	c.mu.Lock()
	delete(c.receivers, r)
	c.mu.Unlock()
	r.held.leave()
}

// deny tells the receiver that the server forbids a subject, if it needs that one.
func (r *receiver) deny(subject string, err error) {
	if !r.needs(subject) {
		return
	}
	select {
	case r.denied <- err:
	default:
	}
}

func (r *receiver) needs(subject string) bool {
	return strings.HasPrefix(subject, r.inboxPrefix()) || slices.Contains([]string{
		"$JS.API.STREAM.INFO." + r.names.stream(), r.api("INFO"), r.api("RESET"), r.api("MSG.NEXT"),
	}, subject)
}

// inboxPrefix begins every inbox of the connection.
func (r *receiver) inboxPrefix() string {
	prefix := r.conn.nats.Opts.InboxPrefix
	if prefix == "" {
		prefix = "_INBOX"
	}
	return prefix + "."
}

func (r *receiver) api(verb string) string {
	return "$JS.API.CONSUMER." + verb + "." + r.names.stream() + "." + r.consumer
}

// run keeps a session going until ctx ends or there is nothing to receive from.
func (r *receiver) run(ctx context.Context) error {
	ctx, cancel := both(ctx, r.conn.life)
	defer cancel()
	wait := firstSessionWait
	for {
		r.heard = false
		err := r.session(ctx)
		var again *sessionError
		switch {
		case ctx.Err() != nil:
			return nil
		case !errors.As(err, &again):
			r.held.void()
			return fmt.Errorf("receive %s: %w", r.what, err)
		}
		r.conn.log.Debug("receive again", "from", r.what, "reason", again.reason)
		if r.heard {
			wait = firstSessionWait
		}
		pause(ctx, jitter(wait))
		wait = min(2*wait, lastSessionWait)
	}
}

// sessionError ends a session and begins another.
type sessionError struct{ reason string }

func (e *sessionError) Error() string { return e.reason }

// session receives over one unbroken connection.
func (r *receiver) session(ctx context.Context) error {
	connection := r.conn.unbroken()
	stretch, cancel := both(ctx, connection)
	defer cancel()
	s := &session{
		receiver: r,
		arrivals: make(chan arrival, r.conn.config.Prefetch+64),
		closed:   make(chan struct{}),
	}
	if !r.conn.Connected() {
		return r.awaitConnection(stretch)
	}
	if err := r.reset(stretch); err != nil {
		return err
	}
	crash.At(crash.ReceiveReset)
	r.held.begin(connection)
	return s.run(ctx, stretch)
}

func (r *receiver) awaitConnection(stretch context.Context) error {
	<-stretch.Done()
	if r.conn.nats.IsClosed() {
		return nats.ErrConnectionClosed
	}
	return &sessionError{"connection lost"}
}

// reset takes the consumer back to its ack floor, so that everything un-acked
// comes again in order, once it is sure that the stream is the one we knew.
func (r *receiver) reset(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, pullExpires+apiWait)
	defer cancel()
	given, last, err := r.awaitStrangers(ctx)
	if err != nil {
		return err
	}
	r.before = min(given, last)
	info, err := r.conn.js.ResetConsumer(ctx, r.names.stream(), r.consumer)
	if err != nil {
		return r.trouble(err)
	}
	if info.ResetSeq > last+1 {
		return r.rewind(ctx, info.ResetSeq, last)
	}
	return nil
}

// awaitStrangers waits until the broker has no open request for the consumer, as long
// as one lives at most, and returns the last sequence that was given out, and that of the
// stream. A request whose client has gone or unsubscribed is none: only that of an earlier
// owner that was stopped, is cut off, or does not know yet that it is one. What the broker
// gives it meanwhile comes to us with the reset.
//
// It also finds a consumer that is not there, which to reset would only time out.
func (r *receiver) awaitStrangers(ctx context.Context) (given, last uint64, err error) {
	for began := time.Now(); ; pause(ctx, strangersWait) {
		if last, err = r.recognise(ctx); err != nil {
			return 0, 0, err
		}
		consumer, err := r.conn.js.Consumer(ctx, r.names.stream(), r.consumer)
		if err != nil {
			return 0, 0, r.trouble(err)
		}
		info := consumer.CachedInfo()
		if info.NumWaiting == 0 || time.Since(began) > pullExpires {
			return info.Delivered.Stream, last, nil
		}
	}
}

// recognise makes sure that the stream is not another one, nor an earlier state
// of it, and returns its last sequence.
func (r *receiver) recognise(ctx context.Context) (last uint64, err error) {
	stream, err := r.conn.js.Stream(ctx, r.names.stream())
	if err != nil {
		return 0, r.trouble(err)
	}
	info := stream.CachedInfo()
	switch {
	case !r.created.IsZero() && !r.created.Equal(info.Created):
		return 0, r.gone("was replaced", nil)
	case r.highest > info.State.LastSeq:
		return 0, r.gone("went back to an earlier state", nil)
	}
	r.created = info.Created
	return info.State.LastSeq, nil
}

// rewind mends a consumer whose ack floor is beyond the end of its stream, as
// after a restore of older files: it would skip what is published next.
func (r *receiver) rewind(ctx context.Context, floor, last uint64) error {
	r.conn.log.Warn("consumer is ahead of its stream, begins anew", "consumer", r.consumer, "floor", floor, "last", last)
	if _, err := r.conn.js.ResetConsumerToSequence(ctx, r.names.stream(), r.consumer, 1); err != nil {
		return r.trouble(err)
	}
	return nil
}

// trouble decides what an error of the broker's API means for the session.
func (r *receiver) trouble(err error) error {
	if errors.Is(err, jetstream.ErrStreamNotFound) || errors.Is(err, jetstream.ErrConsumerNotFound) {
		return r.gone("is not there", err)
	}
	if err := r.forbidden(); err != nil {
		return err
	}
	if errors.Is(err, context.DeadlineExceeded) {
		r.conn.revive()
	}
	return &sessionError{err.Error()}
}

// forbidden is what the server does not allow us to do with the consumer, or nil.
// The caller's own connection reports it only when asked.
func (r *receiver) forbidden() error {
	select {
	case err := <-r.denied:
		return err
	default:
	}
	err := r.conn.nats.LastError()
	if subject, ok := forbidden(err); ok && r.needs(subject) {
		return err
	}
	return nil
}

func (r *receiver) gone(reason string, err error) error {
	return &GoneError{r.names.stream() + " consumer " + r.consumer, reason, err}
}

// session is the receiving between two resets.
type session struct {
	*receiver
	sub      *nats.Subscription
	arrivals chan arrival
	closed   chan struct{} // when the subscription calls back no more
	seen     atomic.Int64  // when something arrived last, unix nanoseconds

	// What the broker gives out is numbered from 1 after a reset. A number that does
	// not come to us went to somebody else.
	came  atomic.Uint64 // the last number that came
	given atomic.Uint64 // the last number there was, as the broker says

	// Owned by run.
	asked int // messages asked for and not delivered
}

// arrival is a delivery, or what the broker says about a request.
type arrival struct {
	delivery *Delivery
	err      error // ends the session, after the delivery
	unfilled int   // messages asked for that do not come
}

// run ends with ctx, or with an error when the stretch of connection does.
func (s *session) run(ctx, stretch context.Context) (err error) {
	if s.sub, err = s.conn.nats.Subscribe(s.conn.nats.NewInbox(), s.arrive); err != nil {
		return &sessionError{err.Error()}
	}
	s.sub.SetClosedHandler(func(string) { close(s.closed) })
	_ = s.sub.SetPendingLimits(-1, -1) // bounded by what we ask for
	err = s.receive(ctx, stretch)
	s.drain(err == nil)
	return err
}

// receive delivers until ctx ends or the session is broken.
func (s *session) receive(ctx, stretch context.Context) error {
	tick := time.NewTicker(pullExpires)
	defer tick.Stop()
	for {
		if err := s.pull(); err != nil {
			return err
		}
		select {
		case a := <-s.arrivals:
			if err := s.take(a); err != nil {
				return err
			}
		case <-tick.C:
			if err := s.check(); err != nil {
				return err
			}
		case err := <-s.denied:
			return err
		case <-stretch.Done():
			if ctx.Err() != nil {
				return nil
			}
			return &sessionError{"connection lost"}
		}
	}
}

// check is what is looked at from time to time.
func (s *session) check() error {
	if err := s.checkSilence(); err != nil {
		return err
	}
	return s.checkStrays()
}

// checkSilence ends the session when nothing comes, not even the end of a request, or
// at once where the broker has said why.
func (s *session) checkSilence() error {
	quiet := time.Since(time.Unix(0, s.seen.Load()))
	if len(s.arrivals) > 0 || quiet < pullExpires*3/2 {
		return nil
	}
	if err := s.forbidden(); err != nil || quiet < silence {
		return err
	}
	s.conn.revive()
	return &sessionError{"the broker is silent"}
}

var errStray = &sessionError{"somebody else was given messages"}

// checkStrays ends the session when something was given out before the last check and
// has not come by now: it went to somebody else, and comes to us with the next reset.
// Then it asks for the next check.
func (s *session) checkStrays() error {
	if s.given.Load() > s.came.Load() {
		return errStray
	}
	if err := s.conn.nats.PublishRequest(s.api("INFO"), s.sub.Subject, nil); err != nil {
		return &sessionError{err.Error()}
	}
	return nil
}

// pull asks for more when half of what was asked for has been delivered. Small
// requests, so that a blocked caller holds little.
func (s *session) pull() error {
	most := s.conn.config.Prefetch
	if s.asked > most/2 {
		return nil
	}
	request, err := json.Marshal(map[string]any{
		"batch": most - s.asked, "expires": pullExpires, "max_bytes": max(pullBytes, 2*s.conn.nats.MaxPayload()),
	})
	if err != nil {
		return err
	}
	s.asked = most
	s.seen.Store(time.Now().UnixNano())
	if err := s.conn.nats.PublishRequest(s.api("MSG.NEXT"), s.sub.Subject, request); err != nil {
		return &sessionError{err.Error()}
	}
	return nil
}

// take handles one arrival in the goroutine of the caller.
func (s *session) take(a arrival) error {
	s.heard = s.heard || a.err == nil || a.delivery != nil
	if a.delivery != nil {
		s.asked--
		s.highest = max(s.highest, a.delivery.Sequence)
		crash.At(crash.ReceiveArrived)
		s.receiver.deliver(a.delivery)
	}
	s.asked = max(0, s.asked-a.unfilled)
	return a.err
}

// drain delivers what has arrived. While the connection stands it first lets the
// broker finish what is on its way.
func (s *session) drain(gently bool) {
	if gently && s.conn.Connected() {
		_ = s.sub.Drain()
	} else {
		_ = s.sub.Unsubscribe()
	}
	limit := time.NewTimer(drainTimeout)
	defer limit.Stop()
	for {
		select {
		case a := <-s.arrivals:
			_ = s.take(a)
		case <-limit.C:
			_ = s.sub.Unsubscribe()
		case <-s.closed:
			s.rest()
			return
		}
	}
}

func (s *session) rest() {
	for {
		select {
		case a := <-s.arrivals:
			_ = s.take(a)
		default:
			return
		}
	}
}

// arrive is called by the client for everything the broker sends. It does not
// block: there is room for all that was asked for.
func (s *session) arrive(m *nats.Msg) {
	if m.Reply == "" && len(m.Data) > 0 {
		s.arriveInfo(m)
		return
	}
	s.seen.Store(time.Now().UnixNano())
	if len(m.Data) == 0 && m.Header.Get("Status") != "" && m.Reply == "" {
		s.arriveStatus(m)
		return
	}
	d, number, err := s.read(m)
	if err != nil {
		s.arrivals <- arrival{err: &sessionError{err.Error()}}
		return
	}
	var stray error
	if last := s.came.Swap(number); number != last+1 {
		stray = errStray
	}
	known, err := s.held.add(d)
	switch {
	case err != nil:
		s.arrivals <- arrival{err: s.gone("was replaced unseen", err)}
	case known:
		s.arrivals <- arrival{unfilled: 1, err: stray}
	default:
		s.arrivals <- arrival{delivery: d, err: stray}
	}
}

// arriveInfo notes how much the broker has given out. When it does not say so, the
// next session finds out why.
func (s *session) arriveInfo(m *nats.Msg) {
	var answer struct {
		jetstream.ConsumerInfo
		Error *jetstream.APIError `json:"error"`
	}
	if err := json.Unmarshal(m.Data, &answer); err != nil || answer.Error != nil {
		s.arrivals <- arrival{err: &sessionError{"the broker does not know the consumer"}}
		return
	}
	s.given.Store(answer.Delivered.Consumer)
}

// arriveStatus handles what the broker says about a request.
func (s *session) arriveStatus(m *nats.Msg) {
	code, text := m.Header.Get("Status"), m.Header.Get("Description")
	unfilled, _ := strconv.Atoi(m.Header.Get("Nats-Pending-Messages"))
	switch {
	case code == "408", code == "409" && unfilled > 0, text == "Batch Completed": // it ended, as requests do
		s.arrivals <- arrival{unfilled: unfilled}
	case code == "409" && strings.Contains(strings.ToLower(text), "deleted"):
		s.arrivals <- arrival{err: s.gone("was deleted", nil)}
	case code == "400":
		s.arrivals <- arrival{err: fmt.Errorf("pull from %s: %s", s.consumer, text)}
	default:
		s.arrivals <- arrival{err: &sessionError{"the broker says " + code + " " + text}}
	}
}

// read makes a Delivery of what the broker sent, and returns its number.
func (s *session) read(m *nats.Msg) (d *Delivery, number uint64, err error) {
	about, err := m.Metadata()
	if err != nil {
		return nil, 0, fmt.Errorf("a message without acknowledgement subject on %q", m.Subject)
	}
	d = &Delivery{
		Subject:     m.Subject,
		Header:      m.Header,
		Data:        m.Data,
		Sequence:    about.Sequence.Stream,
		Stored:      about.Timestamp,
		Redelivered: about.NumDelivered > 1 || about.Sequence.Stream <= s.before,
		held:        s.held,
		reply:       m.Reply,
		touched:     time.Now(),
	}
	s.source.read(m, d)
	return d, about.Sequence.Consumer, nil
}

func (c *Conn) readMessage(m *nats.Msg, d *Delivery) {
	var err error
	if d.Message, err = c.names.message(m, c.config.MaxDataBytes); err != nil {
		d.Err = &UnreadableError{m.Subject, m.Header, m.Data, err}
	}
}

// message reads a message of ours. What it accepts the store accepts too, but for
// an empty stream id, which is a matter of policy there. limit is the largest
// payload.
func (n names) message(m *nats.Msg, limit int) (weir.Message, error) {
	stream, err := n.parse(m.Subject)
	if err != nil {
		return weir.Message{}, err
	}
	message, err := decode(stream, m.Header, m.Data)
	if err != nil {
		return weir.Message{}, err
	}
	if err := message.Validate(limit); err != nil && !errors.As(err, new(*weir.EmptyStreamError)) {
		return weir.Message{}, err
	}
	return message, nil
}
