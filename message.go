package weir

// Message is a thing in motion, an event or a command, before the store has
// numbered it. It keeps this shape from the producer to the read model.
type Message struct {
	// ID identifies the message for ever: the same id arriving again changes
	// nothing. Its order is the order of emission.
	ID ID
	// Stream is the entity it belongs to, or Singleton.
	Stream StreamID
	// Type is the registered name, such as "seat.held".
	Type string
	// Data is the payload as encoded by the producer. It is stored and handed
	// on byte for byte.
	Data []byte
	// Metadata is what is known about the message besides its payload.
	Metadata Metadata
}

// ContentTypeJSON is the content type of a message that names none.
const ContentTypeJSON = "application/json"

// Metadata travels with a message and is stored with its event. Every field may
// be empty.
type Metadata struct {
	// Correlation names the conversation: it is the same for everything that
	// followed from one request.
	Correlation string `json:"correlation,omitempty"`
	// Causation is the id of the message that caused this one, as text.
	Causation string `json:"causation,omitempty"`
	// Producer is the service that made the message.
	Producer string `json:"producer,omitempty"`
	// ContentType says how Data is encoded. Empty means ContentTypeJSON.
	ContentType string `json:"-"`
	// TraceParent and TraceState are the W3C trace context of the producing
	// span, so that a read model updated a day later still links to its cause.
	TraceParent string `json:"traceparent,omitempty"`
	TraceState  string `json:"tracestate,omitempty"`
	// Extra is the application's own. Keys are free, but see Validate.
	Extra map[string]string `json:"extra,omitempty"`
}

// IsJSON reports whether the payload is JSON.
func (m Metadata) IsJSON() bool {
	return m.ContentType == "" || m.ContentType == ContentTypeJSON
}
