package transport

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/weir-es/weir"
)

const (
	// duplicateWindow is how long the broker remembers message ids: a first
	// filter only. Each id costs it some 150 bytes.
	duplicateWindow = 2 * time.Minute

	metaShards = "weir.shards"
	metaScheme = "weir.scheme"
	scheme     = "1" // of subjects and headers

	// declareAtOnce is how many consumers are created at a time.
	declareAtOnce = 8
	// declareTries is how often a declaration begins again because somebody else
	// declared at the same time.
	declareTries = 10
)

// Declare creates the ingest stream and one durable consumer per shard, or makes
// sure that they are as configured. What differs is corrected where that loses
// nothing and the server allows it, else refused with a *DriftError; another
// number of shards is refused with a *ShardsError, a server that is too old with
// a *VersionError. Safe to repeat and to call from several processes at once.
func (c *Conn) Declare(ctx context.Context) error {
	if err := c.checkVersion(); err != nil {
		return err
	}
	return c.persist(ctx, func(ctx context.Context) error {
		stream, _, err := c.declareStream(ctx, c.streamConfig())
		if err != nil {
			return err
		}
		return c.declareConsumers(ctx, stream)
	})
}

// checkVersion refuses servers that cannot reset a consumer and warns of those
// that are known to be slow or to have lost data.
func (c *Conn) checkVersion() error {
	text := c.nats.ConnectedServerVersion()
	switch {
	case text == "": // not connected now
	case judge(text) == tooOld:
		return &VersionError{text, "2.14.10"}
	case judge(text) == doubtful:
		c.log.Warn("nats-server should be 2.14.10, 2.15.3 or newer", "version", text)
	}
	return nil
}

type verdict int

const (
	good verdict = iota
	doubtful
	tooOld
)

func judge(version string) verdict {
	v, ok := parseVersion(version)
	before := func(other ...int) bool { return slices.Compare(v[:], other) < 0 }
	switch {
	case !ok:
		return doubtful
	case before(2, 14, 0):
		return tooOld
	case before(2, 14, 10), !before(2, 15, 0) && before(2, 15, 3):
		return doubtful
	}
	return good
}

func parseVersion(text string) (v [3]int, ok bool) {
	text, _, _ = strings.Cut(strings.TrimPrefix(text, "v"), "-")
	parts := strings.Split(text, ".")
	if len(parts) != 3 {
		return v, false
	}
	for i, part := range parts {
		n, err := strconv.Atoi(part)
		if err != nil {
			return v, false
		}
		v[i] = n
	}
	return v, true
}

// streamConfig is what the ingest stream must be. Nothing but an explicit purge
// may remove a message, so a full stream refuses instead of discarding; it has
// one subject per shard, so that it takes nothing that no consumer would see.
func (c *Conn) streamConfig() jetstream.StreamConfig {
	subjects := make([]string, c.config.Shards)
	for i := range subjects {
		subjects[i] = c.names.filter(weir.Shard(i))
	}
	return jetstream.StreamConfig{
		Name:        c.names.stream(),
		Description: "Weir: facts from producers, not stored in the event store yet",
		Subjects:    subjects,
		Retention:   jetstream.LimitsPolicy,
		Discard:     jetstream.DiscardNew,
		MaxBytes:    c.config.MaxBytes,
		MaxMsgs:     -1, MaxMsgsPerSubject: -1, MaxConsumers: -1,
		Storage:    jetstream.FileStorage,
		Replicas:   c.config.Replicas,
		Duplicates: duplicateWindow,
		DenyDelete: true,
		Metadata:   map[string]string{metaShards: strconv.Itoa(c.config.Shards), metaScheme: scheme},
	}
}

// logConfig is what the stream of committed events must be. The store has all of
// them, so the oldest may go.
func (c *Conn) logConfig() jetstream.StreamConfig {
	n := c.outflow()
	return jetstream.StreamConfig{
		Name:        n.stream(),
		Description: "Weir: committed events, for other services",
		Subjects:    []string{n.base() + ">"},
		Retention:   jetstream.LimitsPolicy,
		Discard:     jetstream.DiscardOld,
		MaxAge:      c.config.LogAge,
		MaxBytes:    c.config.LogBytes,
		MaxMsgs:     -1, MaxMsgsPerSubject: -1, MaxConsumers: -1, MaxMsgSize: -1,
		Storage:     jetstream.FileStorage,
		Replicas:    c.config.Replicas,
		Duplicates:  duplicateWindow,
		AllowDirect: true,
		Metadata:    map[string]string{metaShards: strconv.Itoa(c.config.Shards), metaScheme: scheme},
	}
}

// DeclareLog creates the stream of committed events, or makes sure that it is as
// configured, and reports whether it was not there. Errors, and what is corrected, are
// as with Declare. Safe to repeat, at the price of one request, and to call from
// several processes at once.
func (c *Conn) DeclareLog(ctx context.Context) (created bool, err error) {
	if err := c.checkVersion(); err != nil {
		return false, err
	}
	err = c.persist(ctx, func(ctx context.Context) error {
		_, created, err = c.declareStream(ctx, c.logConfig())
		return err
	})
	return created, err
}

// declareStream looks before it creates. When somebody else is faster it looks
// again.
func (c *Conn) declareStream(ctx context.Context, want jetstream.StreamConfig) (stream jetstream.Stream, created bool, err error) {
	for try := range declareTries {
		if stream, err = c.js.Stream(ctx, want.Name); err == nil {
			return stream, false, c.alignStream(ctx, stream.CachedInfo().Config, want)
		}
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			if stream, err = c.js.CreateStream(ctx, want); err == nil {
				return stream, true, nil
			}
		}
		if !worthAgain(err) || !pause(ctx, jitter(firstRetry<<try)) {
			break
		}
	}
	return nil, false, fmt.Errorf("declare stream %s: %w", want.Name, err)
}

// worthAgain: somebody else created it in between (10058, 10148 for consumers),
// or a cluster that has just started is not ready (10005, 10008).
func worthAgain(err error) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) && slices.Contains([]jetstream.ErrorCode{10058, 10148, 10005, 10008}, api.ErrorCode)
}

// alignStream brings a stream to what it must be.
func (c *Conn) alignStream(ctx context.Context, have, want jetstream.StreamConfig) error {
	if err := c.checkShards(have); err != nil {
		return err
	}
	drift := streamDrift(have, want)
	if len(drift) == 0 {
		return nil
	}
	for _, d := range drift {
		if d.refused {
			return &DriftError{want.Name, d.field, d.have, d.want, nil}
		}
	}
	merged := mergeStream(have, want)
	if _, err := c.js.UpdateStream(ctx, merged); err != nil {
		return &DriftError{want.Name, drift[0].field, drift[0].have, drift[0].want, err}
	}
	c.logDrift(want.Name, drift)
	return nil
}

// checkShards compares the number of shards. A stream of ours always says it.
func (c *Conn) checkShards(have jetstream.StreamConfig) error {
	text, ok := have.Metadata[metaShards]
	if !ok {
		return nil // made by hand, perhaps; its subjects are corrected
	}
	if n, err := strconv.Atoi(text); err != nil || n != c.config.Shards {
		return &ShardsError{have.Name, n, c.config.Shards}
	}
	if have.Metadata[metaScheme] != scheme {
		return &DriftError{have.Name, "metadata " + metaScheme, have.Metadata[metaScheme], scheme, nil}
	}
	return nil
}

// difference is a field that is not as it must be.
type difference struct {
	field, have, want string
	refused           bool // not to be corrected
}

type differences []difference

func (d *differences) check(field string, have, want any) {
	if h, w := fmt.Sprint(have), fmt.Sprint(want); h != w {
		*d = append(*d, difference{field: field, have: h, want: w})
	}
}

// must checks what cannot be corrected without losing something.
func (d *differences) must(field string, have, want any) {
	if h, w := fmt.Sprint(have), fmt.Sprint(want); h != w {
		*d = append(*d, difference{field, h, w, true})
	}
}

func streamDrift(have, want jetstream.StreamConfig) (d differences) {
	// Async loses acknowledged messages when the server is killed.
	d.must("persist_mode", have.PersistMode, want.PersistMode)
	d.must("storage", have.Storage, want.Storage)
	d.must("retention", have.Retention, want.Retention)
	d.must("mirror", have.Mirror != nil, false)
	d.must("no_ack", have.NoAck, false)
	d.must("sealed", have.Sealed, false)
	d.must("deny_purge", have.DenyPurge, false)
	d.must("subject_transform", have.SubjectTransform != nil, false)
	d.check("subjects", slices.Sorted(slices.Values(have.Subjects)), slices.Sorted(slices.Values(want.Subjects)))
	d.check("discard", have.Discard, want.Discard)
	d.check("discard_new_per_subject", have.DiscardNewPerSubject, false)
	d.check("max_bytes", max(have.MaxBytes, -1), want.MaxBytes)
	d.check("max_msgs", max(have.MaxMsgs, -1), int64(-1))
	d.check("max_msgs_per_subject", have.MaxMsgsPerSubject, int64(-1))
	d.check("max_msg_size", want.MaxMsgSize == 0 || have.MaxMsgSize == want.MaxMsgSize, true)
	d.check("max_age", have.MaxAge, want.MaxAge)
	d.check("duplicate_window", have.Duplicates, want.Duplicates)
	d.check("replicas", have.Replicas, want.Replicas)
	d.check("deny_delete", have.DenyDelete || !want.DenyDelete, true)
	d.check("allow_direct", have.AllowDirect || !want.AllowDirect, true)
	d.check("metadata "+metaShards, have.Metadata[metaShards], want.Metadata[metaShards])
	return d
}

// mergeStream keeps what is not ours to decide, such as placement or compression.
func mergeStream(have, want jetstream.StreamConfig) jetstream.StreamConfig {
	merged := have
	merged.Subjects, merged.Discard, merged.DiscardNewPerSubject = want.Subjects, want.Discard, false
	merged.MaxBytes, merged.MaxMsgs, merged.MaxMsgsPerSubject, merged.MaxAge = want.MaxBytes, -1, -1, want.MaxAge
	if want.MaxMsgSize != 0 {
		merged.MaxMsgSize = want.MaxMsgSize
	}
	merged.Duplicates, merged.Replicas = want.Duplicates, want.Replicas
	merged.DenyDelete, merged.AllowDirect = have.DenyDelete || want.DenyDelete, have.AllowDirect || want.AllowDirect
	merged.Metadata = maps.Clone(have.Metadata)
	if merged.Metadata == nil {
		merged.Metadata = map[string]string{}
	}
	maps.Copy(merged.Metadata, want.Metadata)
	return merged
}

func (c *Conn) logDrift(name string, drift differences) {
	for _, d := range drift {
		c.log.Warn("corrected on the broker", "name", name, "field", d.field, "was", d.have, "is", d.want)
	}
}

// consumerConfig: explicit acks, never given up by the broker and never delayed
// by it. The zero value of the rest is right.
func (c *Conn) consumerConfig(shard weir.Shard) jetstream.ConsumerConfig {
	return jetstream.ConsumerConfig{
		Durable:       c.names.consumer(shard),
		FilterSubject: c.names.filter(shard),
		DeliverPolicy: jetstream.DeliverAllPolicy,
		AckPolicy:     jetstream.AckExplicitPolicy,
		ReplayPolicy:  jetstream.ReplayInstantPolicy,
		AckWait:       c.config.AckWait,
		MaxDeliver:    -1,
		MaxAckPending: c.config.MaxAckPending,
	}
}

// declareConsumers compares before it creates: a create that is rejected must
// not touch what is there.
func (c *Conn) declareConsumers(ctx context.Context, stream jetstream.Stream) error {
	infos, err := c.consumers(ctx, stream)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(declareAtOnce)
	for shard := range c.config.Shards {
		want := c.consumerConfig(weir.Shard(shard))
		info := infos[want.Durable]
		group.Go(func() error { return c.declareConsumer(ctx, stream, info, want) })
	}
	return group.Wait()
}

// consumers lists the consumers of a stream by name.
func (c *Conn) consumers(ctx context.Context, stream jetstream.Stream) (map[string]*jetstream.ConsumerInfo, error) {
	infos := make(map[string]*jetstream.ConsumerInfo, c.config.Shards)
	list := stream.ListConsumers(ctx)
	for info := range list.Info() {
		infos[info.Name] = info
	}
	if err := list.Err(); err != nil {
		return nil, fmt.Errorf("list consumers of %s: %w", c.names.stream(), c.missing(err))
	}
	return infos, nil
}

// missing makes a *GoneError of what says that the stream is not there.
func (c *Conn) missing(err error) error {
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return &GoneError{c.names.stream(), "is not there", err}
	}
	return err
}

func (c *Conn) declareConsumer(ctx context.Context, stream jetstream.Stream, info *jetstream.ConsumerInfo, want jetstream.ConsumerConfig) error {
	if info != nil {
		return c.alignConsumer(ctx, stream, info.Config, want)
	}
	var err error
	for try := range declareTries {
		if _, err = stream.CreateConsumer(ctx, want); err == nil {
			return nil
		}
		if other, look := stream.Consumer(ctx, want.Durable); look == nil {
			return c.alignConsumer(ctx, stream, other.CachedInfo().Config, want)
		}
		if !worthAgain(err) || !pause(ctx, jitter(firstRetry<<try)) {
			break
		}
	}
	return fmt.Errorf("declare consumer %s of %s: %w", want.Durable, stream.CachedInfo().Config.Name, err)
}

func (c *Conn) alignConsumer(ctx context.Context, stream jetstream.Stream, have, want jetstream.ConsumerConfig) error {
	drift := consumerDrift(have, want)
	if len(drift) == 0 {
		return nil
	}
	name := stream.CachedInfo().Config.Name + " consumer " + want.Durable
	for _, d := range drift {
		if d.refused {
			return &DriftError{name, d.field, d.have, d.want, nil}
		}
	}
	want.Metadata = have.Metadata
	if _, err := stream.UpdateConsumer(ctx, want); err != nil {
		return &DriftError{name, drift[0].field, drift[0].have, drift[0].want, err}
	}
	c.logDrift(name, drift)
	return nil
}

func consumerDrift(have, want jetstream.ConsumerConfig) (d differences) {
	d.must("ack_policy", have.AckPolicy, want.AckPolicy)
	d.must("deliver_policy", have.DeliverPolicy, want.DeliverPolicy)
	d.must("replay_policy", have.ReplayPolicy, want.ReplayPolicy)
	if isShard(want) { // nobody else has those of another shard
		d.must("filter_subject", filters(have), filters(want))
	} else {
		d.check("filter_subject", filters(have), filters(want))
	}
	d.check("ack_wait", have.AckWait, want.AckWait)
	d.check("max_deliver", have.MaxDeliver, want.MaxDeliver)
	d.check("max_ack_pending", have.MaxAckPending, want.MaxAckPending)
	d.check("backoff", have.BackOff, want.BackOff)
	d.check("headers_only", have.HeadersOnly, false)
	d.check("inactive_threshold", have.InactiveThreshold, time.Duration(0))
	d.check("max_batch", have.MaxRequestBatch, 0)
	d.check("max_expires", have.MaxRequestExpires, time.Duration(0))
	d.check("max_bytes", have.MaxRequestMaxBytes, 0)
	d.check("mem_storage", have.MemoryStorage, false)
	return d
}

// isShard tells the consumer of a shard from a subscription to some categories.
func isShard(config jetstream.ConsumerConfig) bool { return config.FilterSubject != "" }

// filters are what a consumer is given, in order; none is everything.
func filters(config jetstream.ConsumerConfig) []string {
	if config.FilterSubject != "" {
		return []string{config.FilterSubject}
	}
	return slices.Sorted(slices.Values(config.FilterSubjects))
}
