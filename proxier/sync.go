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

// Sync describes one sync, successful or failed.
type Sync struct {
	Family corev1.IPFamily
	Seq    int // from 1, within the family
	Kind   Kind
	// Reason of a full sync: start, drift, addresses, refused, interval, topology, failure, size. A partial sync has
	// changes.
	Reason string
	// Queued is when the first of its changes reached the tracker; zero when the sync had no changes.
	Queued time.Time
	// Started to Finished is the whole sync as kube-proxy counts it, including health checks, metrics and the cleanup
	// of stale UDP flows. Written is when the kernel had all rules; zero when the sync failed.
	Started, Written, Finished time.Time
	// Plan, Encode and Jumps are the proxier's phases. Plan begins at Started and includes taking the changes from the
	// tracker, which merges EndpointSlices. Jumps includes the tools that ran for the base chains.
	Plan, Encode, Jumps time.Duration
	// Runs are the runs of iptables-restore: one, unless a sync was split or something had to be isolated.
	Runs []backend.Run
	// Installed counts the proxier's rules in the tables, and Sent those that this sync sent; see backend.Result.
	Installed, Sent map[backend.Table]backend.Count
	// Services and Endpoints are the numbers that are known after the sync.
	Services, Endpoints int
	// Changes is the number of Services that differed. Events is the number of informer events behind them. Pending is
	// the number of Services with newer events, left for the next sync.
	Changes, Events, Pending int
	// TriggerTimes are the trigger times of the changes that are now visible, where they are known.
	TriggerTimes []time.Time
	// Refused lists the Service ports whose rules differ from the desired ones, because the kernel or the tool refused
	// them.
	Refused []Refusal
	Err     error
}

// Duration returns the time from Started to Finished.
func (s *Sync) Duration() time.Duration { return s.Finished.Sub(s.Started) }

// Refusal is a Service port whose rules were refused.
type Refusal struct {
	Port tracker.ServicePortName
	Err  error
}
