package front

import (
	"bytes"
	"errors"
	"sync/atomic"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// item is one state of one object, with its encoded forms. Each form is encoded on first use, and then shared by all
// lists and watches. Two concurrent first users may both encode it: the bytes are the same.
//
// An item represents its object in lists: the streaming encoders of apimachinery use its MarshalJSON, or its Size and
// MarshalTo.
type item struct {
	key    string
	object runtime.Object // with its TypeMeta; must not be written to
	meta   metav1.Object
	forms  [formCount]atomic.Pointer[[]byte]
}

// form is an encoding of an object.
type form int

const (
	formJSON     form = iota // with kind and apiVersion, without a newline at the end
	formProtobuf             // in the envelope that names kind and apiVersion
	formMessage              // the protobuf message alone, as lists contain it
	formCount
)

func newItem(object runtime.Object) *item {
	m := object.(metav1.Object)
	return &item{key: keyOf(m), object: object, meta: m}
}

// encoded returns a form, which must not be written to.
func (it *item) encoded(f form) ([]byte, error) {
	if data := it.forms[f].Load(); data != nil {
		return *data, nil
	}
	data, err := it.encode(f)
	if err != nil {
		return nil, err
	}
	it.forms[f].Store(&data)
	return data, nil
}

func (it *item) encode(f form) ([]byte, error) {
	var b bytes.Buffer
	switch f {
	case formMessage:
		envelope, err := it.encoded(formProtobuf)
		if err != nil {
			return nil, err
		}
		return messageIn(envelope)
	case formProtobuf:
		err := protobufSerializer.Encode(it.object, &b)
		return b.Bytes(), err
	default:
		err := jsonSerializer.Encode(it.object, &b)
		return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
	}
}

// messageIn returns the message in an envelope, which is four bytes and a runtime.Unknown.
func messageIn(envelope []byte) ([]byte, error) {
	const magic, raw = 4, 2 // raw: number of the field
	for rest := envelope[magic:]; len(rest) > 0; {
		number, kind, n := protowire.ConsumeTag(rest)
		if n < 0 {
			return nil, protowire.ParseError(n)
		}
		if rest = rest[n:]; number == raw {
			message, n := protowire.ConsumeBytes(rest)
			return message, protowire.ParseError(min(n, 0))
		}
		if n = protowire.ConsumeFieldValue(number, kind, rest); n < 0 {
			return nil, protowire.ParseError(n)
		}
		rest = rest[n:]
	}
	return nil, errors.New("an envelope without a message")
}

// GetObjectKind returns the object's kind.
func (it *item) GetObjectKind() schema.ObjectKind { return it.object.GetObjectKind() }

// DeepCopyObject returns the item itself, which is immutable.
func (it *item) DeepCopyObject() runtime.Object { return it }

// MarshalJSON returns the object's JSON.
func (it *item) MarshalJSON() ([]byte, error) { return it.encoded(formJSON) }

// Size returns the size of the object's protobuf message.
func (it *item) Size() int {
	data, err := it.encoded(formMessage)
	if err != nil {
		return 0 // MarshalTo returns the error
	}
	return len(data)
}

// MarshalTo writes the object's protobuf message.
func (it *item) MarshalTo(to []byte) (int, error) {
	data, err := it.encoded(formMessage)
	return copy(to, data), err
}

// list is a list of any kind. It has the shape and tags of the API's lists, as the streaming encoders require.
type list struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`

	Items []*item `json:"items" protobuf:"bytes,2,rep,name=items"`
}

// DeepCopyObject returns a list of the same items, which are immutable.
func (l *list) DeepCopyObject() runtime.Object {
	next := *l
	return &next
}
