package capacity

import (
	"fmt"
	"time"

	"synclab/proxier/runner"
	"synclab/reports/model"
	"synclab/sim/simulator"
)

// Cluster is the size of a cluster, and its changes.
type Cluster struct {
	Services  int     `json:"services"`
	Endpoints float64 `json:"endpoints"` // per Service
	Nodes     int     `json:"nodes"`
	Churn     Churn   `json:"churn"`
}

// Churn has the rates of changes. The zero value: nothing changes.
type Churn struct {
	// Endpoints and Services are single changes per second: of EndpointSlices, and of Services themselves.
	Endpoints float64 `json:"endpoints"`
	Services  float64 `json:"services,omitempty"`
	// Swing is the amplitude of the rate of Endpoints within a day, as a share of its mean (simulator.Rate).
	Swing float64 `json:"swing,omitempty"`
	// Rollouts per hour. Each replaces all endpoints of a Service, in waves.
	Rollouts float64 `json:"rollouts,omitempty"`
	// NodeLosses per day, each with the pods of one node.
	NodeLosses float64 `json:"nodeLosses,omitempty"`
	// Trace, if there is one, has the recorded changes of a real cluster, replayed in a loop. It replaces all fields
	// above.
	Trace []simulator.Event `json:"-"`

	// faster is the replay speed of the trace, relative to its recording.
	faster float64
}

// The largest supported cluster: the limits of scenarios. Beyond them, cost models predict syncs of hours.
const (
	MostServices  = 1 << 20
	MostEndpoints = 5_000      // of each Service
	MostTotal     = 10_000_000 // endpoints in all
)

// Validate refuses a question that has no answer with any cost model.
func (q Question) Validate() error {
	if err := q.Today.validate(); err != nil {
		return err
	}
	if err := q.Growth.validate(q.Today); err != nil {
		return err
	}
	if _, grows := q.Growth.filled(); grows {
		if err := q.Today.At(q.Growth, 1).tooLarge(); err != nil {
			return fmt.Errorf("the target: %w", err)
		}
	}
	if err := q.SLOs.validate(); err != nil {
		return err
	}
	if q.Policy != nil && (q.Policy.MinSyncPeriod < 0 || q.Policy.Burst < 0) {
		return fmt.Errorf("policy: minSyncPeriod %v, burst %d: want 0 or more", q.Policy.MinSyncPeriod, q.Policy.Burst)
	}
	if q.Length < 0 || q.WatchDelay < 0 {
		return fmt.Errorf("length %v, watch delay %v: want 0 or more", q.Length, q.WatchDelay)
	}
	return nil
}

// Growth has the factor of each input at scale 1. Scale 0 is today's cluster. At other scales, a factor is
// factor^scale. A zero factor is 1, except for Churn: zero means growth with Services × Endpoints, since each pod
// starts and ends as often as before.
type Growth struct {
	Services  float64 `json:"services,omitempty"`
	Endpoints float64 `json:"endpoints,omitempty"`
	Nodes     float64 `json:"nodes,omitempty"`
	Churn     float64 `json:"churn,omitempty"`
}

// SLOs has the SLOs of every node. Zero fields are no SLOs.
type SLOs struct {
	// ProgrammingP99 bounds the 99th percentile of network programming latency over all changes and nodes.
	ProgrammingP99 time.Duration `json:"programmingP99,omitempty"`
	// FirstPacketP99 bounds the cost of the rules for the first packet of a flow to the last Service.
	FirstPacketP99 time.Duration `json:"firstPacketP99,omitempty"`
	// CPU bounds the mean number of CPUs that the proxier and its tools use.
	CPU float64 `json:"cpu,omitempty"`
	// Memory bounds the peak of the proxier and its largest tool together, in bytes.
	Memory uint64 `json:"memory,omitempty"`
	// Start bounds the first sync of a proxier that starts with empty tables.
	Start time.Duration `json:"start,omitempty"`
}

// Policy determines when a sync starts.
type Policy struct {
	Runner        runner.Policy `json:"runner"`
	MinSyncPeriod time.Duration `json:"minSyncPeriod"`
	Burst         int           `json:"burst,omitempty"` // of the token bucket; 0: the runner's own
}

// Question is the input of Ask.
type Question struct {
	Today  Cluster `json:"today"`
	Growth Growth  `json:"growth"`
	SLOs   SLOs    `json:"slos"`
	// Policy in use today; nil: each subject's default, minSyncPeriod 1 s.
	Policy *Policy `json:"policy,omitempty"`
	// Subjects to compare; empty: all of the cost model. The first is in use today.
	Subjects []string `json:"subjects,omitempty"`
	// Length of the simulated time of each evaluation; 0: as the quantiles need.
	Length time.Duration `json:"length,omitempty"`
	// Way is the watch delay: the time until the proxier on a node receives a change. It is added to every latency. 0:
	// as the calibration measured it, if it did.
	WatchDelay time.Duration `json:"watch_delay,omitempty"`
	Seed       uint64        `json:"seed"`
}

// Estimate is a number with its interval (of the model's confidence) and its basis.
type Estimate struct {
	Median float64     `json:"median"`
	Low    float64     `json:"low"`
	High   float64     `json:"high"`
	Basis  model.Basis `json:"basis"`
	// Beyond is the factor by which the size is beyond the measured sizes; 1 within them. Below: it is below the
	// smallest size, not above the largest. Changed: the factor is that of the changed Services per sync, not of the
	// cluster's size.
	Beyond  float64 `json:"beyond"`
	Below   bool    `json:"below,omitempty"`
	Changed bool    `json:"changed,omitempty"`
}
