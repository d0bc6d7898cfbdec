package capture

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"synclab/scenarios"
	"synclab/sim"
	"synclab/sim/api"
	"synclab/sim/front"
	"synclab/sim/world"
)

// Take returns the cluster, page by page over HTTP, and only reads it.
func TestTake(t *testing.T) {
	s, err := scenarios.Load("mixed-types", nil, scenarios.Sizes{Services: 55, Endpoints: 4})
	if err != nil {
		t.Fatal(err)
	}
	want, err := world.Generate(s.Shape, 3)
	if err != nil {
		t.Fatal(err)
	}
	cluster := api.NewCluster(clock.RealClock{})
	t.Cleanup(cluster.Stop)
	if err := cluster.Load(t.Context(), want); err != nil {
		t.Fatal(err)
	}
	f, err := front.New(cluster, front.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var requests []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		requests = append(requests, r.Method+" "+r.URL.RequestURI())
		mu.Unlock()
		f.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	got, err := Take(t.Context(), client, 10)
	if err != nil {
		t.Fatal(err)
	}
	stripped := &sim.Objects{}
	for _, o := range want.Nodes {
		stripped.Nodes = append(stripped.Nodes, stripNode(o))
	}
	for _, o := range want.Services {
		stripped.Services = append(stripped.Services, stripService(o))
	}
	for _, o := range want.Slices {
		stripped.Slices = append(stripped.Slices, stripSlice(o))
	}
	if !equality.Semantic.DeepEqual(stripped, got) {
		t.Errorf("what was taken is not the cluster:\n%s", cmp.Diff(stripped, got))
	}
	pages := 0
	for _, r := range requests {
		if !strings.HasPrefix(r, "GET ") || !strings.Contains(r, "limit=10") {
			t.Errorf("request %s", r)
		}
		if strings.Contains(r, "/services?") {
			pages++
		}
	}
	if pages != 6 {
		t.Errorf("55 Services came in %d pages; want 6", pages)
	}
}
