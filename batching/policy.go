package batching

// Policy is how a boundary chooses its windows: [Adaptive], [Fixed] or [Off]. It
// goes into a [Gauge]. The zero value is Adaptive(Window{}).
type Policy struct {
	// Window gives the limits of every batch, and the longest Quiet there is.
	Window
	mode mode
}

type mode uint8

const (
	adaptive mode = iota
	fixed
	off
)

// Adaptive waits as long as the late items of a category have needed of late,
// between 2 ms and w.Quiet: ordered items wait milliseconds, disordered ones get
// the whole window. See [Gauge] for how it learns.
func Adaptive(w Window) Policy { return Policy{w, adaptive} }

// Fixed waits w.Quiet, whatever comes. Choose it where every late item costs more
// than the wait, or where the wait must not change.
func Fixed(w Window) Policy { return Policy{w, fixed} }

// Off waits for nothing: what is there leaves at once, in the limits of w. Choose
// it where no item is ever late, or where order is somebody else's business.
func Off(w Window) Policy { return Policy{w, off} }
