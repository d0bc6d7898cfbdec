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

// toBeDeletedTaint is set by the cluster autoscaler on a node that it is going
// to remove, so that load balancers drain it first (KEP-3836).
const toBeDeletedTaint = "ToBeDeletedByClusterAutoscaler"

// Options of New.
type Options struct {
	// SyncPeriod is the proxier's; twice that may pass before something missing
	// from the kernel makes it unhealthy.
	SyncPeriod time.Duration
	// Families that the proxier serves, at least one.
	Families []corev1.IPFamily
	// Clock; the real one when nil.
	Clock clock.PassiveClock
	// IgnoreNode is for a proxier without a Node object. Otherwise the node is
	// not eligible before SyncNode has said so.
	IgnoreNode bool
	// Mode is what /proxyMode answers; "iptables" when empty.
	Mode string
	// Gatherer is what /metrics shows; the path does not exist when nil.
	Gatherer prometheus.Gatherer
	// HealthzTotal and LivezTotal count answers by label code; nil: not counted.
	HealthzTotal, LivezTotal *prometheus.CounterVec
}

// Server keeps the health of one proxier. All methods may be called from
// several goroutines.
type Server struct {
	opts    Options
	timeout time.Duration

	mu           sync.Mutex
	families     map[corev1.IPFamily]*familyState
	nodeEligible bool
}

// familyState is what is known about one family.
type familyState struct {
	// missing is since when something desired is not in the kernel; zero when
	// all is there.
	missing time.Time
	// syncing says that a sync runs since started; later is when the first
	// update came in that it cannot contain.
	syncing        bool
	started, later time.Time
	updated        time.Time // last success
	cause          string    // of the last failure or drift since then
	refused        []string
}

// New returns a server; each family is missing everything since now.
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

// QueuedUpdate says that a change came in that the kernel does not have yet.
func (s *Server) QueuedUpdate(family corev1.IPFamily) {
	s.change(family, func(f *familyState, now time.Time) { f.miss(now) })
}

// Drifted says that the kernel was found without something that an earlier sync
// put there; what names it, for the answers.
func (s *Server) Drifted(family corev1.IPFamily, what string) {
	s.change(family, func(f *familyState, now time.Time) {
		f.miss(now)
		f.cause = "drift: " + what
	})
}

// SyncStarted says that a sync starts. Updates queued from now on are not in it.
func (s *Server) SyncStarted(family corev1.IPFamily) {
	s.change(family, func(f *familyState, now time.Time) {
		f.syncing, f.started, f.later = true, now, time.Time{}
	})
}

// Updated says that the sync succeeded: all that was queued when it started is
// in the kernel. Without SyncStarted: all that was queued until now.
func (s *Server) Updated(family corev1.IPFamily) {
	s.change(family, func(f *familyState, now time.Time) {
		*f = familyState{missing: f.later, updated: now, refused: f.refused}
	})
}

// Failed says that the sync failed: whatever it was for, something is missing
// since it started at the latest, until a sync succeeds.
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

// Refused says which Service ports' rules the kernel does not take, for the
// answers; nil: all are taken.
func (s *Server) Refused(family corev1.IPFamily, ports []string) {
	s.change(family, func(f *familyState, _ time.Time) { f.refused = ports })
}

// SyncNode tells what the proxier's node is like; nil: it was deleted.
func (s *Server) SyncNode(node *corev1.Node) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nodeEligible = s.opts.IgnoreNode || eligible(node)
}

// Healthy reports whether no family misses anything for too long. The node's
// state has no part in it.
func (s *Server) Healthy() bool { return s.state().Healthy }

// miss notes that something is missing since now.
func (f *familyState) miss(now time.Time) {
	since := &f.missing
	if f.syncing {
		since = &f.later
	}
	if since.IsZero() {
		*since = now
	}
}

// oldest is since when something is missing; zero: nothing is.
func (f *familyState) oldest() time.Time {
	if f.missing.IsZero() {
		return f.later
	}
	return f.missing
}

// change runs f on a family's state; a family that New was not told of is
// served as well.
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
