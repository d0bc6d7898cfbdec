package health

import (
	"encoding/json"
	"errors"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
)

const (
	v4 = corev1.IPv4Protocol
	v6 = corev1.IPv6Protocol

	period = 30 * time.Second
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func newServer(t *testing.T, opts Options) (*Server, *clocktesting.FakePassiveClock) {
	t.Helper()
	clk := clocktesting.NewFakePassiveClock(start)
	opts.Clock, opts.SyncPeriod = clk, period
	if opts.Families == nil {
		opts.Families = []corev1.IPFamily{v4}
	}
	s, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	return s, clk
}

// TestHealthFollowsTheKernel replays the reports of sync loops. Each step has a time since the start and the expected
// health after it.
func TestHealthFollowsTheKernel(t *testing.T) {
	refused := errors.New("iptables-restore: exit status 4")
	type step struct {
		at      time.Duration
		do      func(*Server)
		healthy bool
	}
	nothing := func(*Server) {}
	queue := func(s *Server) { s.QueuedUpdate(v4) }
	begin := func(s *Server) { s.SyncStarted(v4) }
	succeed := func(s *Server) { s.Updated(v4) }
	fail := func(s *Server) { s.Failed(v4, refused) }
	tests := map[string][]step{
		"never synced": {
			{59 * time.Second, nothing, true},
			{60 * time.Second, nothing, false},
			{61 * time.Second, succeed, true},
			{time.Hour, nothing, true},
		},
		"an update that no sync takes": {
			{0, succeed, true},
			{10 * time.Second, queue, true},
			{50 * time.Second, queue, true}, // the oldest counts
			{69 * time.Second, nothing, true},
			{70 * time.Second, nothing, false},
			{80 * time.Second, succeed, true},
			{3 * time.Hour, nothing, true},
		},
		"a failed sync without a queued update": {
			{0, succeed, true},
			{10 * time.Second, begin, true},
			{20 * time.Second, fail, true},
			{30 * time.Second, begin, true},
			{40 * time.Second, fail, true},
			{69 * time.Second, nothing, true},
			{70 * time.Second, nothing, false},
			{71 * time.Second, begin, false},
			{72 * time.Second, succeed, true},
		},
		"an update during a sync is not in it": {
			{0, succeed, true},
			{10 * time.Second, begin, true},
			{15 * time.Second, queue, true},
			{20 * time.Second, succeed, true},
			{74 * time.Second, nothing, true},
			{75 * time.Second, nothing, false},
		},
		"an update during a sync that fails": {
			{0, succeed, true},
			{10 * time.Second, queue, true},
			{20 * time.Second, begin, true},
			{30 * time.Second, queue, true},
			{40 * time.Second, fail, true},
			{70 * time.Second, nothing, false},
			{71 * time.Second, begin, false},
			{72 * time.Second, succeed, true},
			{3 * time.Hour, nothing, true},
		},
		"a sync that hangs": {
			{0, succeed, true},
			{10 * time.Second, queue, true},
			{20 * time.Second, begin, true},
			{70 * time.Second, nothing, false},
		},
		"drift without any event": {
			{0, succeed, true},
			{10 * time.Second, func(s *Server) { s.Drifted(v4, "nat: canary gone") }, true},
			{70 * time.Second, nothing, false},
			{80 * time.Second, succeed, true},
		},
		"the other family": {
			{0, succeed, true},
			{0, func(s *Server) { s.QueuedUpdate(v6) }, true},
			{50 * time.Second, succeed, true},
			{60 * time.Second, nothing, false},
			{61 * time.Second, func(s *Server) { s.Updated(v6) }, true},
		},
	}
	for name, steps := range tests {
		t.Run(name, func(t *testing.T) {
			s, clk := newServer(t, Options{})
			for i, step := range steps {
				clk.SetTime(start.Add(step.at))
				step.do(s)
				if got := s.Healthy(); got != step.healthy {
					t.Fatalf("step %d, at %v: healthy %v, want %v: %+v", i, step.at, got, step.healthy, s.Livez())
				}
			}
		})
	}
}

func TestNodeEligibility(t *testing.T) {
	node := func(change func(*corev1.Node)) *corev1.Node {
		n := &corev1.Node{}
		change(n)
		return n
	}
	now := metav1.Now()
	for name, tt := range map[string]struct {
		node *corev1.Node
		want bool
	}{
		"plain":       {node(func(*corev1.Node) {}), true},
		"other taint": {node(func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "dedicated"}} }), true},
		"autoscaler":  {node(func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "a"}, {Key: toBeDeletedTaint}} }), false},
		"deleting":    {node(func(n *corev1.Node) { n.DeletionTimestamp = &now }), false},
		"deleted":     {nil, false},
	} {
		s, _ := newServer(t, Options{})
		if s.Healthz().Healthy {
			t.Errorf("%s: healthz is healthy before the node is known", name)
		}
		s.SyncNode(tt.node)
		if got := s.Healthz(); got.Healthy != tt.want || *got.NodeEligible != tt.want {
			t.Errorf("%s: healthz %+v, want healthy %v", name, got, tt.want)
		}
		if !s.Livez().Healthy {
			t.Errorf("%s: livez depends on the node", name)
		}
		ignoring, _ := newServer(t, Options{IgnoreNode: true})
		ignoring.SyncNode(tt.node)
		if !ignoring.Healthz().Healthy {
			t.Errorf("%s: a proxier without a node object is not eligible", name)
		}
	}
}

func TestAnswers(t *testing.T) {
	reg := prometheus.NewRegistry()
	healthz := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "proxy_healthz_total"}, []string{"code"})
	livez := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "proxy_livez_total"}, []string{"code"})
	reg.MustRegister(healthz, livez)
	s, clk := newServer(t, Options{Families: []corev1.IPFamily{v4, v6}, Gatherer: reg, HealthzTotal: healthz, LivezTotal: livez})
	s.SyncNode(&corev1.Node{})
	s.Updated(v4)
	s.Updated(v6)

	get := func(path string, wantCode int) *httptest.ResponseRecorder {
		t.Helper()
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		if w.Code != wantCode {
			t.Errorf("GET %s: %d, want %d: %s", path, w.Code, wantCode, w.Body)
		}
		return w
	}
	members := func(w *httptest.ResponseRecorder) []string {
		t.Helper()
		var body map[string]any
		if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil {
			t.Fatal(err)
		}
		var names []string
		for name := range body {
			names = append(names, name)
		}
		slices.Sort(names)
		return names
	}

	ok := get("/healthz", 200)
	if got := members(ok); !slices.Equal(got, []string{"currentTime", "healthy", "lastUpdated", "nodeEligible", "status"}) {
		t.Errorf("healthz has %v", got)
	}
	if ok.Header().Get("Content-Type") != "application/json" || ok.Header().Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("headers of healthz: %v", ok.Header())
	}
	if got := members(get("/livez", 200)); slices.Contains(got, "nodeEligible") {
		t.Errorf("livez has %v", got)
	}
	if got := get("/proxyMode", 200).Body.String(); got != "iptables" {
		t.Errorf("proxy mode %q", got)
	}

	clk.SetTime(start.Add(time.Second))
	s.Failed(v6, errors.New("lock held by pid 7"))
	clk.SetTime(start.Add(10 * time.Minute))
	s.Updated(v4)
	var got Status
	if err := json.Unmarshal(get("/healthz", 503).Body.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	six := got.Families[v6]
	if got.Healthy || !*got.NodeEligible || !got.Families[v4].Healthy || six.Healthy || six.Cause != "lock held by pid 7" ||
		!six.MissingSince.Equal(start.Add(time.Second)) || !got.LastUpdated.Equal(start) || !got.CurrentTime.Equal(start.Add(10*time.Minute)) {
		t.Errorf("healthz of a proxier whose IPv6 fails: %+v", got)
	}
	get("/livez", 503)
	body := get("/metrics", 200).Body.String()
	for _, line := range []string{
		`proxy_healthz_total{code="200"} 1`, `proxy_healthz_total{code="503"} 1`,
		`proxy_livez_total{code="200"} 1`, `proxy_livez_total{code="503"} 1`,
	} {
		if !strings.Contains(body, line) {
			t.Errorf("metrics have no line %s:\n%s", line, body)
		}
	}
}

func TestOptions(t *testing.T) {
	if _, err := New(Options{Families: []corev1.IPFamily{v4}}); err == nil {
		t.Error("accepted without a sync period")
	}
	if _, err := New(Options{SyncPeriod: period}); err == nil {
		t.Error("accepted without families")
	}
	s, _ := newServer(t, Options{})
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if w.Code != 404 {
		t.Errorf("metrics without a gatherer: %d", w.Code)
	}
}
