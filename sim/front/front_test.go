package front

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"

	"synclab/scenarios"
	"synclab/sim"
	"synclab/sim/api"
	"synclab/sim/world"
)

// lab is a cluster with a front that listens.
type lab struct {
	*testing.T
	cluster *api.Cluster
	front   *Front
	world   *world.World
	url     string
}

// newLab makes a lab of a shape.
func newLab(t testing.TB, shape scenarios.Shape, o Options) *lab {
	t.Helper()
	world, err := world.NewWorld(shape, 1)
	if err != nil {
		t.Fatal(err)
	}
	if shape.Services > 0 {
		if _, err := world.Create(scenarios.Create{}); err != nil {
			t.Fatal(err)
		}
	}
	l := labOf(t, world.Objects(), o)
	l.world = world
	return l
}

// labOf makes a lab of objects.
func labOf(t testing.TB, objects *sim.Objects, o Options) *lab {
	t.Helper()
	l := &lab{cluster: api.NewCluster(clock.RealClock{})}
	l.T, _ = t.(*testing.T)
	t.Cleanup(l.cluster.Stop)
	if err := l.cluster.Load(context.Background(), objects); err != nil {
		t.Fatal(err)
	}
	var err error
	if l.front, err = New(l.cluster, o); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(l.front)
	t.Cleanup(server.Close)
	t.Cleanup(l.front.Close) // first: it ends the watches that the server waits for
	l.url = server.URL
	return l
}

// config is what clients read from the front's kubeconfig.
func (l *lab) config(t testing.TB, contentType string) *rest.Config {
	t.Helper()
	data, err := Kubeconfig(l.url, nil)
	if err != nil {
		t.Fatal(err)
	}
	c, err := clientcmd.RESTConfigFromKubeConfig(data)
	if err != nil {
		t.Fatal(err)
	}
	c.ContentType, c.QPS = contentType, -1
	return c
}

func (l *lab) client(t testing.TB, contentType string) *kubernetes.Clientset {
	t.Helper()
	c, err := kubernetes.NewForConfig(l.config(t, contentType))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// change makes changes, each of which must succeed.
func (l *lab) change(t testing.TB, changes ...sim.Change) {
	t.Helper()
	for _, ch := range changes {
		if err := l.cluster.Apply(context.Background(), ch); err != nil {
			t.Fatal(err)
		}
	}
}

// churn makes n changes of endpoints, and returns how many events they are.
func (l *lab) churn(t testing.TB, n int) int {
	t.Helper()
	trace, err := l.world.Churn(scenarios.Churn{Rate: 1e6, Events: n})
	if err != nil {
		t.Fatal(err)
	}
	l.change(t, trace...)
	return len(trace)
}

// answer is the response to a request.
type answer struct {
	*http.Response
	body []byte
}

// ask sends a request; headers are pairs.
func (l *lab) ask(t testing.TB, method, path string, body io.Reader, headers ...string) answer {
	t.Helper()
	r, err := http.NewRequest(method, l.url+path, body)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	response, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{response, data}
}

// get sends a request and decodes the JSON response.
func get[T any](t testing.TB, l *lab, path string, wantCode int) T {
	t.Helper()
	a := l.ask(t, http.MethodGet, path, nil)
	if a.StatusCode != wantCode {
		t.Fatalf("GET %s: %s, want %d: %s", path, a.Status, wantCode, a.body)
	}
	var into T
	if err := json.Unmarshal(a.body, &into); err != nil {
		t.Fatalf("GET %s: %v: %s", path, err, a.body)
	}
	return into
}

// service returns a small Service.
func service(namespace, name string, labels map[string]string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, ClusterIP: "10.96.0.1", ClusterIPs: []string{"10.96.0.1"}, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
			Ports: []corev1.ServicePort{{Port: 80, Protocol: corev1.ProtocolTCP}},
		},
	}
}

// fewServices returns a, b, c in the namespaces one and two.
func fewServices() *sim.Objects {
	o := &sim.Objects{}
	for _, namespace := range []string{"one", "two"} {
		for _, name := range []string{"a", "b", "c"} {
			o.Services = append(o.Services, service(namespace, name, map[string]string{"app": name}))
		}
	}
	o.Slices = []*discoveryv1.EndpointSlice{{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "three", Name: "a-1", Labels: map[string]string{discoveryv1.LabelServiceName: "a"}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"10.128.0.1"}}},
	}}
	return o
}
