package plan

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"time"

	"synclab/reports/comparison"
)

// Question is what a plan is asked.
type Question struct {
	// Subjects to compare, as in records. The first is in use today.
	Subjects []string `json:"subjects"`
	// Assumed: nothing says that the first is in use.
	Assumed bool `json:"assumed,omitempty"`
	// Today is the cluster of today, and Asked that of the growth; equal without growth.
	Today Cluster `json:"today"`
	Asked Cluster `json:"asked"`
	// Shape of the cluster, in words: "10 endpoints each", or the name of a dump.
	Shape string `json:"shape"`
	// Key is a digest of the shape, the changes and the settings: cells of plans with the same key are of the same clusters.
	Key  string          `json:"key"`
	SLOs comparison.SLOs `json:"limits"` // "slos" of earlier versions had other units
	// Defaulted: no SLO was given.
	Defaulted bool `json:"defaulted,omitempty"`
	// MinSyncPeriod in use today.
	MinSyncPeriod time.Duration `json:"minSyncPeriod"`
	// SyncPeriod in use today; 0: kube-proxy's default.
	SyncPeriod time.Duration `json:"syncPeriod,omitempty"`
	// SliceBytes is the size of one encoded EndpointSlice, the mean; 0: unknown.
	SliceBytes float64 `json:"sliceBytes,omitempty"`
	// Extrapolate: the answer has sizes beyond the measured ones, marked.
	Extrapolate bool   `json:"extrapolate,omitempty"`
	Seed        uint64 `json:"seed"`
}

// grows reports whether another cluster is asked for than that of today.
func (q *Question) grows() bool {
	asked, today := q.Asked, q.Today
	asked.Churn.Trace, today.Churn.Trace = nil, nil
	return !reflect.DeepEqual(asked, today) || !slices.Equal(q.Asked.Churn.Trace, q.Today.Churn.Trace)
}

// Cluster is the size of a cluster, and its changes.
type Cluster struct {
	Services  int     `json:"services"`
	Endpoints float64 `json:"endpoints"` // of a Service, the mean
	Nodes     int     `json:"nodes"`
	Churn     Churn   `json:"churn"`
}

// Churn is how often objects change.
type Churn struct {
	Endpoints  float64 `json:"endpoints"`            // EndpointSlices a second
	Services   float64 `json:"services,omitempty"`   // Services a second
	Swing      float64 `json:"swing,omitempty"`      // of Endpoints within a period, as a share of the mean
	Rollouts   float64 `json:"rollouts,omitempty"`   // an hour, besides
	NodeLosses float64 `json:"nodeLosses,omitempty"` // a day, besides
	// Trace, when set, has the times of recorded changes, in seconds, increasing from 0. It replaces the rates, of which
	// Endpoints and Services then have the means.
	Trace []float64 `json:"trace,omitempty"`
}

// Rate is the number of changes a second, without node losses.
func (c Cluster) Rate() float64 {
	return c.Churn.Endpoints + c.Churn.Services + c.Churn.Rollouts/3600*float64(c.perRollout())
}

// changes reports whether anything changes in the cluster.
func (c Cluster) changes() bool { return c.Rate() > 0 || c.Churn.NodeLosses > 0 }

// A rollout replaces a quarter of the pods in each wave, as a Deployment does by default. New pods become ready, old ones
// terminate, and are gone: three changes. New pods take some ten seconds to become ready.
const (
	surge    = 0.25
	waveTime = 10.0 // s
)

func (c Cluster) perRollout() int {
	pods := max(1, math.Round(c.Endpoints))
	return 3 * int(math.Ceil(pods/math.Ceil(surge*pods)))
}

// PodsPerNode is the number of pods behind Services of one node, at least 1.
func (c Cluster) PodsPerNode() int {
	return max(1, int(math.Round(float64(c.Services)*c.Endpoints/float64(max(1, c.Nodes)))))
}

// At returns the cluster with another number of Services: pods per Service and per node, and changes per pod, stay.
func (c Cluster) At(services int) Cluster {
	by := float64(services) / float64(max(1, c.Services))
	c.Services, c.Nodes = services, max(1, int(math.Round(float64(c.Nodes)*by)))
	c.Churn = c.Churn.times(by)
	return c
}

// times multiplies all rates. A trace is replayed faster.
func (c Churn) times(by float64) Churn {
	c.Endpoints, c.Services, c.Rollouts, c.NodeLosses = c.Endpoints*by, c.Services*by, c.Rollouts*by, c.NodeLosses*by
	trace := make([]float64, len(c.Trace))
	for i, at := range c.Trace {
		trace[i] = at / by
	}
	c.Trace = trace
	return c
}

// Growth has factors; 0: 1, except Churn: changes grow with Services × Endpoints.
type Growth struct {
	Services, Endpoints, Nodes, Churn float64
}

// Grow returns the grown cluster.
func (c Cluster) Grow(g Growth) Cluster {
	for _, factor := range []*float64{&g.Services, &g.Endpoints, &g.Nodes} {
		if *factor == 0 {
			*factor = 1
		}
	}
	losses := c.Churn.NodeLosses * g.Nodes
	pods := g.Services * g.Endpoints
	if g.Churn > 0 {
		pods = g.Churn
	}
	c.Churn = c.Churn.times(pods)
	c.Churn.NodeLosses = losses
	c.Services, c.Nodes = max(1, int(math.Round(float64(c.Services)*g.Services))), max(1, int(math.Round(float64(c.Nodes)*g.Nodes)))
	c.Endpoints *= g.Endpoints
	return c
}

// Names of the SLOs, in the order in which a cell measures them.
const (
	Start       = "start"        // s
	Memory      = "memory"       // B
	FirstPacket = "first_packet" // s
	CPU         = "cpu"          // CPUs
	Latency     = "latency"      // s
	Stall       = "stall"        // s
	WriterWait  = "writer_wait"  // s
)

// slo is what the outputs say of an SLO.
type slo struct {
	name, text, short, unit string
	bound                   func(comparison.SLOs) float64
}

var slos = []slo{
	{Start, "start", "start", "s", func(s comparison.SLOs) float64 { return s.Start }},
	{Memory, "peak memory", "memory", "B", func(s comparison.SLOs) float64 { return float64(s.Memory) }},
	{FirstPacket, "first packet p99", "1st packet", "s", func(s comparison.SLOs) float64 { return s.FirstPacket }},
	{CPU, "CPU", "CPU", "CPUs", func(s comparison.SLOs) float64 { return s.CPU }},
	{Latency, "latency p99 of an hour", "latency p99", "s", func(s comparison.SLOs) float64 { return s.Latency }},
	{Stall, "longest stall of another process", "stall", "s", func(s comparison.SLOs) float64 { return s.Stall }},
	{WriterWait, "longest writer wait", "writer wait", "s", func(s comparison.SLOs) float64 { return s.WriterWait }},
}

// Validate checks what no measurement could answer.
func (q *Question) Validate() error {
	if q.SLOs == (comparison.SLOs{}) {
		return fmt.Errorf("there is no SLO: any cluster size would meet it")
	}
	for i := 1; i < len(q.Asked.Churn.Trace); i++ {
		if q.Asked.Churn.Trace[i] < q.Asked.Churn.Trace[i-1] {
			return fmt.Errorf("trace: change %d comes before change %d: want increasing times", i, i-1)
		}
	}
	return nil
}
