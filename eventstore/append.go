package eventstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/internal/crash"
)

// Append is what one call wants of one stream.
type Append struct {
	Stream weir.StreamID
	// Expected is the version the stream must be at: AnyVersion, NewStream or
	// a number.
	Expected weir.ExpectedVersion
	// Messages to append. One without an id gets one. Their Stream is set.
	// Without any, the expected version alone is checked.
	Messages []weir.Message
}

// Limits of one append.
const (
	MaxBatch      = 10_000   // messages
	MaxBatchBytes = 64 << 20 // of payload
)

// Append adds messages to one stream and returns them as events, in the order
// given. Versions follow the order of ids.
//
// Errors: *weir.ConflictError when the stream is elsewhere; the errors of
// weir.Message.Validate; nothing is stored then. Safe to repeat with the same
// ids: what is stored already is returned, also with the old expected version.
// When ctx ends first the outcome is unknown; repeat with the same ids.
func (s *Store) Append(ctx context.Context, stream weir.StreamID, expected weir.ExpectedVersion, messages ...weir.Message) ([]weir.Event, error) {
	return s.AppendAll(ctx, Append{stream, expected, messages})
}

// AppendAll is Append for several streams at once: all or nothing.
func (s *Store) AppendAll(ctx context.Context, appends ...Append) ([]weir.Event, error) {
	r, err := s.newRequest(appends, false)
	if err != nil || len(appends) == 0 {
		return nil, err
	}
	crash.At(crash.AppendChecked)
	if err := s.group.do(ctx, s, r); err != nil {
		return nil, fmt.Errorf("append %d events to %s: %w", len(r.ids), r.where(), err)
	}
	crash.At(crash.AppendReturned)
	return r.events(), nil
}

// AppendTx is AppendAll in the caller's transaction, which decides whether it
// happened. Until the transaction ends, readers of the log wait at the events
// before it; writers of other streams do not. Call it once per transaction, or
// with streams in the order of their names, or two transactions may deadlock.
func (s *Store) AppendTx(ctx context.Context, tx pgx.Tx, appends ...Append) ([]weir.Event, error) {
	r, err := s.newRequest(appends, false)
	if err != nil || len(appends) == 0 {
		return nil, err
	}
	w := &writer{s: s, requests: []*request{r}, careful: true}
	defer s.existing.lose(w.streams()) // only the caller will know where they are
	err = w.run(ctx, tx, nil, nil)
	if errors.Is(err, errDeleted) { // which is forgotten now
		err = w.run(ctx, tx, nil, nil)
	}
	if err != nil {
		return nil, fmt.Errorf("append %d events to %s: %w", len(r.ids), r.where(), err)
	}
	if r.err == nil {
		r.err = s.inline.fold(ctx, tx, w.plan.rows)
	}
	if r.err != nil {
		return nil, fmt.Errorf("append %d events to %s: %w", len(r.ids), r.where(), r.err)
	}
	return r.events(), nil
}

// Ingested says what became of a batch of facts.
type Ingested struct {
	Stored     int
	Duplicates int
}

// Ingest stores facts that were emitted elsewhere, of any number of streams, all
// or nothing and each once, whatever the versions of their streams. A fact keeps
// its id as its order, also when later ones are stored already. Safe to repeat.
//
// repeated says that some are likely stored already; it is only a hint.
func (s *Store) Ingest(ctx context.Context, repeated bool, facts ...weir.Message) (Ingested, error) {
	r, err := s.newRequest(byStream(facts), true)
	if err != nil || len(r.ids) == 0 {
		return Ingested{}, err
	}
	r.careful = repeated
	if err := s.group.do(ctx, s, r); err != nil {
		return Ingested{}, fmt.Errorf("store %d facts of %s: %w", len(facts), r.where(), err)
	}
	return Ingested{Stored: r.stored, Duplicates: len(facts) - r.stored}, nil
}

func byStream(messages []weir.Message) []Append {
	var appends []Append
	at := map[weir.StreamID]int{}
	for _, m := range messages {
		stream := m.Stream.Resolve(m.ID)
		i, ok := at[stream]
		if !ok {
			i = len(appends)
			at[stream] = i
			appends = append(appends, Append{Stream: stream, Expected: weir.AnyVersion})
		}
		appends[i].Messages = append(appends[i].Messages, m)
	}
	return appends
}

// request is one caller's append while it is on its way.
type request struct {
	appends []Append
	facts   bool
	careful bool // look for stored ids beforehand
	apart   bool // store it without the inline views that cannot fold it
	size    int  // bytes of payload

	ids    []weir.ID     // in the caller's order
	found  []*weir.Event // the same, answered
	stored int
	err    error
	done   chan struct{}
}

// newRequest checks everything that can be checked before anything is sent.
func (s *Store) newRequest(appends []Append, facts bool) (*request, error) {
	r := &request{appends: slices.Clone(appends), facts: facts, done: make(chan struct{})}
	seen := map[weir.StreamID]bool{}
	for i := range r.appends {
		a := &r.appends[i]
		if a.Stream == weir.Singleton && len(a.Messages) != 1 {
			return nil, fmt.Errorf("append %d messages to a singleton: each is a stream of its own, append them one by one", len(a.Messages))
		}
		if err := s.prepare(a, r); err != nil {
			return nil, err
		}
		switch {
		case len(r.ids) > MaxBatch:
			return nil, &weir.BatchTooLargeError{What: "messages", Size: len(r.ids), Limit: MaxBatch}
		case r.size > MaxBatchBytes:
			return nil, &weir.BatchTooLargeError{What: "bytes of payload", Size: r.size, Limit: MaxBatchBytes}
		}
		if seen[a.Stream] {
			return nil, &weir.InvalidStreamError{Stream: a.Stream, Reason: "is named twice in one append"}
		}
		seen[a.Stream] = true
	}
	// Every writer locks in this order.
	slices.SortFunc(r.appends, func(a, b Append) int { return cmp.Compare(a.Stream, b.Stream) })
	return r, nil
}

func (s *Store) prepare(a *Append, r *request) error {
	if !r.facts { // which are in slices of our own
		a.Messages = slices.Clone(a.Messages)
	}
	for i := range a.Messages {
		m := &a.Messages[i]
		if m.ID == (weir.ID{}) {
			m.ID = weir.NewID()
		}
		a.Stream = a.Stream.Resolve(m.ID)
		m.Stream = a.Stream
		if err := m.Validate(s.config.MaxDataBytes); err != nil {
			return err
		}
		r.ids = append(r.ids, m.ID)
		r.size += len(m.Data)
	}
	if !slices.IsSortedFunc(a.Messages, weir.CompareMessages) {
		slices.SortStableFunc(a.Messages, weir.CompareMessages) // versions follow ids
	}
	if a.Expected < weir.AnyVersion {
		return fmt.Errorf("append to %s: expected version %d means nothing", a.Stream, a.Expected)
	}
	return nil
}

func (r *request) answer(known map[weir.ID]*weir.Event) {
	r.found = r.found[:0]
	for _, id := range r.ids {
		r.found = append(r.found, known[id])
	}
}

func (r *request) events() []weir.Event {
	events := make([]weir.Event, len(r.found))
	for i, e := range r.found {
		events[i] = *e
	}
	return events
}

func (r *request) where() string {
	if len(r.appends) == 1 {
		return string(r.appends[0].Stream)
	}
	return fmt.Sprintf("%d streams", len(r.appends))
}
