package main

import (
	"context"
	"math/rand/v2"

	"github.com/jackc/pgx/v5"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/eventstore"
)

// perBatch is how many events one transaction writes.
const perBatch = 100

// shape says which streams the events of a batch belong to, out of all.
type shape func(random *rand.Rand, streams int) []int

// oneStream gives a batch to one stream: the events of one decision.
func oneStream(random *rand.Rand, streams int) []int {
	return []int{random.IntN(streams)}
}

// manyStreams gives each event of a batch to another stream, as what a window
// over many quiet streams brings.
func manyStreams(random *rand.Rand, streams int) []int {
	return random.Perm(streams)[:perBatch]
}

// batch is one transaction: the numbers of its streams and as many events for
// each as make perBatch.
type batch []int

func batches(n int, of shape, streams int) []batch {
	random := rand.New(rand.NewPCG(1, 2))
	all := make([]batch, n/perBatch)
	for i := range all {
		all[i] = of(random, streams)
	}
	return all
}

func (b batch) appends() []eventstore.Append {
	appends := make([]eventstore.Append, len(b))
	for i, stream := range b {
		appends[i] = eventstore.Append{Stream: streamName(stream), Expected: weir.AnyVersion}
		for range perBatch / len(b) {
			appends[i].Messages = append(appends[i].Messages, fact(stream))
		}
	}
	return appends
}

// oneEach is one event for each stream.
func oneEach(streams int) (all []batch) {
	for first := 0; first < streams; first += perBatch {
		var b batch
		for i := range perBatch {
			b = append(b, first+i)
		}
		all = append(all, b)
	}
	return all
}

func appendsOf(all []batch) (appends [][]eventstore.Append) {
	for _, b := range all {
		appends = append(appends, b.appends())
	}
	return appends
}

func appendEach(ctx context.Context, s *eventstore.Store, all [][]eventstore.Append) error {
	for _, appends := range all {
		if _, err := s.AppendAll(ctx, appends...); err != nil {
			return err
		}
	}
	return nil
}

// appendOurs appends batches to streams that exist, from one goroutine, in a process
// that wrote to each before: the twin is told where they are, too.
func appendOurs(of shape) side {
	return func(ctx context.Context, t *trial) error {
		s, end, err := t.store(ctx, grown(manyStreamsCount))
		if err != nil {
			return err
		}
		defer end()
		if err := appendEach(ctx, s, appendsOf(oneEach(manyStreamsCount))); err != nil {
			return err
		}
		all := appendsOf(batches(t.n, of, manyStreamsCount))
		if err := t.measure(func() error { return appendEach(ctx, s, all) }); err != nil {
			return err
		}
		return t.expectEvents(ctx, s, 2*manyStreamsCount)
	}
}

// appendTwin writes the same batches over one connection, each with one insert of
// arrays that is its own transaction, into a table with the columns and indexes
// of ours. It is the least because it locks nothing, checks nothing and keeps no
// streams: it believes the versions that it remembers, and readers cannot know
// which positions are still to appear.
func appendTwin(of shape) side {
	return func(ctx context.Context, t *trial) error {
		conn, end, err := t.connection(ctx, grown(manyStreamsCount))
		if err != nil {
			return err
		}
		defer end()
		h := grownHeads(manyStreamsCount)
		if err := insertEach(ctx, conn, rowsOf(oneEach(manyStreamsCount), h)); err != nil {
			return err
		}
		all := rowsOf(batches(t.n, of, manyStreamsCount), h)
		if err := t.measure(func() error { return insertEach(ctx, conn, all) }); err != nil {
			return err
		}
		return t.expectRows(ctx, conn, 2*manyStreamsCount)
	}
}

func rowsOf(all []batch, h heads) (inserts []*rows) {
	for _, b := range all {
		inserts = append(inserts, b.rows(h))
	}
	return inserts
}

func insertEach(ctx context.Context, conn *pgx.Conn, inserts []*rows) error {
	for _, r := range inserts {
		if err := r.insert(ctx, conn); err != nil {
			return err
		}
	}
	return nil
}

// grownHeads are the heads of a grown template.
func grownHeads(streams int) heads {
	h := heads{}
	for i := range streams {
		h[int64(i+1)] = 1
	}
	return h
}

func (b batch) rows(h heads) *rows {
	r := &rows{}
	for _, stream := range b {
		for range perBatch / len(b) {
			m := fact(stream)
			number := int64(stream + 1)
			r.add(number, h.next(number), m.ID, int16(m.Stream.Shard(weir.DefaultShards)), m.Type, m.Data, metadata)
		}
	}
	return r
}

// expectEvents counts the events of a store; before is how many there were.
func (t *trial) expectEvents(ctx context.Context, s *eventstore.Store, before int) error {
	counts, err := s.Counts(ctx)
	if err != nil {
		return err
	}
	return t.expect("events stored", int(counts.Events)-before, t.n)
}
