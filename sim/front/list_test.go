package front

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"synclab/scenarios"
	"synclab/sim"
)

func TestRefusals(t *testing.T) {
	l := labOf(t, fewServices(), Options{})
	for _, c := range []struct {
		method, path, accept string
		code                 int
		reason               metav1.StatusReason
		says                 string
	}{
		{"GET", "/api/v1/pods", "", 404, metav1.StatusReasonNotFound, "could not find the requested resource"},
		{"GET", "/api/v1/services/one", "", 404, metav1.StatusReasonNotFound, ""},
		{"GET", "/api/v1/namespaces/one/nodes", "", 404, metav1.StatusReasonNotFound, ""},
		{"GET", "/api/v1/namespaces/one/services/a/status", "", 404, metav1.StatusReasonNotFound, ""},
		{"GET", "/api/v2", "", 404, metav1.StatusReasonNotFound, ""},
		{"GET", "/apis/apps", "", 404, metav1.StatusReasonNotFound, ""},
		{"GET", "/apis/apps/v1", "", 404, metav1.StatusReasonNotFound, ""},
		{"GET", "/apis/apps/v1/deployments", "", 404, metav1.StatusReasonNotFound, ""},
		{"GET", "/openapi/v2", "", 404, metav1.StatusReasonNotFound, ""},
		{"GET", "/", "", 404, metav1.StatusReasonNotFound, ""},
		{"GET", "/api/v1/namespaces/one/services/z", "", 404, metav1.StatusReasonNotFound, `services "z" not found`},
		{"DELETE", "/api/v1/namespaces/one/services/a", "", 405, metav1.StatusReasonMethodNotAllowed, "read-only"},
		{"POST", "/apis/discovery.k8s.io/v1/namespaces/one/endpointslices", "", 405, metav1.StatusReasonMethodNotAllowed, "only Events"},
		{"PATCH", "/api/v1/nodes/node-0", "", 405, metav1.StatusReasonMethodNotAllowed, "read-only"},
		{"DELETE", "/api/v1/namespaces/one/events/a", "", 405, metav1.StatusReasonMethodNotAllowed, ""},
		{"GET", "/api/v1/services", "text/html", 406, metav1.StatusReasonNotAcceptable, "application/json"},
		{"GET", "/api/v1/services", "application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io", 406, metav1.StatusReasonNotAcceptable, ""},
		{"GET", "/api/v1/services?labelSelector=a+b", "", 400, metav1.StatusReasonBadRequest, ""},
		{"GET", "/api/v1/services?fieldSelector=spec.ports%3D80", "", 400, metav1.StatusReasonBadRequest, "field label not supported: spec.ports"},
		{"GET", "/api/v1/nodes?fieldSelector=metadata.namespace%3Dx", "", 400, metav1.StatusReasonBadRequest, "field label not supported"},
		{"GET", "/api/v1/services?resourceVersion=x", "", 400, metav1.StatusReasonBadRequest, "invalid resource version"},
		{"GET", "/api/v1/services?resourceVersion=-1", "", 400, metav1.StatusReasonBadRequest, "invalid resource version"},
		{"GET", "/api/v1/services?resourceVersionMatch=Exact", "", 422, metav1.StatusReasonInvalid, "resourceVersionMatch is forbidden unless resourceVersion is provided"},
		{"GET", "/api/v1/services?resourceVersion=0&resourceVersionMatch=Exact", "", 422, metav1.StatusReasonInvalid, ""},
		{"GET", "/api/v1/services?sendInitialEvents=true", "", 422, metav1.StatusReasonInvalid, "sendInitialEvents is forbidden for list"},
		{"GET", "/api/v1/services?watch=1&sendInitialEvents=true", "", 422, metav1.StatusReasonInvalid, "sendInitialEvents requires"},
		{"GET", "/api/v1/services?continue=x%25", "", 400, metav1.StatusReasonBadRequest, "continue key is not valid"},
		{"GET", "/api/v1/services?resourceVersion=1&continue=" + token{1, "a"}.String(), "", 400, metav1.StatusReasonBadRequest, "not allowed when using continue"},
		{"GET", "/api/v1/services?continue=" + token{1 << 40, "a"}.String(), "", 400, metav1.StatusReasonBadRequest, "continue key is not valid"},
		{"GET", "/api/v1/services?resourceVersion=999999", "", 504, metav1.StatusReasonTimeout, "Too large resource version"},
		{"GET", "/api/v1/services?resourceVersion=999999&resourceVersionMatch=Exact", "", 504, metav1.StatusReasonTimeout, "Too large resource version"},
		{"GET", "/api/v1/namespaces/one/services/a?resourceVersion=999999", "", 504, metav1.StatusReasonTimeout, "Too large resource version"},
		{"GET", "/api/v1/services?includeObject=All", "application/json;as=Table;v=v1;g=meta.k8s.io", 400, metav1.StatusReasonBadRequest, "includeObject"},
	} {
		t.Run(c.method+" "+c.path+" "+c.accept, func(t *testing.T) {
			a := l.ask(t, c.method, c.path, nil, "Accept", c.accept)
			var status metav1.Status
			if err := json.Unmarshal(a.body, &status); err != nil {
				t.Fatalf("%v: %s", err, a.body)
			}
			if a.StatusCode != c.code || status.Kind != "Status" || status.APIVersion != "v1" || int(status.Code) != c.code || status.Reason != c.reason || !strings.Contains(status.Message, c.says) {
				t.Errorf("%d: %s, want %d %s with %q", a.StatusCode, a.body, c.code, c.reason, c.says)
			}
		})
	}
	large := get[metav1.Status](t, l, "/api/v1/services?resourceVersion=999999", 504)
	if len(large.Details.Causes) != 1 || large.Details.Causes[0].Type != metav1.CauseTypeResourceVersionTooLarge {
		t.Errorf("client-go cannot see that the version is too large: %+v", large)
	}
}

func TestSelections(t *testing.T) {
	objects := fewServices()
	objects.Services[1].Spec.ClusterIP = corev1.ClusterIPNone
	objects.Services[2].Spec.Type = corev1.ServiceTypeNodePort
	objects.Services[3].Labels["service.kubernetes.io/service-proxy-name"] = "other"
	objects.Services[4].Labels[corev1.IsHeadlessService] = ""
	l := labOf(t, objects, Options{})
	for selector, want := range map[string]string{
		"":                                                 "one/a one/b one/c two/a two/b two/c",
		"labelSelector=app=a":                              "one/a two/a",
		"labelSelector=app+in+(a,b),app!=b":                "one/a two/a",
		"fieldSelector=metadata.name=c":                    "one/c two/c",
		"fieldSelector=metadata.namespace=two":             "two/a two/b two/c",
		"fieldSelector=spec.clusterIP!=None":               "one/a one/c two/a two/b two/c",
		"fieldSelector=spec.type=NodePort":                 "one/c",
		"fieldSelector=spec.type=NodePort,metadata.name=a": "",
		"labelSelector=!service.kubernetes.io/headless,!service.kubernetes.io/service-proxy-name": "one/a one/b one/c two/c",
	} {
		query, err := url.ParseQuery(selector)
		if err != nil {
			t.Fatal(err)
		}
		if name, value, ok := strings.Cut(selector, "="); ok {
			query = url.Values{name: {strings.ReplaceAll(value, "+", " ")}}
		}
		if got := names(get[corev1.ServiceList](t, l, "/api/v1/services?"+query.Encode(), 200)); got != want {
			t.Errorf("%s: %s, want %s", selector, got, want)
		}
	}
	if got := names(get[corev1.ServiceList](t, l, "/api/v1/namespaces/two/services", 200)); got != "two/a two/b two/c" {
		t.Errorf("namespace two: %s", got)
	}
	if got := get[corev1.ServiceList](t, l, "/api/v1/namespaces/none/services", 200); got.Items == nil || len(got.Items) > 0 {
		t.Errorf("a namespace without Services: items are %v, want an empty list", got.Items)
	}
	if got := get[corev1.NamespaceList](t, l, "/api/v1/namespaces", 200); len(got.Items) != 7 {
		t.Errorf("%d namespaces, want the four that every cluster has, one, two and three", len(got.Items))
	}
	if got := get[corev1.Service](t, l, "/api/v1/namespaces/one/services/a", 200); got.Name != "a" || got.Kind != "Service" || got.APIVersion != "v1" {
		t.Errorf("get: %s %s %s", got.APIVersion, got.Kind, got.Name)
	}
	if got := get[corev1.Namespace](t, l, "/api/v1/namespaces/three", 200); got.Name != "three" {
		t.Errorf("get of a namespace: %q", got.Name)
	}
}

func names(l corev1.ServiceList) string {
	var all []string
	for _, s := range l.Items {
		all = append(all, s.Namespace+"/"+s.Name)
	}
	return strings.Join(all, " ")
}

func TestChunksAreOfOneVersion(t *testing.T) {
	l := labOf(t, fewServices(), Options{})
	first := get[corev1.ServiceList](t, l, "/api/v1/services?limit=2", 200)
	if names(first) != "one/a one/b" || first.Continue == "" || first.RemainingItemCount == nil || *first.RemainingItemCount != 4 {
		t.Fatalf("first chunk: %s, %+v", names(first), first.ListMeta)
	}
	l.change(t,
		sim.Change{Op: sim.Delete, Object: service("one", "c", nil)},
		sim.Change{Op: sim.Add, Object: service("one", "d", nil)},
		sim.Change{Op: sim.Update, Object: service("two", "a", map[string]string{"new": "yes"})},
	)
	second := get[corev1.ServiceList](t, l, "/api/v1/services?limit=3&continue="+first.Continue, 200)
	if names(second) != "one/c two/a two/b" || second.ResourceVersion != first.ResourceVersion || second.Items[1].Labels["new"] != "" {
		t.Errorf("second chunk: %s of version %s, want the state of version %s", names(second), second.ResourceVersion, first.ResourceVersion)
	}
	if got := get[corev1.ServiceList](t, l, "/api/v1/services?limit=1&resourceVersion=0", 200); len(got.Items) != 6 || got.Continue != "" {
		t.Errorf("with version 0 a limit has no meaning: %d items, %+v", len(got.Items), got.ListMeta)
	}
	third := get[corev1.ServiceList](t, l, "/api/v1/services?limit=3&continue="+second.Continue, 200)
	if names(third) != "two/c" || third.Continue != "" || third.RemainingItemCount != nil {
		t.Errorf("third chunk: %s, %+v", names(third), third.ListMeta)
	}
	// With a selector the number of remaining items is not known; within a namespace it is.
	if got := get[corev1.ServiceList](t, l, "/api/v1/services?limit=1&labelSelector=app", 200); got.Continue == "" || got.RemainingItemCount != nil {
		t.Errorf("chunk with a selector: %+v", got.ListMeta)
	}
	if got := get[corev1.ServiceList](t, l, "/api/v1/namespaces/two/services?limit=1", 200); *got.RemainingItemCount != 2 {
		t.Errorf("chunk of a namespace: %d remain, want 2", *got.RemainingItemCount)
	}

	l.front.Forget()
	l.change(t, sim.Change{Op: sim.Delete, Object: service("one", "b", nil)})
	gone := get[metav1.Status](t, l, "/api/v1/services?limit=3&continue="+first.Continue, 410)
	if gone.Reason != metav1.StatusReasonExpired || gone.ListMeta.Continue == "" {
		t.Fatalf("a continue token that is too old: %+v", gone)
	}
	rest := get[corev1.ServiceList](t, l, "/api/v1/services?continue="+gone.ListMeta.Continue, 200)
	if names(rest) != "one/d two/a two/b two/c" || rest.ResourceVersion == first.ResourceVersion {
		t.Errorf("the inconsistent rest: %s of version %s", names(rest), rest.ResourceVersion)
	}
}

func TestVersionsOfLists(t *testing.T) {
	l := labOf(t, fewServices(), Options{History: 3})
	before := get[corev1.ServiceList](t, l, "/api/v1/services", 200).ResourceVersion
	l.change(t, sim.Change{Op: sim.Delete, Object: service("one", "a", nil)})
	l.change(t, sim.Change{Op: sim.Add, Object: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}})
	now := get[corev1.ServiceList](t, l, "/api/v1/services", 200).ResourceVersion
	if was, is := number(t, before), number(t, now); is != was+2 {
		t.Errorf("two writes took the version from %d to %d", was, is)
	}
	for query, want := range map[string]struct {
		version string
		n       int
	}{
		"":                                       {now, 5},
		"resourceVersion=0":                      {now, 5},
		"resourceVersion=" + before:              {now, 5},
		"resourceVersion=" + before + "&limit=9": {before, 6},
		"resourceVersion=" + before + "&resourceVersionMatch=NotOlderThan": {now, 5},
		"resourceVersion=" + before + "&resourceVersionMatch=Exact":        {before, 6},
		"resourceVersion=" + now + "&resourceVersionMatch=Exact":           {now, 5},
	} {
		if got := get[corev1.ServiceList](t, l, "/api/v1/services?"+query, 200); got.ResourceVersion != want.version || len(got.Items) != want.n {
			t.Errorf("%s: %d items of version %s, want %d of %s", query, len(got.Items), got.ResourceVersion, want.n, want.version)
		}
	}
	for i := range 3 {
		l.change(t, sim.Change{Op: sim.Add, Object: service("one", "x"+strconv.Itoa(i), nil)})
	}
	expired := get[metav1.Status](t, l, "/api/v1/services?resourceVersionMatch=Exact&resourceVersion="+before, 410)
	if expired.Reason != metav1.StatusReasonExpired {
		t.Errorf("a version that is forgotten: %+v", expired)
	}
}

func number(t testing.TB, text string) int64 {
	t.Helper()
	v, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestEveryEncodingSaysTheSame decodes with the codecs what the streaming encoders made of cached parts.
func TestEveryEncodingSaysTheSame(t *testing.T) {
	l := newLab(t, scenarios.Shape{Services: 80, Endpoints: scenarios.Endpoints{Count: 16}}, Options{})
	want := contents(t, l.world.Objects().Slices)
	for _, mediaType := range []string{runtime.ContentTypeJSON, runtime.ContentTypeYAML, runtime.ContentTypeProtobuf} {
		for _, compressed := range []bool{false, true} {
			if compressed && mediaType == runtime.ContentTypeYAML {
				continue // slow, and tests nothing else
			}
			t.Run(fmt.Sprintf("%s/gzip=%v", mediaType, compressed), func(t *testing.T) {
				encoding := "identity"
				if compressed {
					encoding = "deflate;q=1, gzip"
				}
				a := l.ask(t, "GET", "/apis/discovery.k8s.io/v1/endpointslices", nil, "Accept", mediaType, "Accept-Encoding", encoding)
				if a.Header.Get("Content-Type") != mediaType || (a.Header.Get("Content-Encoding") == "gzip") != compressed {
					t.Fatalf("%v", a.Header)
				}
				body := a.body
				if compressed {
					z, err := gzip.NewReader(bytes.NewReader(body))
					if err != nil {
						t.Fatal(err)
					}
					if body, err = io.ReadAll(z); err != nil {
						t.Fatal(err)
					}
				}
				object, gvk, err := codecs.UniversalDeserializer().Decode(body, nil, nil)
				if err != nil {
					t.Fatal(err)
				}
				got, ok := object.(*discoveryv1.EndpointSliceList)
				if !ok || gvk.Kind != "EndpointSliceList" || got.ResourceVersion == "" {
					t.Fatalf("%v: a %T", gvk, object)
				}
				all := make([]*discoveryv1.EndpointSlice, len(got.Items))
				for i := range got.Items {
					all[i] = &got.Items[i]
				}
				compare(t, contents(t, all), want)
			})
		}
	}
	small := l.ask(t, "GET", "/version", nil, "Accept-Encoding", "gzip")
	if small.Header.Get("Content-Encoding") != "" {
		t.Error("a small answer is compressed")
	}
}

func compare(t *testing.T, got, want map[string]string) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%d objects, want %d", len(got), len(want))
	}
	for key := range want {
		if got[key] != want[key] {
			t.Fatalf("%s is\n%s\nwant\n%s", key, got[key], want[key])
		}
	}
}

func TestConversions(t *testing.T) {
	l := labOf(t, fewServices(), Options{})
	a := l.ask(t, "GET", "/api/v1/services?limit=2", nil, "Accept", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json")
	var table metav1.Table
	if err := json.Unmarshal(a.body, &table); err != nil {
		t.Fatal(err)
	}
	var columns []string
	for _, c := range table.ColumnDefinitions {
		columns = append(columns, c.Name)
	}
	if want := []string{"Name", "Type", "Cluster-IP", "External-IP", "Port(s)", "Age", "Selector"}; table.Kind != "Table" || !slices.Equal(columns, want) {
		t.Errorf("a %s of %q, want %q", table.Kind, columns, want)
	}
	if len(table.Rows) != 2 || fmt.Sprint(table.Rows[0].Cells[:5]) != "[a ClusterIP 10.96.0.1 <none> 80/TCP]" || table.Continue == "" {
		t.Errorf("rows %+v", table.Rows)
	}
	if !strings.Contains(string(table.Rows[0].Object.Raw), `"kind":"PartialObjectMetadata"`) {
		t.Errorf("a row holds %s", table.Rows[0].Object.Raw)
	}
	for _, mediaType := range []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf} {
		a := l.ask(t, "GET", "/api/v1/services", nil, "Accept", mediaType+";as=PartialObjectMetadataList;v=v1;g=meta.k8s.io")
		object, _, err := codecs.UniversalDeserializer().Decode(a.body, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		if partial, ok := object.(*metav1.PartialObjectMetadataList); !ok || len(partial.Items) != 6 || partial.Items[5].Name != "c" || partial.Items[5].Labels["app"] != "c" {
			t.Errorf("%s: %T %+v", mediaType, object, object)
		}
	}
	// Formats that a client prefers but the front does not have are skipped.
	a = l.ask(t, "GET", "/api/v1/services", nil, "Accept", "application/cbor, application/json;as=Other;v=v1;g=meta.k8s.io, application/vnd.kubernetes.protobuf;q=0.5, application/yaml;q=0.7")
	if got := a.Header.Get("Content-Type"); got != runtime.ContentTypeYAML {
		t.Errorf("Content-Type %s, want %s", got, runtime.ContentTypeYAML)
	}
}

func TestPause(t *testing.T) {
	l := labOf(t, fewServices(), Options{})
	l.front.Pause(true)
	if a := l.ask(t, http.MethodGet, "/readyz", nil); a.StatusCode != 503 {
		t.Errorf("paused: %s", a.Status)
	}
	l.front.Pause(false)
	if a := l.ask(t, http.MethodGet, "/readyz", nil); a.StatusCode != 200 || string(a.body) != "ok" {
		t.Errorf("not paused: %s %s", a.Status, a.body)
	}
}
