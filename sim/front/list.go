package front

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// selection is the set of objects of a resource that a request selects.
type selection struct {
	*resource
	namespace string
	labels    labels.Selector // nil for all
	options   *internalversion.ListOptions
}

func (s *selection) all() bool {
	return s.labels == nil && (s.options.FieldSelector == nil || s.options.FieldSelector.Empty())
}

func (s *selection) matches(it *item) bool {
	if s.namespace != "" && it.meta.GetNamespace() != s.namespace {
		return false
	}
	if s.labels != nil && !s.labels.Matches(labels.Set(it.meta.GetLabels())) {
		return false
	}
	selector := s.options.FieldSelector
	return selector == nil || selector.Empty() || selector.Matches(s.fieldsOf(it, selector))
}

// versionWanted reads a resourceVersion; 0 when there is none.
func versionWanted(text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	version, err := strconv.ParseUint(text, 10, 63)
	if err != nil {
		return 0, apierrors.NewBadRequest(fmt.Sprintf("invalid resource version %q: %v", text, err))
	}
	return int64(version), nil
}

// errTooLarge is the error for a future version.
func errTooLarge(version, current int64) error {
	err := apierrors.NewTimeoutError(fmt.Sprintf("Too large resource version: %d, current: %d", version, current), 1)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{
		Type: metav1.CauseTypeResourceVersionTooLarge, Message: "Too large resource version",
	}}
	return err
}

func errTooOld(version, oldest int64) error {
	return apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d (%d)", version, oldest))
}

// token is the content of a continue parameter: the rest of a list, as of a version, begins after a key.
type token struct {
	Version int64  `json:"rv"` // or anyVersion
	After   string `json:"after"`
}

// anyVersion continues a list with the present objects when its version is forgotten.
const anyVersion = -1

func (t token) String() string {
	data, err := json.Marshal(t)
	if err != nil {
		panic(err) // a number and a string
	}
	return base64.RawURLEncoding.EncodeToString(data)
}

func parseToken(text string) (token, error) {
	var t token
	data, err := base64.RawURLEncoding.DecodeString(text)
	if err == nil {
		err = json.Unmarshal(data, &t)
	}
	if err != nil {
		return t, apierrors.NewBadRequest(fmt.Sprintf("continue key is not valid: %v", err))
	}
	return t, nil
}

// state is the objects of a store at a version: its items, and the events to undo.
type state struct {
	version int64
	items   []*item
	undo    []event
}

// stateFor returns the state that the options request, as documented for resourceVersion and resourceVersionMatch.
func (f *Front) stateFor(s *store, o *internalversion.ListOptions) (state, token, error) {
	version, err := versionWanted(o.ResourceVersion)
	if err != nil {
		return state{}, token{}, err
	}
	var from token
	if o.Continue != "" {
		if version > 0 {
			return state{}, token{}, apierrors.NewBadRequest("specifying resource version is not allowed when using continue")
		}
		if from, err = parseToken(o.Continue); err != nil {
			return state{}, token{}, err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case from.Version > s.version:
		return state{}, token{}, apierrors.NewBadRequest("continue key is not valid: its version is in the future")
	case from.Version > 0 && from.Version < s.forgotten:
		err := apierrors.NewResourceExpired("The continue parameter is too old for the rest of a consistent list. List again from the start, or take the continue token of this answer: it gives the rest as it is now.")
		err.ErrStatus.ListMeta.Continue = token{anyVersion, from.After}.String()
		return state{}, token{}, err
	case from.Version > 0:
		return state{from.Version, s.snapshot(), s.since(from.Version)}, from, nil
	case version > s.version:
		return state{}, token{}, errTooLarge(version, s.version)
	// Without a match, a limit means exactly this version, so that the chunks of
	// a list fit together.
	case o.ResourceVersionMatch == metav1.ResourceVersionMatchExact, o.ResourceVersionMatch == "" && o.Limit > 0 && version > 0:
		if version < s.forgotten {
			return state{}, token{}, errTooOld(version, s.forgotten)
		}
		return state{version, s.snapshot(), s.since(version)}, from, nil
	default:
		return state{s.version, s.snapshot(), nil}, from, nil
	}
}

// list answers a list request.
func (f *Front) list(w http.ResponseWriter, r *http.Request, s *selection) error {
	v, ok := negotiate(r, mayConvert)
	if !ok {
		return errNotAcceptable()
	}
	limit := s.options.Limit
	if s.options.ResourceVersion == "0" {
		limit = 0 // the API server answers from its cache then, in one piece
	}
	st, from, err := f.stateFor(f.stores[s.resource], s.options)
	if err != nil {
		return err
	}
	items := within(undo(st.items, st.undo), s.namespace)
	if from.After != "" {
		i, found := slices.BinarySearchFunc(items, from.After, func(it *item, key string) int { return strings.Compare(it.key, key) })
		if found {
			i++
		}
		items = items[i:]
	}
	head := metav1.ListMeta{ResourceVersion: strconv.FormatInt(st.version, 10)}
	chosen := []*item{}
	for i, it := range items {
		if !s.matches(it) {
			continue
		}
		if limit > 0 && int64(len(chosen)) == limit {
			head.Continue = token{st.version, chosen[len(chosen)-1].key}.String()
			if s.all() { // with a selector the number is not known
				left := int64(len(items) - i)
				head.RemainingItemCount = &left
			}
			break
		}
		chosen = append(chosen, it)
	}
	object, err := f.show(r, v, s.resource, head, chosen)
	if err != nil {
		return err
	}
	write(w, r, v, http.StatusOK, object)
	return nil
}

// get answers with one object.
func (f *Front) get(w http.ResponseWriter, r *http.Request, s *selection, name string) error {
	v, ok := negotiate(r, mayConvert)
	if !ok {
		return errNotAcceptable()
	}
	version, err := versionWanted(s.options.ResourceVersion)
	if err != nil {
		return err
	}
	it, current := f.lookUp(s.resource, objectKey(s.namespace, name))
	switch {
	case version > current:
		return errTooLarge(version, current)
	case it == nil:
		return apierrors.NewNotFound(s.GroupResource(), name)
	}
	object, err := f.showOne(r, v, s.resource, it, true)
	if err != nil {
		return err
	}
	write(w, r, v, http.StatusOK, object)
	return nil
}

// lookUp returns an object, or nil if there is none, and the version of its store.
func (f *Front) lookUp(r *resource, key string) (*item, int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.stores[r]
	if i, found := s.find(key); found {
		return s.sorted[i], s.version
	}
	return nil, s.version
}
