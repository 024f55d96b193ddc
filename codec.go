package weir

import (
	"encoding/json"
	"fmt"
)

// Codec turns Go values into payloads and back. It must be safe for concurrent
// use.
type Codec interface {
	// ContentType names the encoding in stored messages, such as
	// "application/json". It must never change.
	ContentType() string
	Marshal(value any) ([]byte, error)
	// Unmarshal is given a pointer to a new value.
	Unmarshal(data []byte, into any) error
}

// JSON is the default codec: encoding/json, with its rules. Unknown fields are
// ignored, missing ones stay zero, numbers in an any become float64, names match
// ignoring case, invalid UTF-8 in strings becomes U+FFFD.
var JSON Codec = jsonCodec{}

type jsonCodec struct{}

func (jsonCodec) ContentType() string                { return ContentTypeJSON }
func (jsonCodec) Marshal(value any) ([]byte, error)  { return json.Marshal(value) }
func (jsonCodec) Unmarshal(data []byte, v any) error { return json.Unmarshal(data, v) }

// Raw is the codec of types that are bytes already: a Go type whose underlying
// type is []byte. Payloads may hold anything and are stored as they are.
var Raw Codec = rawCodec{}

type rawCodec struct{}

func (rawCodec) ContentType() string { return "application/octet-stream" }

func (rawCodec) Marshal(value any) ([]byte, error) {
	bytes, ok := asBytes(value)
	if !ok {
		return nil, fmt.Errorf("encode %T as raw bytes: it is not a []byte", value)
	}
	return bytes, nil
}

func (rawCodec) Unmarshal(data []byte, into any) error {
	if !setBytes(into, data) {
		return fmt.Errorf("decode raw bytes into %T: it is not a []byte", into)
	}
	return nil
}
