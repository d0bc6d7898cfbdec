package health

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
)

// toBeDeletedTaint is set by the cluster autoscaler on a node before its removal. Load balancers then drain the node
// first (KEP-3836).
const toBeDeletedTaint = "ToBeDeletedByClusterAutoscaler"

// Options configures New.
type Options struct {
	// SyncPeriod is the proxier's. The proxier is unhealthy once a rule has been missing for twice that time.
	SyncPeriod time.Duration
	// Families are the proxier's, at least one.
	Families []corev1.IPFamily
	// Clock; the real one when nil.
	Clock clock.PassiveClock
	// IgnoreNode is for a proxier without a Node object. Otherwise the node is not eligible until SyncNode is called.
	IgnoreNode bool
	// Mode is the answer of /proxyMode; "iptables" when empty.
	Mode string
	// Gatherer provides /metrics; without it the path does not exist.
	Gatherer prometheus.Gatherer
	// HealthzTotal and LivezTotal count answers by label code; nil: not counted.
	HealthzTotal, LivezTotal *prometheus.CounterVec
}

// Server keeps the health of one proxier. It is safe for concurrent use.
type Server struct {
	opts    Options
	timeout time.Duration

	mu           sync.Mutex
	families     map[corev1.IPFamily]*familyState
	nodeEligible bool
}

// familyState is the health of one family.
type familyState struct {
	// missing is when a desired rule was first missing from the kernel; zero: none is missing.
	missing time.Time
	// syncing: a sync runs since started. later is when the first update arrived that this sync cannot contain.
	syncing        bool
	started, later time.Time
	updated        time.Time // last success
	cause          string    // of the last failure or drift since then
	refused        []string
}

// New returns a Server. Each family misses everything from now on.
func New(opts Options) (*Server, error) {
	if opts.Clock == nil {
		opts.Clock = clock.RealClock{}
	}
	if opts.Mode == "" {
		opts.Mode = "iptables"
	}
	if opts.SyncPeriod <= 0 {
		return nil, fmt.Errorf("health: sync period %v is not positive", opts.SyncPeriod)
	}
	if len(opts.Families) == 0 {
		return nil, errors.New("health: no families")
	}
	s := &Server{
		opts:         opts,
		timeout:      2 * opts.SyncPeriod,
		families:     map[corev1.IPFamily]*familyState{},
		nodeEligible: opts.IgnoreNode,
	}
	for _, family := range opts.Families {
		s.families[family] = &familyState{missing: opts.Clock.Now(), cause: "never synced"}
	}
	return s, nil
}

// QueuedUpdate reports a change that is not in the kernel yet.
func (s *Server) QueuedUpdate(family corev1.IPFamily) {
	s.change(family, func(f *familyState, now time.Time) { f.miss(now) })
}

// Drifted reports that a rule of an earlier sync is missing from the kernel. what describes it in the answers.
func (s *Server) Drifted(family corev1.IPFamily, what string) {
	s.change(family, func(f *familyState, now time.Time) {
		f.miss(now)
		f.cause = "drift: " + what
	})
}

// SyncStarted reports the start of a sync. The sync does not contain updates queued from now on.
func (s *Server) SyncStarted(family corev1.IPFamily) {
	s.change(family, func(f *familyState, now time.Time) {
		f.syncing, f.started, f.later = true, now, time.Time{}
	})
}

// Updated reports that the sync succeeded: the kernel has everything queued before SyncStarted. Without SyncStarted, it
// has everything queued until now.
func (s *Server) Updated(family corev1.IPFamily) {
	s.change(family, func(f *familyState, now time.Time) {
		*f = familyState{missing: f.later, updated: now, refused: f.refused}
	})
}

// Failed reports that the sync failed, whatever its cause. Rules are then missing at the latest since its start, until
// a sync succeeds.
func (s *Server) Failed(family corev1.IPFamily, err error) {
	s.change(family, func(f *familyState, now time.Time) {
		if f.missing.IsZero() {
			f.missing = now
			if f.syncing {
				f.missing = f.started
			}
		}
		f.syncing, f.later = false, time.Time{}
		f.cause = err.Error()
	})
}

// Refused reports the Service ports whose rules the kernel refuses, for the answers; nil: none.
func (s *Server) Refused(family corev1.IPFamily, ports []string) {
	s.change(family, func(f *familyState, _ time.Time) { f.refused = ports })
}

// SyncNode reports the state of the proxier's node; nil: it was deleted.
func (s *Server) SyncNode(node *corev1.Node) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nodeEligible = s.opts.IgnoreNode || eligible(node)
}

// Healthy reports whether no family has missed a rule for too long. The node's state does not matter.
func (s *Server) Healthy() bool { return s.state().Healthy }

// miss records that a rule is missing from now on.
func (f *familyState) miss(now time.Time) {
	since := &f.missing
	if f.syncing {
		since = &f.later
	}
	if since.IsZero() {
		*since = now
	}
}

// oldest returns when a rule was first missing; zero: none is missing.
func (f *familyState) oldest() time.Time {
	if f.missing.IsZero() {
		return f.later
	}
	return f.missing
}

// change calls f with a family's state. It adds a family that Options.Families does not contain.
func (s *Server) change(family corev1.IPFamily, f func(*familyState, time.Time)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	state, ok := s.families[family]
	if !ok {
		state = &familyState{}
		s.families[family] = state
	}
	f(state, s.opts.Clock.Now())
}

// eligible reports whether load balancers should send traffic to a node.
func eligible(node *corev1.Node) bool {
	if node == nil || !node.DeletionTimestamp.IsZero() {
		return false
	}
	for _, taint := range node.Spec.Taints {
		if taint.Key == toBeDeletedTaint {
			return false
		}
	}
	return true
}
