package transport

import (
	"context"
	"maps"
	"slices"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/weir-es/weir"
)

// Carrier lets OpenTelemetry propagators write into and read from NATS headers:
// names are written as given (lower case for W3C), read exactly and then ignoring
// case.
type Carrier nats.Header

var _ propagation.TextMapCarrier = Carrier{}

// Get is the first value of a header.
func (c Carrier) Get(name string) string { return headerGet(nats.Header(c), name) }

// Set replaces a header.
func (c Carrier) Set(name, value string) { c[name] = []string{value} }

// Keys lists the headers.
func (c Carrier) Keys() []string { return slices.Collect(maps.Keys(c)) }

var traceContext propagation.TraceContext

// Inject writes the span of ctx into the metadata, unless a trace context is
// there already: that is where the message was made.
func Inject(ctx context.Context, m *weir.Metadata) {
	if m.TraceParent != "" || !trace.SpanContextFromContext(ctx).IsValid() {
		return
	}
	c := Carrier{}
	traceContext.Inject(ctx, c)
	m.TraceParent, m.TraceState = c.Get(headerTraceParent), c.Get(headerTraceState)
}

// Extract gives ctx the remote span that the metadata names, if it names one.
func Extract(ctx context.Context, m weir.Metadata) context.Context {
	if m.TraceParent == "" {
		return ctx
	}
	return traceContext.Extract(ctx, Carrier{headerTraceParent: {m.TraceParent}, headerTraceState: {m.TraceState}})
}
