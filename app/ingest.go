package app

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"
	"golang.org/x/sync/errgroup"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/batching"
	"github.com/weir-es/weir/eventstore"
	"github.com/weir-es/weir/internal/crash"
	"github.com/weir-es/weir/transport"
)

// counts are what an app did since it was made.
type counts struct {
	stored, duplicates, deadLetters, refused, handled, repeated atomic.Int64
}

// openItems is how many messages all windows of an app hold together.
const openItems = 50_000

// ingest stores the facts of a shard until soft ends, or the lease on it. When the
// broker lost the stream or the consumer, they are declared again.
func (r *run) ingest(soft, lease context.Context, shard weir.Shard) error {
	wait := backoff.NewExponentialBackOff()
	for {
		began := time.Now()
		err := r.ingestOnce(soft, lease, shard)
		if soft.Err() != nil || lease.Err() != nil {
			return nil
		}
		r.config.Logger.Warn("receiving stopped, starting again", "shard", shard, "error", err)
		if time.Since(began) > time.Minute {
			wait.Reset()
		}
		ended := time.Now()
		if !sleep(soft, wait.NextBackOff()) {
			return nil
		}
		if err := r.declare(soft, ended); err != nil && soft.Err() == nil {
			r.config.Logger.Warn("cannot declare the streams", "error", err)
		}
	}
}

// declare declares what the broker lost, once for all shards that miss it since.
func (r *run) declare(ctx context.Context, since time.Time) error {
	r.declaring.Lock()
	defer r.declaring.Unlock()
	if r.declared.After(since) {
		return nil
	}
	began := time.Now()
	err := r.broker.Declare(ctx)
	if err == nil {
		r.declared = began
	}
	return err
}

// ingestOnce receives, gathers and stores until soft ends, then flushes what it
// has. Until a message is stored it is not acknowledged. When the lease ends, what it
// has is for the next owner.
func (r *run) ingestOnce(soft, lease context.Context, shard weir.Shard) error {
	deliveries := make(chan *transport.Delivery, 256)
	var g errgroup.Group
	g.Go(func() error {
		defer close(deliveries)
		return r.broker.ReceiveWhile(soft, lease, shard, func(d *transport.Delivery) {
			select {
			case deliveries <- d:
				crash.At(crash.WindowJoined)
			case <-lease.Done():
			}
		})
	})
	g.Go(func() error {
		return r.collector(shard).Collect(lease, deliveries)
	})
	return g.Wait()
}

func (r *run) collector(shard weir.Shard) batching.Collector[weir.StreamID, *transport.Delivery] {
	window := r.config.Inbox.Window
	if window.Limit == 0 {
		window.Limit = max(openItems/r.Store.Shards(), 1000)
	}
	return batching.Collector[weir.StreamID, *transport.Delivery]{
		Window:   window,
		Gauge:    &r.inbox,
		Category: weir.StreamID.Category,
		Place:    func(d *transport.Delivery) [16]byte { return d.Message.ID },
		Key:      func(d *transport.Delivery) weir.StreamID { return d.Message.Stream },
		Compare:  func(a, b *transport.Delivery) int { return weir.CompareMessages(a.Message, b.Message) },
		Size:     func(d *transport.Delivery) int { return len(d.Data) },
		Flush:    r.store,
		Failed: func(err error, attempt int) {
			if r.hard.Err() == nil {
				r.config.Logger.Warn("cannot store, keeping the batch", "shard", shard, "attempt", attempt, "error", err)
			}
		},
	}
}

// How much is stored in one transaction.
const (
	partItems = 1000
	partBytes = 8 << 20
)

// store stores batches, then acknowledges them. Repeating it changes nothing.
func (r *run) store(ctx context.Context, batches []batching.Batch[weir.StreamID, *transport.Delivery]) error {
	crash.At(crash.WindowClosed)
	var deliveries []*transport.Delivery
	for _, batch := range batches {
		deliveries = append(deliveries, batch.Items...)
	}
	for len(deliveries) > 0 {
		n := part(deliveries)
		if err := r.storePart(ctx, deliveries[:n]); err != nil {
			return err
		}
		deliveries = deliveries[n:]
	}
	return nil
}

// part is how many of the first deliveries go together: one at least.
func part(deliveries []*transport.Delivery) (n int) {
	size := 0
	for n < min(len(deliveries), partItems) {
		if size += len(deliveries[n].Data); n > 0 && size > partBytes {
			break
		}
		n++
	}
	return n
}

func (r *run) storePart(ctx context.Context, part []*transport.Delivery) error {
	var good []*transport.Delivery
	for _, d := range part {
		if why := reject(d); why == nil {
			good = append(good, d)
		} else if err := r.bury(ctx, d, why); err != nil {
			return err
		}
	}
	if err := r.storeFacts(ctx, good); err != nil {
		return err
	}
	crash.At(crash.WindowStored)
	for _, d := range part {
		if err := d.Ack(); err != nil {
			// It is stored: when it comes again, it is acknowledged then.
			r.config.Logger.Debug("an acknowledgement was lost", "sequence", d.Sequence, "error", err)
		}
		crash.At(crash.AckSent)
	}
	crash.At(crash.AckDone)
	return nil
}

// reject says why a message can never become an event.
func reject(d *transport.Delivery) error {
	switch {
	case d.Err != nil: // the transport has looked at everything else
		return d.Err
	case d.Message.Stream.IsEmpty():
		return &weir.EmptyStreamError{ID: d.Message.ID, Type: d.Message.Type, Stream: d.Message.Stream}
	}
	return nil
}

// storeFacts stores facts together, or, where the database refuses one of them
// for good, one by one, so that it stops nobody else.
func (r *run) storeFacts(ctx context.Context, good []*transport.Delivery) error {
	facts := make([]weir.Message, len(good))
	repeated := false
	for i, d := range good {
		facts[i] = d.Message
		repeated = repeated || d.Redelivered
	}
	done, err := r.Store.Ingest(ctx, repeated, facts...)
	switch {
	case err == nil:
		r.count.stored.Add(int64(done.Stored))
		r.count.duplicates.Add(int64(done.Duplicates))
		return nil
	case !eventstore.IsRefused(err):
		return err
	case len(good) == 1:
		return r.bury(ctx, good[0], err)
	}
	for i := range good {
		if err := r.storeFacts(ctx, good[i:i+1]); err != nil {
			return err
		}
	}
	return nil
}

// bury keeps a message that cannot become an event, whole.
func (r *run) bury(ctx context.Context, d *transport.Delivery, why error) error {
	letter := eventstore.DeadLetter{Reason: reason(why), Error: why.Error(), Subject: d.Subject, Header: headerBytes(d), Data: d.Data}
	if err := r.Store.KeepDeadLetter(ctx, letter); err != nil {
		return err
	}
	r.count.deadLetters.Add(1)
	r.config.Logger.Error("kept as a dead letter", "subject", d.Subject, "sequence", d.Sequence, "error", why)
	return nil
}

// reason is the word of the closed set that fits an error.
func reason(err error) string {
	var empty *weir.EmptyStreamError
	var large *weir.TooLargeError
	var unreadable *transport.UnreadableError
	switch {
	case errors.As(err, &empty):
		return "empty_stream_id"
	case errors.As(err, &large):
		return "too_large"
	case errors.As(err, &unreadable):
		return "serialization"
	case eventstore.IsRefused(err):
		return "storage"
	}
	return "validation"
}

// headerBytes are the headers as they stand on the wire, in the order of names.
func headerBytes(d *transport.Delivery) []byte {
	var b bytes.Buffer
	for _, name := range sorted(d.Header) {
		for _, value := range d.Header[name] {
			fmt.Fprintf(&b, "%s: %s\r\n", name, value)
		}
	}
	return b.Bytes()
}
