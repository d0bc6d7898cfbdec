package front

import (
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// show makes the list in the form that the client requested.
func (f *Front) show(r *http.Request, v view, of *resource, head metav1.ListMeta, items []*item) (runtime.Object, error) {
	switch v.as {
	case "Table":
		return f.tableOf(r, of, head, items, true)
	case "PartialObjectMetadata", "PartialObjectMetadataList":
		partial := &metav1.PartialObjectMetadataList{ListMeta: head, Items: make([]metav1.PartialObjectMetadata, len(items))}
		partial.SetGroupVersionKind(metav1.SchemeGroupVersion.WithKind("PartialObjectMetadataList"))
		for i, it := range items {
			partial.Items[i] = *metadataOf(it)
		}
		return partial, nil
	default:
		l := &list{ListMeta: head, Items: items}
		l.SetGroupVersionKind(of.GroupVersion().WithKind(of.kind + "List"))
		return l, nil
	}
}

// showOne makes one object in the form that the client requested. A watch sends the columns of a Table only once.
func (f *Front) showOne(r *http.Request, v view, of *resource, it *item, columns bool) (runtime.Object, error) {
	switch v.as {
	case "Table":
		return f.tableOf(r, of, metav1.ListMeta{ResourceVersion: it.meta.GetResourceVersion()}, []*item{it}, columns)
	case "PartialObjectMetadata", "PartialObjectMetadataList":
		return metadataOf(it), nil
	default:
		return it.object, nil
	}
}

// metadataOf returns an object's metadata alone.
func metadataOf(it *item) *metav1.PartialObjectMetadata {
	partial := &metav1.PartialObjectMetadata{ObjectMeta: objectMetaOf(it.meta)}
	partial.SetGroupVersionKind(metav1.SchemeGroupVersion.WithKind("PartialObjectMetadata"))
	return partial
}

func objectMetaOf(m metav1.Object) metav1.ObjectMeta {
	return *m.(metav1.ObjectMetaAccessor).GetObjectMeta().(*metav1.ObjectMeta) // all stored types embed one
}
