package weir

// Evolver is a state that an event turns into the next: the fold of aggregates and
// read models. Evolve must not keep or change what the receiver shares with its
// copies (maps, slices), must depend on nothing but its arguments, and returns the
// receiver for events it does not know.
type Evolver[S any] interface {
	Evolve(event any) S
}

// Command is a wish about one stream. Decide looks at the state that the stream's
// events make and answers with new events, none if there is nothing to do, or with
// an error if the wish cannot be granted. It must depend on nothing but the command
// and the state: it may be asked again.
type Command[S any] interface {
	Stream() StreamID
	Decide(state S) ([]any, error)
}

// Snapshotter is a state of an aggregate that wants snapshots: one every so many
// events, in the given version of its schema. Raise schema when the meaning of the
// state changes; snapshots of another schema are passed over. The state must
// survive a round trip through encoding/json.
type Snapshotter interface {
	Snapshots() (every, schema int)
}
