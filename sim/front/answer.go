package front

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// compressFrom is the size in bytes from which responses are compressed, and compressLevel the gzip level. Both are
// the API server's.
const (
	compressFrom  = 128 << 10
	compressLevel = 1
)

// write responds with an object. It ignores errors while the response is written: the client cannot get them any more.
func write(w http.ResponseWriter, r *http.Request, v view, code int, object runtime.Object) {
	w.Header().Set("Content-Type", v.contentType)
	w.Header().Add("Vary", "Accept-Encoding")
	w.Header().Set("Cache-Control", "no-cache, private")
	body := &body{ResponseWriter: w, code: code, compress: acceptsGzip(r)}
	if err := encode(v, object, body); err != nil && body.out == nil {
		body.ResponseWriter.Header().Set("Content-Type", "text/plain")
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	body.close()
}

func encode(v view, object runtime.Object, to *body) error {
	if with, ok := v.Serializer.(runtime.EncoderWithAllocator); ok {
		allocator := runtime.AllocatorPool.Get().(*runtime.Allocator)
		defer runtime.AllocatorPool.Put(allocator)
		return with.EncodeWithAllocator(object, to, allocator)
	}
	return v.Serializer.Encode(object, to)
}

// body buffers a response until its size decides whether it is compressed. Then it streams the response.
type body struct {
	http.ResponseWriter
	code     int
	compress bool
	held     bytes.Buffer
	out      *bufio.Writer // set once the response has begun
	gzip     *gzip.Writer
}

func (b *body) Write(data []byte) (int, error) {
	if b.out == nil {
		if b.held.Len()+len(data) < compressFrom {
			return b.held.Write(data)
		}
		if err := b.begin(); err != nil {
			return 0, err
		}
	}
	return b.out.Write(data)
}

// begin sends the header and the buffered data.
func (b *body) begin() error {
	if b.compress {
		b.Header().Set("Content-Encoding", "gzip")
		var err error
		if b.gzip, err = gzip.NewWriterLevel(b.ResponseWriter, compressLevel); err != nil {
			return err
		}
		b.out = bufio.NewWriterSize(b.gzip, 64<<10)
	} else {
		b.out = bufio.NewWriterSize(b.ResponseWriter, 64<<10)
	}
	b.WriteHeader(b.code)
	_, err := b.out.Write(b.held.Bytes())
	return err
}

func (b *body) close() {
	if b.out == nil {
		b.WriteHeader(b.code)
		_, _ = b.ResponseWriter.Write(b.held.Bytes())
		return
	}
	_ = b.out.Flush()
	if b.gzip != nil {
		_ = b.gzip.Close()
	}
}

func acceptsGzip(r *http.Request) bool {
	for encoding := range strings.SplitSeq(r.Header.Get("Accept-Encoding"), ",") {
		if name, _, _ := strings.Cut(encoding, ";"); strings.TrimSpace(name) == "gzip" {
			return true
		}
	}
	return false
}

// refuse responds with an error, as the Status that clients expect.
func refuse(w http.ResponseWriter, r *http.Request, err error) {
	v, ok := negotiate(r, mayPlain)
	if !ok {
		v = view{SerializerInfo: serializerOf(runtime.ContentTypeJSON), contentType: runtime.ContentTypeJSON}
	}
	status := statusOf(err)
	write(w, r, v, int(status.Code), status)
}

// statusOf returns an error as the API represents it.
func statusOf(err error) *metav1.Status {
	var known apierrors.APIStatus
	if !errors.As(err, &known) {
		known = apierrors.NewInternalError(err)
	}
	status := known.Status()
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	return &status
}

// errNotFound is the error for an unknown path.
func errNotFound() error {
	return apierrors.NewGenericServerResponse(http.StatusNotFound, "get", schema.GroupResource{}, "", "", 0, true)
}

// errNotAcceptable is the error for clients that accept no encoding of the server.
func errNotAcceptable() error {
	status := metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusNotAcceptable, Reason: metav1.StatusReasonNotAcceptable,
		Message: "only the following media types are accepted: " + mediaTypes(),
	}
	return &apierrors.StatusError{ErrStatus: status}
}

func mediaTypes() string {
	var names []string
	for _, s := range codecs.SupportedMediaTypes() {
		names = append(names, s.MediaType)
	}
	return strings.Join(names, ", ")
}
