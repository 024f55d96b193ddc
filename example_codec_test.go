package weir_test

import (
	"fmt"
	"reflect"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weir-es/weir"
)

// Proto encodes messages of protobuf, which are pointers.
type Proto struct{}

func (Proto) ContentType() string           { return "application/protobuf" }
func (Proto) Marshal(v any) ([]byte, error) { return proto.Marshal(v.(proto.Message)) }

// Unmarshal is given a pointer to the pointer.
func (Proto) Unmarshal(data []byte, into any) error {
	pointer := reflect.ValueOf(into).Elem()
	pointer.Set(reflect.New(pointer.Type().Elem()))
	return proto.Unmarshal(data, pointer.Interface().(proto.Message))
}

// Any type can have a codec of its own: here protobuf, and bytes as they are.
func ExampleCodec() {
	type Photo []byte
	types, err := weir.NewRegistry(weir.Types{
		"guest.named":        weir.EventOf[*wrapperspb.StringValue]().With(Proto{}),
		"guest.photographed": weir.EventOf[Photo]().With(weir.Raw),
	})
	if err != nil {
		panic(err)
	}
	for _, event := range []any{wrapperspb.String("Ada"), Photo{0xff, 0x00}} {
		m, err := types.Encode("guest-1", event)
		if err != nil {
			panic(err)
		}
		back, err := types.Decode(m)
		if err != nil {
			panic(err)
		}
		if text, ok := back.(*wrapperspb.StringValue); ok {
			back = text.GetValue()
		}
		fmt.Println(m.Metadata.ContentType, back)
	}
	// Output:
	// application/protobuf Ada
	// application/octet-stream [255 0]
}
