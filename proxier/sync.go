package proxier

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"synclab/proxier/backend"
	"synclab/proxier/tracker"
)

// Kind of a sync.
type Kind string

// A full sync writes every chain, a partial sync those of changed Services and the shared ones.
const (
	Full    Kind = "full"
	Partial Kind = "partial"
)

// Sync tells of one sync, successful or not.
type Sync struct {
	Family corev1.IPFamily
	Seq    int // from 1, within the family
	Kind   Kind
	// Reason of a full sync: start, drift, addresses, refused, interval, topology, failure, size. Of a partial one: changes.
	Reason string
	// Queued is when the first of its changes reached the tracker; zero when it had none.
	Queued time.Time
	// Started to Finished is the whole sync, as kube-proxy counts it: health checks, metrics and stale UDP flows included.
	// Written is when the kernel had everything; zero when the sync failed.
	Started, Written, Finished time.Time
	// Plan, Encode and Jumps are the phases of the proxier itself. Plan begins at Started: taking the changes from the
	// tracker, which merges their slices, is part of it. Jumps includes the tools run for the base chains.
	Plan, Encode, Jumps time.Duration
	// Runs of iptables-restore: one, unless something had to be isolated.
	Runs []backend.Run
	// Installed is what the tables hold of the proxier, Sent what of that the sync sent; see backend.Result.
	Installed, Sent map[backend.Table]backend.Count
	// Services and Endpoints known after it.
	Services, Endpoints int
	// Changes is the number of Services that differed; Events how many informer events made them; Pending what came
	// meanwhile and waits for the next sync.
	Changes, Events, Pending int
	// TriggerTimes of the changes that are now visible, where they are known.
	TriggerTimes []time.Time
	// Refused Service ports: their rules are not as wanted, because the kernel or the tool refused them.
	Refused []Refusal
	Err     error
}

// Duration of the sync.
func (s *Sync) Duration() time.Duration { return s.Finished.Sub(s.Started) }

// Refusal is a Service port whose rules were refused.
type Refusal struct {
	Port tracker.ServicePortName
	Err  error
}
