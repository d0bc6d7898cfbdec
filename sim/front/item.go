package front

import (
	"bytes"
	"sync/atomic"

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
	data, err := encodeForm(it.object, f)
	if err != nil {
		return nil, err
	}
	it.forms[f].Store(&data)
	return data, nil
}

func encodeForm(object runtime.Object, f form) ([]byte, error) {
	var b bytes.Buffer
	switch f {
	case formMessage:
		return object.(interface{ Marshal() ([]byte, error) }).Marshal()
	case formProtobuf:
		err := protobufSerializer.Encode(object, &b)
		return b.Bytes(), err
	default:
		err := jsonSerializer.Encode(object, &b)
		return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
	}
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
