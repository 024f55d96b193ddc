package ops

import (
	"encoding/json"
	"fmt"
	"unicode/utf8"
)

// checkJSON says what keeps a text from being JSON in UTF-8.
func checkJSON(text []byte) error {
	if !json.Valid(text) {
		var value json.RawMessage
		return fmt.Errorf("is not JSON: %w", json.Unmarshal(text, &value))
	}
	if utf8.Valid(text) {
		return nil
	}
	at := 0
	for r, size := utf8.DecodeRune(text); r != utf8.RuneError || size != 1; r, size = utf8.DecodeRune(text[at:]) {
		at += size
	}
	return fmt.Errorf("is not UTF-8 at byte %d", at+1)
}

// cut is the beginning of a text, to be shown.
func cut(text []byte) string {
	const most = 40
	if len(text) <= most {
		return string(text)
	}
	return string(text[:most]) + "…"
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

// scanner walks over valid JSON and gives values as they stand there.
type scanner struct {
	text []byte
	at   int
}

// peek is the next byte that is no space.
func (s *scanner) peek() byte {
	for isSpace(s.text[s.at]) {
		s.at++
	}
	return s.text[s.at]
}

// step goes past the next byte that is no space, and is the one after it.
func (s *scanner) step() byte {
	s.peek()
	s.at++
	return s.peek()
}

// value goes past the next value.
func (s *scanner) value() []byte {
	c, start, depth := s.peek(), s.at, 0
	if c != '"' && c != '{' && c != '[' {
		return s.word()
	}
	for {
		switch s.text[s.at] {
		case '"':
			s.quoted()
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		}
		if s.at++; depth == 0 {
			return s.text[start:s.at]
		}
	}
}

// quoted goes to the end of a text.
func (s *scanner) quoted() {
	for s.at++; s.text[s.at] != '"'; s.at++ {
		if s.text[s.at] == '\\' {
			s.at++
		}
	}
}

// word goes past a number, true, false or null.
func (s *scanner) word() []byte {
	start := s.at
	for s.at < len(s.text) && !isSpace(s.text[s.at]) && s.text[s.at] != ',' && s.text[s.at] != '}' && s.text[s.at] != ']' {
		s.at++
	}
	return s.text[start:s.at]
}
