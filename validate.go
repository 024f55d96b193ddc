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
	if text := (jsonText{data: data}); text.isWhole() {
		return ""
	}
	switch {
	case len(data) == 0:
		return "has an empty payload, which is not JSON"
	case !json.Valid(data):
		return "has a payload that is not JSON"
	case !utf8.Valid(data):
		return "has a payload that is not UTF-8"
	}
	return fmt.Sprintf("has a payload nested deeper than %d", maxDepth)
}

// jsonText is a text that is checked in one pass, from at on: whether it is JSON
// (RFC 8259), in UTF-8, and nested at most maxDepth deep. Each of its methods moves at
// behind what it checked. The standard library knows the first alone, and takes four
// times as long.
type jsonText struct {
	data []byte
	at   int
	deep int
}

// isWhole reports that the text is one value.
func (t *jsonText) isWhole() bool { return t.value() && t.next() == 0 && t.at == len(t.data) }

// next skips space and returns the byte there, or 0 at the end.
func (t *jsonText) next() byte {
	for ; t.at < len(t.data); t.at++ {
		if c := t.data[t.at]; c != ' ' && c != '\n' && c != '\t' && c != '\r' {
			return c
		}
	}
	return 0
}

func (t *jsonText) value() bool {
	switch c := t.next(); c {
	case '"':
		return t.text()
	case '{':
		return t.list('}')
	case '[':
		return t.list(']')
	case 't':
		return t.word("true")
	case 'f':
		return t.word("false")
	case 'n':
		return t.word("null")
	}
	return t.number()
}

// list is an object or an array: items with commas between.
func (t *jsonText) list(end byte) bool {
	t.at++
	if t.deep++; t.deep > maxDepth {
		return false
	}
	for more := t.next() != end; more; more = t.skip(',') {
		if end == '}' && !t.name() || !t.value() {
			return false
		}
		t.next()
	}
	t.deep--
	return t.skip(end)
}

func (t *jsonText) name() bool {
	return t.next() == '"' && t.text() && t.next() == ':' && t.skip(':')
}

// skip passes one byte if it is there.
func (t *jsonText) skip(c byte) bool {
	if t.at == len(t.data) || t.data[t.at] != c {
		return false
	}
	t.at++
	return true
}

func (t *jsonText) word(word string) bool {
	if !bytes.HasPrefix(t.data[t.at:], []byte(word)) {
		return false
	}
	t.at += len(word)
	return true
}

// text is a quoted one.
func (t *jsonText) text() bool {
	t.at++
	for {
		t.at += plainBytes(t.data[t.at:])
		if t.at == len(t.data) {
			return false
		}
		switch c := t.data[t.at]; {
		case c == '"':
			t.at++
			return true
		case c == '\\':
			if !t.escape() {
				return false
			}
		default: // a control character decodes as itself
			r, size := utf8.DecodeRune(t.data[t.at:])
			if r < ' ' || r == utf8.RuneError && size == 1 {
				return false
			}
			t.at += size
		}
	}
}

// plainBytes is how many bytes of a quoted text stand for themselves.
func plainBytes(text []byte) int {
	for i, c := range text {
		if c < ' ' || c >= utf8.RuneSelf || c == '"' || c == '\\' {
			return i
		}
	}
	return len(text)
}

func (t *jsonText) escape() bool {
	rest := t.data[t.at+1:]
	switch {
	case len(rest) == 0:
		return false
	case rest[0] != 'u':
		t.at += 2
		return strings.IndexByte(`"\/bfnrt`, rest[0]) >= 0
	case len(rest) < 5:
		return false
	}
	t.at += 6
	return isHex(rest[1]) && isHex(rest[2]) && isHex(rest[3]) && isHex(rest[4])
}

func isHex(c byte) bool { return '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'f' }

func (t *jsonText) number() bool {
	t.skip('-')
	if !t.skip('0') && !t.digits() {
		return false
	}
	if t.skip('.') && !t.digits() {
		return false
	}
	if !t.skip('e') && !t.skip('E') {
		return true
	}
	_ = t.skip('+') || t.skip('-')
	return t.digits()
}

// digits is at least one.
func (t *jsonText) digits() bool {
	start := t.at
	for t.at < len(t.data) && '0' <= t.data[t.at] && t.data[t.at] <= '9' {
		t.at++
	}
	return t.at > start
}

func (m Metadata) validate(id ID, typ string) error {
	size, valid := 0, true
	count := func(text string) {
		size += len(text)
		valid = valid && invalidTextAt(text) < 0
	}
	for _, text := range [...]string{m.Correlation, m.Causation, m.Producer, m.ContentType, m.TraceParent, m.TraceState} {
		count(text)
	}
	for name, value := range m.Extra {
		count(name)
		count(value)
	}
	switch {
	case !valid:
		return &InvalidMessageError{id, typ, "has metadata with a NUL or invalid UTF-8"}
	case size > MaxMetadataBytes:
		return &TooLargeError{id, "metadata", size, MaxMetadataBytes}
	}
	return nil
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
