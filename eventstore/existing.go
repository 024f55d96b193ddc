package eventstore

import "sync"

// existing remembers streams that exist, so that an append to them need not see to it
// that they do. Streams are never deleted; if one is all the same, the append that
// finds out forgets everything and starts over.
type existing struct {
	mu      sync.Mutex
	streams map[string]struct{}
}

// knownStreams is how many names are remembered, some ten megabytes of them.
const knownStreams = 100_000

func (x *existing) all(names []string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, name := range names {
		if _, ok := x.streams[name]; !ok {
			return false
		}
	}
	return true
}

func (x *existing) add(names []string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.streams)+len(names) > knownStreams {
		clear(x.streams)
	}
	for _, name := range names {
		x.streams[name] = struct{}{}
	}
}

func (x *existing) forget() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.streams = map[string]struct{}{}
}
