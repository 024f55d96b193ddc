package transport

import (
	"reflect"
	"testing"

	"github.com/weir-es/weir"
)

func TestP1_WhatIsPublishedIsReceivedWhole(t *testing.T) {
	_, c := declared(t, Config{})
	want := message("order-17", 1)
	want.Metadata = weir.Metadata{
		Correlation: "a conversation\nof two lines",
		Causation:   weir.NewID().String(),
		Producer:    " spaces: at the ends ",
		ContentType: "application/json",
		TraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		TraceState:  "vendor=50%25off",
		Extra:       map[string]string{"Größe: \r\n": "50 % \x01", "": "empty key", "empty": ""},
	}
	must(t, c.Publisher().Publish(testContext(t), want))

	d := receive(t, c, want.Stream.Shard(4)).next()
	must(t, d.Err)
	if !reflect.DeepEqual(d.Message, want) {
		t.Errorf("received\n%+v\nwant\n%+v", d.Message, want)
	}
	must(t, d.Ack())
	eventually(t, "nothing is left", func() bool {
		b, err := c.Backlog(testContext(t))
		must(t, err)
		return b.IsDone()
	})
}
