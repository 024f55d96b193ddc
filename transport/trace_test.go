package transport

import (
	"context"
	"testing"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/weir-es/weir"
)

const testParent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

func inSpan(t *testing.T) context.Context {
	t.Helper()
	return Extract(t.Context(), weir.Metadata{TraceParent: testParent, TraceState: "a=b"})
}

func TestP10_TraceContextTravels(t *testing.T) {
	ctx := inSpan(t)
	span := trace.SpanContextFromContext(ctx)
	if !span.IsRemote() || span.TraceID().String() != testParent[3:35] {
		t.Fatalf("extracted %+v", span)
	}
	var m weir.Metadata
	Inject(ctx, &m)
	if m.TraceParent != testParent || m.TraceState != "a=b" {
		t.Errorf("injected %q %q", m.TraceParent, m.TraceState)
	}
}

func TestInjectLeavesACreationContext(t *testing.T) {
	m := weir.Metadata{TraceParent: "of the caller"}
	Inject(inSpan(t), &m)
	if m.TraceParent != "of the caller" || m.TraceState != "" {
		t.Errorf("injected over it: %+v", m)
	}
	without := weir.Metadata{TraceState: "kept"}
	Inject(t.Context(), &without)
	if without.TraceState != "kept" {
		t.Errorf("without a span: %+v", without)
	}
}

func TestPublishCarriesTheSpan(t *testing.T) {
	_, c := declared(t, Config{})
	m := message("order-1", 1)
	ctx, cancel := context.WithTimeout(inSpan(t), patience)
	defer cancel()
	must(t, c.Publisher().Publish(ctx, m))
	d := receive(t, c, m.Stream.Shard(4)).next()
	if d.Message.Metadata.TraceParent != testParent || d.Header.Get("traceparent") != testParent {
		t.Errorf("got %+v", d.Header)
	}
}

func TestCarrier(t *testing.T) {
	c := Carrier{"Traceparent": {testParent}}
	if got := trace.SpanContextFromContext(propagation.TraceContext{}.Extract(t.Context(), c)); !got.IsValid() {
		t.Error("a header in another case is not found")
	}
	c.Set("tracestate", "a=b")
	if c["tracestate"][0] != "a=b" || len(c.Keys()) != 2 {
		t.Errorf("carrier %v", c)
	}
}
