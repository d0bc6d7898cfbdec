package front

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	goruntime "runtime"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	internalscheme "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
)

// Request is a request that has been answered.
type Request struct {
	Method, URI, UserAgent string
	Code                   int
	Began                  time.Time
	Took                   time.Duration
}

// ServeHTTP answers one request.
func (f *Front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if answered := f.options.Answered; answered != nil {
		began := f.clock.Now()
		recorded := &recorder{ResponseWriter: w, code: http.StatusOK}
		defer func() {
			answered(Request{r.Method, r.URL.RequestURI(), r.UserAgent(), recorded.code, began, f.clock.Since(began)})
		}()
		w = recorded
	}
	if err := f.answer(w, r); err != nil {
		refuse(w, r, err)
	}
}

// recorder records the status of a response.
type recorder struct {
	http.ResponseWriter
	code int
}

func (r *recorder) WriteHeader(code int) {
	r.code = code
	r.ResponseWriter.WriteHeader(code)
}

// Unwrap lets http.ResponseController flush and set deadlines.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// answer routes a request. Its error is for the client; no response has been written then.
func (f *Front) answer(w http.ResponseWriter, r *http.Request) error {
	if err := f.guard(r); err != nil {
		w.Header().Set("Connection", "close")
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(time.Second)) // for the data that the client still sends
		return err
	}
	if f.paused.Load() {
		return apierrors.NewServiceUnavailable("the fake API server is paused")
	}
	path := split(r.URL.Path)
	switch path[0] {
	case "healthz", "livez", "readyz":
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		fmt.Fprint(w, "ok")
		return nil
	case "version":
		return f.version(w)
	case "openapi":
		return openAPI(w, path)
	case "api", "apis":
		if len(path) < 2 || path[0] == "apis" && len(path) < 4 || path[0] == "api" && len(path) < 3 {
			return f.discover(w, r, path)
		}
		return f.answerResource(w, r, path)
	default:
		return errNotFound()
	}
}

// version answers /version, which is not an API object.
func (f *Front) version(w http.ResponseWriter) error {
	major, rest, _ := strings.Cut(strings.TrimPrefix(f.options.GitVersion, "v"), ".")
	minor, _, _ := strings.Cut(rest, ".")
	data, err := json.Marshal(version.Info{
		Major: major, Minor: minor, GitVersion: f.options.GitVersion, GitTreeState: "synclab", GoVersion: goruntime.Version(),
		Compiler: goruntime.Compiler, Platform: goruntime.GOOS + "/" + goruntime.GOARCH,
	})
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", runtime.ContentTypeJSON)
	_, _ = w.Write(data)
	return nil
}

// answerTimeout is how long a client may take to read a whole list.
const answerTimeout = 2 * time.Minute

// answerResource answers below /api/VERSION and /apis/GROUP/VERSION.
func (f *Front) answerResource(w http.ResponseWriter, r *http.Request, path []string) error {
	gv := groupVersionOf(path)
	rest := path[2:]
	if path[0] == "apis" {
		rest = path[3:]
	}
	namespace := ""
	// namespaces/NAME alone is a Namespace; longer paths are inside it.
	if len(rest) > 2 && rest[0] == "namespaces" {
		namespace, rest = rest[1], rest[2:]
	}
	of := resourceOf(gv.WithResource(rest[0]))
	if of == nil || len(rest) > 2 || namespace != "" && !of.namespaced {
		return errNotFound()
	}
	name := ""
	if len(rest) == 2 {
		name = rest[1]
	}
	if r.Method != http.MethodGet {
		if of.writable {
			return f.receive(w, r, of, namespace, name)
		}
		return errReadOnly(r.Method, of.GroupResource())
	}
	s, err := selectionOf(r.URL.Query(), of, namespace, name)
	if err != nil {
		return err
	}
	if s.options.Watch {
		leave, err := f.enterWatch()
		if err != nil {
			return err
		}
		defer leave()
		return f.watch(w, r, s)
	}
	control := http.NewResponseController(w)
	_ = control.SetWriteDeadline(time.Now().Add(answerTimeout))
	defer func() { _ = control.SetWriteDeadline(time.Time{}) }() // the connection is kept alive
	switch {
	case name != "":
		if of.namespaced && namespace == "" {
			return errNotFound()
		}
		return f.get(w, r, s, name)
	default:
		return f.list(w, r, s)
	}
}

// errReadOnly refuses a write.
func errReadOnly(method string, resource schema.GroupResource) error {
	err := apierrors.NewMethodNotSupported(resource, strings.ToLower(method))
	err.ErrStatus.Message = fmt.Sprintf("%s of %s is not allowed: synclab serve is read-only, its objects come from a scenario or from manifests; only Events may be written",
		method, resource)
	return err
}

// selectionOf reads the selection of a list or watch request.
func selectionOf(query url.Values, of *resource, namespace, name string) (*selection, error) {
	options := &internalversion.ListOptions{}
	if err := internalscheme.ParameterCodec.DecodeParameters(query, metav1.SchemeGroupVersion, options); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if errs := validation.ValidateListOptions(options, true); len(errs) > 0 {
		return nil, apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "ListOptions"}, "", errs)
	}
	if options.FieldSelector != nil {
		if err := of.checkFields(options.FieldSelector); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
	}
	if name != "" && options.Watch { // a watch of one object, as old kubectl sends it
		options.FieldSelector = fields.OneTermEqualSelector("metadata.name", name)
	}
	s := &selection{resource: of, namespace: namespace, options: options}
	if options.LabelSelector != nil && !options.LabelSelector.Empty() {
		s.labels = options.LabelSelector
	}
	return s, nil
}
