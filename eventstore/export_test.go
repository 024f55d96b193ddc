package eventstore

// Forget empties what the store remembers of streams.
func (s *Store) Forget() { s.existing.forget() }
