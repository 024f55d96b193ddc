package eventstore_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/weir-es/weir"
	"github.com/weir-es/weir/eventstore"
	"github.com/weir-es/weir/internal/testkit"
)

// TestP9_BatchesAreBounded with a typed error before anything is sent.
func TestP9_BatchesAreBounded(t *testing.T) {
	t.Parallel()
	s := testkit.Store(t, eventstore.Config{MaxDataBytes: 20 << 20})
	large := messages("seat-A1", 4)
	for i := range large {
		large[i].Data = []byte(`"` + string(bytes.Repeat([]byte("x"), 17<<20)) + `"`)
	}
	for what, batch := range map[string][]weir.Message{
		"messages":         messages("seat-A1", eventstore.MaxBatch+1),
		"bytes of payload": large,
	} {
		_, err := s.Append(testkit.Context(t), "seat-A1", weir.AnyVersion, batch...)
		var tooLarge *weir.BatchTooLargeError
		if !errors.As(err, &tooLarge) || tooLarge.What != what || tooLarge.Size <= tooLarge.Limit {
			t.Errorf("too many %s: %v", what, err)
		}
	}
	if got := len(read(t, s, "seat-A1")); got != 0 {
		t.Errorf("%d events of refused batches are stored", got)
	}
}
