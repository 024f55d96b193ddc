package batching

import "time"

// Window says when a batch closes: at the first of its fields that is reached.
// A field that is zero or below takes its default.
type Window struct {
	// Quiet closes a batch when nothing came for it for this long. Default
	// 300 ms. Longer: more disorder is caught and fewer batches are written;
	// shorter: sooner.
	Quiet time.Duration
	// MaxAge closes a batch when its first item is this old, so that a trickle
	// faster than Quiet cannot hold it open for ever. Default 3 s.
	MaxAge time.Duration
	// MaxItems closes a batch when it holds this many items. Default 1000.
	MaxItems int
	// MaxBytes closes a batch when it holds this many bytes, or would hold more
	// with the next item. One item that is larger is a batch of its own.
	// Default 4 MiB. Without Collector.Size nothing is counted.
	MaxBytes int
	// Limit is how many items all open batches may hold together; at this number
	// the oldest closes. A fiftieth of Limit is freed at a time, so that many
	// keys of one item each still leave in company. Default 50,000 items. More:
	// more memory, and more keys that may wait for their own Quiet.
	Limit int
}

// The windows of the three places that wait for company.
var (
	// Inbox is for what arrives from outside, in the order networks give it.
	Inbox = Window{Quiet: 300 * time.Millisecond, MaxAge: 3 * time.Second, MaxItems: 1000}
	// Outbox is for what was committed here and is on its way out.
	Outbox = Window{Quiet: 50 * time.Millisecond, MaxAge: time.Second, MaxItems: 100}
	// Apply is for what read models fold.
	Apply = Window{Quiet: 300 * time.Millisecond, MaxAge: 3 * time.Second, MaxItems: 1000}
)

func (w Window) orDefaults() Window {
	return Window{
		Quiet:    or(w.Quiet, 300*time.Millisecond),
		MaxAge:   or(w.MaxAge, 3*time.Second),
		MaxItems: or(w.MaxItems, 1000),
		MaxBytes: or(w.MaxBytes, 4<<20),
		Limit:    or(w.Limit, 50_000),
	}
}

// room is how many items to hold at most after the Limit was reached.
func (w Window) room() int {
	return w.Limit - max(1, w.Limit/50)
}

func or[N int | time.Duration](value, otherwise N) N {
	if value > 0 {
		return value
	}
	return otherwise
}
