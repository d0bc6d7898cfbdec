package front

import (
	"crypto/subtle"
	"fmt"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// CheckHost refuses the host of a request if it is a name other than localhost, against DNS rebinding: a web page whose
// name leads here makes its browser send that name.
func CheckHost(host string) error {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	if _, err := netip.ParseAddr(strings.Trim(name, "[]")); err != nil && name != "localhost" {
		return fmt.Errorf("host %q: want an address or localhost", host)
	}
	return nil
}

// guard refuses requests without the token, and those that CheckHost refuses.
func (f *Front) guard(r *http.Request) error {
	if f.options.Token == "" {
		return nil
	}
	if err := CheckHost(r.Host); err != nil {
		return apierrors.NewForbidden(schema.GroupResource{}, "", err)
	}
	if subtle.ConstantTimeCompare([]byte(r.Header.Get("Authorization")), []byte("Bearer "+f.options.Token)) != 1 {
		return apierrors.NewUnauthorized("the bearer token is in the kubeconfig that synclab serve wrote")
	}
	return nil
}

// enterWatch counts a new watch. The caller must call leave at the watch's end.
func (f *Front) enterWatch() (leave func(), err error) {
	if n := f.watches.Add(1); f.options.MaxWatches > 0 && n > int64(f.options.MaxWatches) {
		f.watches.Add(-1)
		return nil, apierrors.NewTooManyRequests(fmt.Sprintf("%d watches are open", f.options.MaxWatches), 1)
	}
	return func() { f.watches.Add(-1) }, nil
}

// checkMediaType checks the declared type of a body: a browser sends neither type without a preflight request.
func checkMediaType(of *resource, name string, r *http.Request) error {
	if r.Method != http.MethodPost && r.Method != http.MethodPut { // the type of a patch says how to patch, and is checked there
		return nil
	}
	got, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err == nil && (got == runtime.ContentTypeJSON || got == runtime.ContentTypeProtobuf) {
		return nil
	}
	return apierrors.NewGenericServerResponse(http.StatusUnsupportedMediaType, strings.ToLower(r.Method), of.GroupResource(), name,
		fmt.Sprintf("want %s or %s", runtime.ContentTypeJSON, runtime.ContentTypeProtobuf), 0, true)
}
