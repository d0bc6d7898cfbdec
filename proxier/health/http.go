package health

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	corev1 "k8s.io/api/core/v1"
)

// Status is the body of /healthz and /livez.
type Status struct {
	// LastUpdated is CurrentTime while the answer is 200, as in kube-proxy's older versions: their readers took an old
	// time for a stuck loop. If families are unhealthy, it is the oldest success of those. If only the node is not
	// eligible, it is the newest success.
	LastUpdated time.Time `json:"lastUpdated"`
	CurrentTime time.Time `json:"currentTime"`
	// NodeEligible is absent from /livez.
	NodeEligible *bool `json:"nodeEligible,omitempty"`
	// Healthy reports whether the status code is 200.
	Healthy bool `json:"healthy"`
	// Families by name, "IPv4" and "IPv6".
	Families map[corev1.IPFamily]FamilyStatus `json:"status"`
}

// FamilyStatus is one family's part of a Status.
type FamilyStatus struct {
	LastUpdated time.Time `json:"lastUpdated"` // last success; zero before the first
	Healthy     bool      `json:"healthy"`
	// MissingSince is when a desired rule was first missing from the kernel.
	MissingSince *time.Time `json:"missingSince,omitempty"`
	// Cause is the last failure or drift since the last success.
	Cause string `json:"cause,omitempty"`
	// Refused lists the Service ports whose rules the kernel refused, each with its error. They do not make a family
	// unhealthy.
	Refused []string `json:"refused,omitempty"`
}

// Healthz returns the current status of /healthz.
func (s *Server) Healthz() Status {
	status := s.state()
	s.mu.Lock()
	node := s.nodeEligible
	s.mu.Unlock()
	status.NodeEligible = &node
	if status.Healthy && !node {
		status.Healthy = false
		status.LastUpdated = time.Time{}
		for _, f := range status.Families {
			if f.LastUpdated.After(status.LastUpdated) {
				status.LastUpdated = f.LastUpdated
			}
		}
	}
	return status
}

// Livez returns the current status of /livez.
func (s *Server) Livez() Status { return s.state() }

// Handler answers /healthz and /livez (on port 10256 in kube-proxy), /proxyMode and, with a Gatherer, /metrics (on port
// 10249).
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, s.Healthz(), s.opts.HealthzTotal)
	})
	mux.HandleFunc("/livez", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, s.Livez(), s.opts.LivezTotal)
	})
	mux.HandleFunc("/proxyMode", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		_, _ = w.Write([]byte(s.opts.Mode)) // the client may have disconnected
	})
	if s.opts.Gatherer != nil {
		mux.Handle("/metrics", promhttp.HandlerFor(s.opts.Gatherer, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError}))
	}
	return mux
}

// state returns the proxier's part of a Status, without the node.
func (s *Server) state() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.opts.Clock.Now()
	status := Status{CurrentTime: now, LastUpdated: now, Healthy: true, Families: map[corev1.IPFamily]FamilyStatus{}}
	for name, f := range s.families {
		family := FamilyStatus{LastUpdated: f.updated, Healthy: true, Cause: f.cause, Refused: f.refused}
		if since := f.oldest(); !since.IsZero() {
			family.MissingSince = &since
			family.Healthy = now.Sub(since) < s.timeout
		}
		if !family.Healthy && (status.Healthy || f.updated.Before(status.LastUpdated)) {
			status.Healthy = false
			status.LastUpdated = f.updated
		}
		status.Families[name] = family
	}
	return status
}

func answer(w http.ResponseWriter, status Status, total *prometheus.CounterVec) {
	code := http.StatusOK
	if !status.Healthy {
		code = http.StatusServiceUnavailable
	}
	if total != nil {
		total.WithLabelValues(strconv.Itoa(code)).Inc()
	}
	writeJSON(w, code, status)
}

func writeJSON(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body) // the types here always encode; the client may have disconnected
}
