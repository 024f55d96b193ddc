package projection

import "github.com/weir-es/weir"

// SetLongest makes rewinds of more than n events go on beside the others.
func (w *Worker) SetLongest(n weir.Version) { w.longest = n }

// Retain is retain.
func Retain(at []weir.Version, head weir.Version) []int { return retain(at, head) }
