package capacity

import (
	"fmt"
	"time"

	"synclab/proxier/runner"
	"synclab/reports/model"
	"synclab/sim/twin"
)

// Cluster is a size, and what happens at it.
type Cluster struct {
	Services  int     `json:"services"`
	Endpoints float64 `json:"endpoints"` // per Service
	Nodes     int     `json:"nodes"`
	Churn     Churn   `json:"churn"`
}

// Churn is how often what changes. The zero value: nothing ever does.
type Churn struct {
	// Endpoints and Services are single changes a second: of EndpointSlices, and of Services themselves.
	Endpoints float64 `json:"endpoints"`
	Services  float64 `json:"services,omitempty"`
	// Swing is how far the rate of Endpoints leaves its mean within a day, as a share of it (twin.Rate).
	Swing float64 `json:"swing,omitempty"`
	// Rollouts an hour: all endpoints of a Service are replaced, one after the other.
	Rollouts float64 `json:"rollouts,omitempty"`
	// NodeLosses a day, each with the pods of one Node.
	NodeLosses float64 `json:"nodeLosses,omitempty"`
	// Trace, where there is one, is what happened in a real cluster; it takes the place of all the above, again and again.
	Trace []twin.Event `json:"-"`

	// faster is how many times as fast as it was recorded the trace happens.
	faster float64
}

// No cluster is larger, whatever was measured: these are the limits of scenarios, and what laws say beyond is hours of one sync.
const (
	MostServices  = 1 << 20
	MostEndpoints = 5_000      // of each Service
	MostTotal     = 10_000_000 // endpoints in all
)

// Validate refuses what cannot be answered, whatever the model knows.
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
	if err := q.Promise.validate(); err != nil {
		return err
	}
	if q.Policy != nil && (q.Policy.MinSyncPeriod < 0 || q.Policy.Burst < 0) {
		return fmt.Errorf("policy: minSyncPeriod %v, burst %d: want 0 or more", q.Policy.MinSyncPeriod, q.Policy.Burst)
	}
	if q.Length < 0 || q.Way < 0 {
		return fmt.Errorf("length %v, way to the node %v: want 0 or more", q.Length, q.Way)
	}
	return nil
}

// Growth is by what factor each input is larger at scale 1; at scale 0 the cluster is as it is today, and scales between
// and beyond are powers: factor^scale. A zero factor is 1, but for Churn: zero means as Services × Endpoints grow, since
// every pod comes and goes as often as before.
type Growth struct {
	Services  float64 `json:"services,omitempty"`
	Endpoints float64 `json:"endpoints,omitempty"`
	Nodes     float64 `json:"nodes,omitempty"`
	Churn     float64 `json:"churn,omitempty"`
}

// Promise is what shall hold on every node. Zero fields are not promised.
type Promise struct {
	// ProgrammingP99 bounds the 99th percentile of network programming latency over all changes and nodes.
	ProgrammingP99 time.Duration `json:"programmingP99,omitempty"`
	// FirstPacketP99 bounds what the first packet of a flow to the last Service pays for the rules.
	FirstPacketP99 time.Duration `json:"firstPacketP99,omitempty"`
	// CPU bounds how many CPUs the proxier and its tools use on average.
	CPU float64 `json:"cpu,omitempty"`
	// Memory bounds the peak of the proxier and its largest tool together, in bytes.
	Memory uint64 `json:"memory,omitempty"`
	// Start bounds the first sync of a proxier that starts with empty tables.
	Start time.Duration `json:"start,omitempty"`
}

// Policy is when to sync.
type Policy struct {
	Runner        runner.Policy `json:"runner"`
	MinSyncPeriod time.Duration `json:"minSyncPeriod"`
	Burst         int           `json:"burst,omitempty"` // of the token bucket; 0: the runner's own
}

// Question is what Ask answers.
type Question struct {
	Today   Cluster `json:"today"`
	Growth  Growth  `json:"growth"`
	Promise Promise `json:"promise"`
	// Policy that is in use today; nil: each subject's default, minSyncPeriod 1 s.
	Policy *Policy `json:"policy,omitempty"`
	// Subjects to compare; empty: all that the model has. The first is the one that is in use today.
	Subjects []string `json:"subjects,omitempty"`
	// Length of the time that is simulated for each outlook; 0: as long as the quantiles need.
	Length time.Duration `json:"length,omitempty"`
	// Way is how long a change takes until the proxier on a node is told of it; it is added to every latency. 0: what the
	// calibration measured of it, where it did.
	Way  time.Duration `json:"way,omitempty"`
	Seed uint64        `json:"seed"`
}

// Estimate is a number with its interval, of the model's confidence, and what it rests on.
type Estimate struct {
	Median float64     `json:"median"`
	Low    float64     `json:"low"`
	High   float64     `json:"high"`
	Basis  model.Basis `json:"basis"`
	// Beyond is how many times the size is beyond what was measured; 1 within it. Below: that is below the smallest size, not
	// above the largest. Changed: it is how many changed Services one sync takes together, not the size of the cluster.
	Beyond  float64 `json:"beyond"`
	Below   bool    `json:"below,omitempty"`
	Changed bool    `json:"changed,omitempty"`
}
