package proxier

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"synclab/proxier/backend"
	"synclab/proxier/tracker"
)

// Kind is the kind of a sync.
type Kind string

// A full sync writes every chain. A partial sync writes the chains of changed Services and the shared chains.
const (
	Full    Kind = "full"
	Partial Kind = "partial"
)

// Sync describes one sync, successful or failed. The sync log has it as JSON: see synclog.go.
type Sync struct {
	Family corev1.IPFamily `json:"family"`
	Seq    int             `json:"seq"` // from 1, within the family and the process
	Kind   Kind            `json:"kind"`
	// Reason of a full sync: start, drift, addresses, refused, interval, topology, failure, size. A partial sync has
	// changes.
	Reason string `json:"reason"`
	// Queued is when the first of its changes reached the tracker; zero when the sync had no changes.
	Queued time.Time `json:"queued,omitzero"`
	// Started to Finished is the whole sync as kube-proxy counts it, including health checks, metrics and the cleanup
	// of stale UDP flows. Written is when the kernel had all rules; zero when the sync failed.
	Started  time.Time `json:"started"`
	Written  time.Time `json:"written,omitzero"`
	Finished time.Time `json:"finished"`
	// Plan is the proxier's phase before the backend's. It begins at Started and includes taking the changes from the tracker,
	// which merges EndpointSlices.
	Plan time.Duration `json:"plan_ns"`
	backend.Work
	// Services and Endpoints are the numbers that are known after the sync.
	Services  int `json:"services"`
	Endpoints int `json:"endpoints"`
	// Changes is the number of Services that differed. Events is the number of informer events behind them. Pending is
	// the number of Services with newer events, left for the next sync.
	Changes int `json:"changes"`
	Events  int `json:"events"`
	Pending int `json:"pending"`
	// TriggerTimes are the trigger times of the changes that are now visible, where they are known.
	TriggerTimes []time.Time `json:"triggerTimes,omitempty"`
	// Refused lists the Service ports whose rules differ from the desired ones, because the kernel or the tool refused
	// them.
	Refused []Refusal `json:"refused,omitempty"`
	Err     error     `json:"-"` // as text in the log
}

// Duration returns the time from Started to Finished.
func (s *Sync) Duration() time.Duration { return s.Finished.Sub(s.Started) }

// Refusal is a Service port whose rules were refused.
type Refusal struct {
	Port tracker.ServicePortName
	Err  error
}
