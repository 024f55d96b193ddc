package main

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"unicode/utf8"

	"github.com/weir-es/weir"
)

// Limits of names that end up in a subject, an index or a type.
const (
	// maxKeyBytes is the longest key of a stream as a token of a subject, so
	// that the whole subject keeps within the 200 bytes of the transport.
	maxKeyBytes = 120
	// maxRowBytes is the longest key of a view's row: PostgreSQL indexes
	// nothing over 2.7 kB.
	maxRowBytes = 200
)

// short returns text as it is if its size is at most limit, else its beginning
// and a hash of all of it. Different texts stay different: a text that looks
// shortened is shortened too.
func short(text string, limit int, size func(string) int) string {
	if size(text) <= limit && !looksShort.MatchString(text) {
		return text
	}
	tail := hashTail(text)
	room, end := limit-size(tail), 0
	for at, r := range text {
		next := at + utf8.RuneLen(r)
		if size(text[:next]) > room {
			break
		}
		end = next
	}
	return text[:end] + tail
}

var looksShort = regexp.MustCompile(`~[0-9a-f]{32}$`)

func hashTail(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "~" + hex.EncodeToString(sum[:16])
}

func plainSize(text string) int   { return len(text) }
func encodedSize(text string) int { return len(weir.EncodeToken(text)) }
