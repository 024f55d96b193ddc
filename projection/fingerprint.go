package projection

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/weir-es/weir"
)

// fingerprint is a hash chained over the events that made a row, in the order in
// which they were folded: two rows with the same one were made by the same events
// in the same order.
type fingerprint [16]byte

// chain adds an event: SHA-256 of what was, its id and its version, cut to 16 bytes.
func (f fingerprint) chain(id weir.ID, version weir.Version) (next fingerprint) {
	var b [40]byte
	copy(b[:16], f[:])
	copy(b[16:32], id[:])
	binary.BigEndian.PutUint64(b[32:], uint64(version))
	sum := sha256.Sum256(b[:])
	copy(next[:], sum[:])
	return next
}
