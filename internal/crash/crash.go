// Package crash names the places between two steps at which a process may die: points.go
// has all of them. A program that has itself killed at one of them arms it; that is
// internal/chaos and tests. Nothing in the environment, no flag and no configuration of a
// service does, and a point that is not armed costs one load.
package crash

import (
	"slices"
	"sync/atomic"
)

// Point is a place between two steps. There are those of points.go and no others.
type Point struct{ name, about string }

// String is the name: the room or the verb, and the step that is done.
func (p *Point) String() string { return p.name }

// About says what is done at the point, and what is not.
func (p *Point) About() string { return p.about }

var points []*Point

func declare(name, about string) *Point {
	p := &Point{name, about}
	points = append(points, p)
	return p
}

// Points are all there are, in the order of a message's walk.
func Points() []*Point { return slices.Clone(points) }

// Find returns the point of a name, nil if there is none.
func Find(name string) *Point {
	for _, p := range points {
		if p.name == name {
			return p
		}
	}
	return nil
}

// trap is what happens at a point.
type trap struct {
	point *Point
	left  atomic.Int64 // passings until it does
	act   func()
}

var armed atomic.Pointer[trap]

// At passes a point.
func At(p *Point) {
	if t := armed.Load(); t != nil {
		t.pass(p)
	}
}

func (t *trap) pass(p *Point) {
	if p == t.point && t.left.Add(-1) == 0 {
		t.act()
	}
}

// Arm has act called when p is passed for the nth time from now on, counted from 1, by
// the goroutine that passes it and at most once. One point is armed at a time. The act
// of internal/chaos does not return.
func Arm(p *Point, nth int, act func()) {
	t := &trap{point: p, act: act}
	t.left.Store(int64(nth))
	armed.Store(t)
}

// Disarm makes all points harmless. Safe to repeat.
func Disarm() { armed.Store(nil) }
