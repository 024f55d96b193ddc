package ops

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/weir-es/weir"
)

// eventRow is an event as it is printed: as JSON it is a line of an export, so
// that what is printed can be imported.
type eventRow weir.Event

func (r eventRow) appendJSON(b []byte) []byte { return Lines.appendLine(b, weir.Event(r), "") }

// eventCells are what a table has room for.
type eventCells struct {
	Position weir.Position   `json:"position"`
	Stream   weir.StreamID   `json:"stream"`
	Version  weir.Version    `json:"version"`
	Recorded time.Time       `json:"recorded"`
	ID       weir.ID         `json:"id"`
	Type     string          `json:"type"`
	Data     json.RawMessage `json:"data"`
}

func (r eventRow) table() []any {
	return []any{eventCells{r.Position, r.Stream, r.Version, r.Recorded, r.ID, r.Type, shown(weir.Event(r))}}
}

// shown is the payload of an event, or what to say of one that is no text.
func shown(e weir.Event) json.RawMessage {
	if e.Metadata.IsJSON() {
		return e.Data
	}
	return fmt.Appendf(nil, "<%d bytes of %s>", len(e.Data), e.Metadata.ContentType)
}
