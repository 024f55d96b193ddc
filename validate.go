package weir

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Limits of a message.
const (
	// MaxDataBytes is the largest payload by default.
	MaxDataBytes = 1 << 20
	// MaxMetadataBytes is the most that the texts of the metadata may take.
	MaxMetadataBytes = 32 << 10
	// MaxTypeBytes is the longest name of a type.
	MaxTypeBytes = 200
	// maxDepth is how deep JSON may nest: beyond some thousands PostgreSQL
	// refuses it, and no honest event comes near.
	maxDepth = 128
)

// Validate returns a typed error if the message could not be stored, so that a
// poison payload is refused at the door and never enters the log. limit is the
// largest payload in bytes; 0 means MaxDataBytes.
func (m *Message) Validate(limit int) error {
	if limit == 0 {
		limit = MaxDataBytes
	}
	if m.Stream.IsEmpty() {
		return &EmptyStreamError{m.ID, m.Type, m.Stream}
	}
	if err := m.Stream.Validate(); err != nil {
		return err
	}
	if len(m.Data) > limit {
		return &TooLargeError{m.ID, "payload", len(m.Data), limit}
	}
	if reason := m.invalid(); reason != "" {
		return &InvalidMessageError{m.ID, m.Type, reason}
	}
	return m.Metadata.validate(m.ID, m.Type)
}

var highestID = ID(bytes.Repeat([]byte{0xff}, 16))

func (m *Message) invalid() string {
	switch {
	case m.ID == (ID{}):
		return "has no id"
	case m.ID == highestID:
		return "has the highest id there is, after which nothing could sort"
	case m.Type == "":
		return "has no type"
	case len(m.Type) > MaxTypeBytes:
		return fmt.Sprintf("has a type name of %d bytes, the limit is %d", len(m.Type), MaxTypeBytes)
	case invalidTextAt(m.Type) >= 0:
		return "has a type name with a NUL or invalid UTF-8"
	case m.Metadata.IsJSON():
		return invalidJSON(m.Data)
	}
	return ""
}

func invalidJSON(data []byte) string {
	switch {
	case len(data) == 0:
		return "has an empty payload, which is not JSON"
	case !json.Valid(data):
		return "has a payload that is not JSON"
	case !utf8.Valid(data):
		return "has a payload that is not UTF-8"
	case depth(data) > maxDepth:
		return fmt.Sprintf("has a payload nested deeper than %d", maxDepth)
	}
	return ""
}

// depth is the deepest nesting of a valid JSON text.
func depth(data []byte) int {
	deepest, now, quoted := 0, 0, false
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			now++
			deepest = max(deepest, now)
		case c == '}' || c == ']':
			now--
		}
	}
	return deepest
}

func (m Metadata) validate(id ID, typ string) error {
	size := 0
	for _, text := range m.texts() {
		size += len(text)
		if invalidTextAt(text) >= 0 {
			return &InvalidMessageError{id, typ, "has metadata with a NUL or invalid UTF-8"}
		}
	}
	if size > MaxMetadataBytes {
		return &TooLargeError{id, "metadata", size, MaxMetadataBytes}
	}
	return nil
}

func (m Metadata) texts() []string {
	texts := []string{m.Correlation, m.Causation, m.Producer, m.ContentType, m.TraceParent, m.TraceState}
	for k, v := range m.Extra {
		texts = append(texts, k, v)
	}
	return texts
}

// invalidTextAt is where a text stops being one that PostgreSQL can hold, or -1.
func invalidTextAt(text string) int {
	if at := strings.IndexByte(text, 0); at >= 0 {
		return at
	}
	if utf8.ValidString(text) {
		return -1
	}
	for at, r := range text {
		if r == utf8.RuneError {
			if _, size := utf8.DecodeRuneInString(text[at:]); size == 1 {
				return at
			}
		}
	}
	return -1
}
