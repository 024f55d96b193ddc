package batching

// list links entries through themselves, so that moving one allocates nothing.
// An entry is in at most one list of a lane.
type list[K comparable, T any] struct {
	lane       int
	head, tail *entry[K, T]
}

// link is an entry's place in one lane.
type link[K comparable, T any] struct {
	before, after *entry[K, T]
}

func (l *list[K, T]) push(e *entry[K, T]) {
	e.links[l.lane] = link[K, T]{before: l.tail}
	if l.tail == nil {
		l.head = e
	} else {
		l.tail.links[l.lane].after = e
	}
	l.tail = e
}

func (l *list[K, T]) remove(e *entry[K, T]) {
	at := e.links[l.lane]
	if at.before == nil {
		l.head = at.after
	} else {
		at.before.links[l.lane].after = at.after
	}
	if at.after == nil {
		l.tail = at.before
	} else {
		at.after.links[l.lane].before = at.before
	}
	e.links[l.lane] = link[K, T]{}
}

func (l *list[K, T]) moveLast(e *entry[K, T]) {
	if l.tail == e {
		return
	}
	l.remove(e)
	l.push(e)
}
