package front

import (
	"bytes"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// item is one state of one object, with its encoded forms. Each form is made
// when it is first asked for, and then shared by all lists and watches. Two that
// ask at once may both make it: the bytes are the same.
//
// An item stands for its object in lists: the streaming encoders of apimachinery
// take its MarshalJSON, or its Size and MarshalTo.
type item struct {
	key    string
	object runtime.Object // with its TypeMeta; nobody may write to it
	meta   metav1.Object
	forms  [formCount]atomic.Pointer[[]byte]
}

// form is one way to write an object down.
type form int

const (
	formJSON     form = iota // with kind and apiVersion, without a newline at the end
	formProtobuf             // in the envelope that names kind and apiVersion
	formMessage              // the protobuf message alone, as lists hold it
	formCount
)

func newItem(object runtime.Object) *item {
	m := object.(metav1.Object)
	return &item{key: keyOf(m), object: object, meta: m}
}

// encoded returns a form. Nobody may write to it.
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

// GetObjectKind is the object's.
func (it *item) GetObjectKind() schema.ObjectKind { return it.object.GetObjectKind() }

// DeepCopyObject is the item itself, which nobody writes to.
func (it *item) DeepCopyObject() runtime.Object { return it }

// MarshalJSON is the object's JSON.
func (it *item) MarshalJSON() ([]byte, error) { return it.encoded(formJSON) }

// Size is that of the object's protobuf message.
func (it *item) Size() int {
	data, err := it.encoded(formMessage)
	if err != nil {
		return 0 // MarshalTo will tell
	}
	return len(data)
}

// MarshalTo writes the object's protobuf message.
func (it *item) MarshalTo(to []byte) (int, error) {
	data, err := it.encoded(formMessage)
	return copy(to, data), err
}

// list is a list of any kind. Its shape and tags are those of the API's lists:
// the streaming encoders look for them.
type list struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`

	Items []*item `json:"items" protobuf:"bytes,2,rep,name=items"`
}

// DeepCopyObject is a list of the same items, which nobody writes to.
func (l *list) DeepCopyObject() runtime.Object {
	next := *l
	return &next
}
