package weir

import (
	"fmt"
	"hash/fnv"
	"strings"
)

// StreamID names the stream of one entity: "category-key". The category ends at
// the first dash; the key may hold anything. Its order, versions and locks are
// per stream.
type StreamID string

// Singleton marks a message that has no stream: it becomes a stream of its own,
// named after its id.
const Singleton StreamID = "*"

const singletonCategory = "singleton"

// Limits of a stream name.
const (
	// MaxStreamBytes is the longest name of a stream, in bytes. The transport
	// has a tighter limit of its own, since names become subjects there.
	MaxStreamBytes = 1024
	// DefaultShards is how many groups of streams a store has unless it was
	// created with another number.
	DefaultShards = 32
)

// Stream names the stream of the entity key in a category. A category must not
// contain a dash; Validate says so.
func Stream(category, key string) StreamID {
	return StreamID(category + "-" + key)
}

// Category is the part before the first dash, or the whole name without one.
func (s StreamID) Category() string {
	category, _, _ := strings.Cut(string(s), "-")
	return category
}

// Key is the part after the first dash, or empty.
func (s StreamID) Key() string {
	_, key, _ := strings.Cut(string(s), "-")
	return key
}

// IsEmpty reports whether the name says nothing: it is empty, has an empty category
// or key, or its key is an id of nothing but zeros (an id that somebody forgot to
// set). A name without a dash is not empty; Validate refuses it.
func (s StreamID) IsEmpty() bool {
	category, key, dashed := strings.Cut(string(s), "-")
	return s == "" || isZeroID(string(s)) || dashed && (category == "" || key == "" || isZeroID(key))
}

// isZeroID recognises the zero ULID (26 digits) and the zero UUID.
func isZeroID(key string) bool {
	return len(key) >= 26 && strings.Trim(key, "0-") == ""
}

// Validate returns an *InvalidStreamError if the name cannot be stored.
func (s StreamID) Validate() error {
	switch {
	case len(s) > MaxStreamBytes:
		return &InvalidStreamError{s, fmt.Sprintf("is %d bytes long, the limit is %d", len(s), MaxStreamBytes)}
	case s != Singleton && !strings.Contains(string(s), "-"):
		return &InvalidStreamError{s, "has no dash: a stream is named category-key"}
	}
	return validText(s)
}

func validText(s StreamID) error {
	if at := invalidTextAt(string(s)); at >= 0 {
		return &InvalidStreamError{s, fmt.Sprintf("has a NUL or is not UTF-8 at byte %d", at)}
	}
	return nil
}

// Resolve returns the stream a message with this id lives in: Singleton becomes
// a stream of its own.
func (s StreamID) Resolve(id ID) StreamID {
	if s == Singleton {
		return Stream(singletonCategory, id.String())
	}
	return s
}

// Shard is one of the groups that streams are divided into.
type Shard int16

// Shard of the stream among n: FNV-1a 32 over the bytes of its category and key
// tokens, modulo n. It is what the partition() transform of nats-server computes,
// so that a broker-side mapping for foreign producers agrees.
func (s StreamID) Shard(n int) Shard {
	h := fnv.New32a()
	h.Write([]byte(EncodeToken(s.Category())))
	h.Write([]byte(EncodeToken(s.Key())))
	return Shard(h.Sum32() % uint32(n))
}

const hexDigits = "0123456789ABCDEF"

// EncodeToken makes any text a legal token of a NATS subject: letters, digits,
// '_' and '-' stay, every other byte becomes =XX. It is injective.
func EncodeToken(text string) string {
	extra := 0
	for i := range len(text) {
		if !plainByte(text[i]) {
			extra += 2
		}
	}
	if extra == 0 {
		return text
	}
	out := make([]byte, 0, len(text)+extra)
	for i := range len(text) {
		if c := text[i]; plainByte(c) {
			out = append(out, c)
		} else {
			out = append(out, '=', hexDigits[c>>4], hexDigits[c&15])
		}
	}
	return string(out)
}

// DecodeToken is the inverse of EncodeToken. It refuses every text that
// EncodeToken cannot have made.
func DecodeToken(token string) (string, error) {
	if !strings.Contains(token, "=") {
		return token, checkPlain(token)
	}
	out := make([]byte, 0, len(token))
	for i := 0; i < len(token); i++ {
		if token[i] != '=' {
			out = append(out, token[i])
			continue
		}
		if i+2 >= len(token) {
			return "", fmt.Errorf("decode token %q: cut off escape at byte %d", token, i)
		}
		high, low := strings.IndexByte(hexDigits, token[i+1]), strings.IndexByte(hexDigits, token[i+2])
		if high < 0 || low < 0 {
			return "", fmt.Errorf("decode token %q: bad escape at byte %d", token, i)
		}
		out = append(out, byte(high<<4|low))
		i += 2
	}
	if EncodeToken(string(out)) != token {
		return "", fmt.Errorf("decode token %q: not in canonical form", token)
	}
	return string(out), nil
}

func checkPlain(token string) error {
	for i := range len(token) {
		if !plainByte(token[i]) {
			return fmt.Errorf("decode token %q: illegal byte at %d", token, i)
		}
	}
	return nil
}

func plainByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-'
}
