package projection

import _ "embed"

// Guard is the rule by which a view takes writes that come past the engine: from user
// code or from a second service, through Write. Such a write says after which event
// its row is as it is; the guard compares that with what the row has seen, be it by
// events that were folded into it or by writes before.
//
//	                       Sequence                          Strict
//	newer event later      wins                              wins
//	older event later      skipped if both have positions,   skipped
//	                       else wins
//	same event again       wins                              skipped, nothing changes
//
// The engine's own writes ask neither rule: they carry the version that is the ledger
// of what was folded, and pass if it is higher.
type Guard int

const (
	// Sequence goes by the order of commits: a write wins if it or the row has no
	// position, or if its position is not lower than the row's. For writers that
	// follow the log, and may repeat themselves.
	Sequence Guard = iota
	// Strict goes by the order of emission: a write wins if the row has no event
	// id, or if its event id is higher than the row's. For writers that are told
	// of events in any order and any number of times.
	Strict
)

var (
	//go:embed sql/write_guarded_sequence.sql
	writeSequence string
	//go:embed sql/write_guarded_strict.sql
	writeStrict string
)

// statement writes rows under the rule.
func (g Guard) statement() string {
	if g == Strict {
		return writeStrict
	}
	return writeSequence
}
