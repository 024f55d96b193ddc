package eventstore

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// DeadLetter is a message that cannot become an event, whole.
type DeadLetter struct {
	// Reason is a word of a closed set, Error the sentence.
	Reason, Error string
	// Subject may be any bytes; one that is not text is kept as a Go literal.
	Subject string
	// Header and Data are the bytes as they came.
	Header, Data []byte
}

// KeepDeadLetter stores it. The same one again changes nothing.
func (s *Store) KeepDeadLetter(ctx context.Context, d DeadLetter) error {
	h := sha256.New()
	for _, part := range [][]byte{[]byte(d.Subject), d.Header, d.Data} {
		fmt.Fprintf(h, "%d:", len(part))
		h.Write(part)
	}
	_, err := s.pool.Exec(ctx, s.sql.InsertDeadLetter, h.Sum(nil), d.Reason, asText(d.Error), asText(d.Subject), orEmpty(d.Header), orEmpty(d.Data))
	if err != nil {
		return fmt.Errorf("keep dead letter from %q: %w", d.Subject, err)
	}
	return nil
}

// asText is s where the database takes it as a text, else s as a Go literal.
func asText(s string) string {
	if utf8.ValidString(s) && !strings.ContainsRune(s, 0) {
		return s
	}
	return strconv.QuoteToASCII(s)
}

// orEmpty is b, not null.
func orEmpty(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}
