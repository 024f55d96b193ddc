package ops

import (
	"encoding/json"
	"fmt"
	"reflect"
	"time"

	"github.com/weir-es/weir"
)

// EventRow is an event as it is printed.
type EventRow struct {
	Position weir.Position `json:"position"`
	Stream   weir.StreamID `json:"stream"`
	Version  weir.Version  `json:"version"`
	Recorded time.Time     `json:"recorded"`
	ID       weir.ID       `json:"id"`
	Type     string        `json:"type"`
	// OrderID is set where the event does not sort by its id.
	OrderID *weir.ID `json:"order_id,omitempty" table:"-"`
	// Data is the payload if it is JSON, and else a note about it.
	Data json.RawMessage `json:"data,omitempty"`
	// Bytes is the payload if it is not JSON; as JSON it is base64.
	Bytes       []byte         `json:"bytes,omitempty" table:"-"`
	ContentType string         `json:"content_type,omitempty" table:"-"`
	Metadata    *weir.Metadata `json:"metadata,omitempty" table:"-"`
}

func rowOf(e weir.Event) EventRow {
	r := EventRow{Position: e.Position, Stream: e.Stream, Version: e.Version, Recorded: e.Recorded, ID: e.ID, Type: e.Type,
		ContentType: e.Metadata.ContentType}
	if e.OrderID != (weir.ID{}) {
		r.OrderID = &e.OrderID
	}
	if e.Metadata.IsJSON() {
		r.Data = e.Data
	} else {
		r.Bytes = e.Data
	}
	shown := e.Metadata
	shown.ContentType = ""
	if !reflect.ValueOf(shown).IsZero() {
		r.Metadata = &shown
	}
	return r
}

// table notes what a payload is that cannot be shown.
func (r EventRow) table() []any {
	if r.Bytes != nil {
		r.Data = json.RawMessage(fmt.Sprintf("<%d bytes of %s>", len(r.Bytes), r.ContentType))
	}
	type row EventRow // without this method
	return []any{row(r)}
}
