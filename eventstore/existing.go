package eventstore

import (
	"sync"

	"github.com/weir-es/weir"
)

// existing remembers streams that exist, so that an append to them need not see to it
// that they do, and where they are, so that it need not ask. Streams are never deleted;
// if one is all the same, the append that finds out forgets everything and starts over.
// Others may move them at any time: what is remembered is a guess, to be compared
// with the stream once it is locked.
type existing struct {
	mu      sync.Mutex
	streams map[weir.StreamID]head // at version 0 if it is not known where
}

// knownStreams is how many streams are remembered, some ten megabytes of them.
const knownStreams = 100_000

func (x *existing) all(streams []weir.StreamID) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, stream := range streams {
		if _, ok := x.streams[stream]; !ok {
			return false
		}
	}
	return true
}

// take lends the heads of all streams to one writer, or none when one is missing. They
// come back with add once the writer knows where they are; until then, and for good if
// it fails, it is only remembered that the streams exist. Of two writers of a stream
// the later does not guess at all.
func (x *existing) take(streams []weir.StreamID) ([]head, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, stream := range streams {
		if x.streams[stream].version == 0 {
			return nil, false
		}
	}
	heads := make([]head, len(streams))
	for i, stream := range streams {
		heads[i] = x.streams[stream]
		x.streams[stream] = head{}
	}
	return heads, true
}

// add remembers heads of a transaction that is committed.
func (x *existing) add(heads map[weir.StreamID]*head) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.streams)+len(heads) > knownStreams {
		clear(x.streams)
	}
	for stream, h := range heads {
		x.streams[stream] = head{id: h.id, shard: h.shard, version: h.version, last: h.last}
	}
}

// lose forgets where streams are.
func (x *existing) lose(streams []weir.StreamID) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, stream := range streams {
		if _, ok := x.streams[stream]; ok {
			x.streams[stream] = head{}
		}
	}
}

func (x *existing) forget() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.streams = map[weir.StreamID]head{}
}
