package capacity

import (
	"time"

	"synclab/reports/model"
)

// The names of the SLOs.
const (
	ProgrammingP99 = "programming_p99" // s
	FirstPacketP99 = "first_packet"    // s
	CPU            = "cpu"             // CPUs
	Memory         = "memory"          // B
	Start          = "start"           // s
)

// Answer is the answer to a Question.
type Answer struct {
	Question Question `json:"question"`
	// Target is the cluster grown by Question.Growth; nil without growth.
	Target *Cluster `json:"target,omitempty"`
	// Unit is the quantity that grows: every Size is a number of it.
	Unit Unit `json:"unit"`
	// Model is the cost model of all numbers, with its run, machine and versions.
	Model *model.Model `json:"-"`
	Run   string       `json:"run"`
	// Command is the command line of the question, for the page.
	Command string `json:"command,omitempty"`
	// Foreign: the answer was read from a file of another user, or its command is none that Synclab writes.
	Foreign  bool            `json:"-"`
	Remarks  []string        `json:"remarks,omitempty"`
	Subjects []SubjectAnswer `json:"subjects"`
	// Comparisons of the first subject, which is in use today, with each other subject.
	Comparisons []Comparison `json:"comparisons,omitempty"`
	// Defaulted: no SLO was given, and Question.SLOs is SLOs{}.WithDefaults().
	Defaulted bool `json:"defaulted,omitempty"`
	// Words are the answer in sentences, the most important first.
	Words []string `json:"words"`
}

// SubjectAnswer is the answer for one subject.
type SubjectAnswer struct {
	Name string `json:"name"`
	// Today and Target are the evaluations of these clusters, with the policy in use.
	Today  Evaluation  `json:"today"`
	Target *Evaluation `json:"target,omitempty"`
	// Limits are the largest clusters that meet each SLO, with the policy in use. The SLO that is violated first comes
	// first.
	// Largest is the smallest limit with the recommended policy. That policy reaches no less than the one in use, but
	// for the exceptions of asker.choose.
	Limits  []Limit `json:"limits"`
	Largest Limit   `json:"largest"`
	// RecommendedLimits are the limits with the recommended policy, of which Largest is the least.
	RecommendedLimits []Limit `json:"recommendedLimits,omitempty"`
	// Frontier has the evaluated policies at the target (without one: today), by policy and minSyncPeriod. Recommended
	// is one of them.
	Frontier    []Setting `json:"frontier"`
	Recommended Setting   `json:"recommended"`
	// Furthest is the policy that reaches the largest size, at any CPU cost within the SLO for CPU.
	Furthest Furthest `json:"furthest"`
	// WatchDelay is the watch delay of a change. It is added to every latency.
	WatchDelay time.Duration `json:"watch_delay"`
	// MemoryLimit is the recommended memory limit of the pod, in bytes: the upper bound at the target, plus a margin.
	MemoryLimit uint64 `json:"memoryLimit"`
	// Curve has the evaluations by scale, for plots.
	Curve []Evaluation `json:"curve"`
	// Sensitivity is the change of Largest with each input, the strongest input first.
	Sensitivity []Sensitivity `json:"sensitivity"`
	// Remarks are caveats, such as quantities that were not measured.
	Remarks []string `json:"remarks,omitempty"`
}

// Furthest is a policy, and the largest size at which it meets every SLO at the median. A Size of 0: no size.
type Furthest struct {
	Policy Policy  `json:"policy"`
	Size   float64 `json:"size"`
	Scale  float64 `json:"scale"`
	// Unbounded: it meets every SLO up to the end of the search.
	Unbounded bool `json:"unbounded,omitempty"`
}

// Comparison states whether changing from one subject to another pays.
type Comparison struct {
	From string `json:"from"`
	To   string `json:"to"`
	// Ratio is the size of To's largest cluster divided by that of From, in the Unit of growth: above 1, To reaches
	// further. 0: one of the two is 0 or unknown, or neither search ended at a limit.
	Ratio float64 `json:"ratio"`
	// AtLeast and AtMost: Ratio is only a bound, since the search for one of the two ended before its limit.
	AtLeast bool `json:"atLeast,omitempty"`
	AtMost  bool `json:"atMost,omitempty"`
	// Crossings are the sizes at which one subject becomes better than the other, SLO by SLO.
	Crossings []Crossing `json:"crossings,omitempty"`
	// Words are the comparison in sentences.
	Words string `json:"words"`
}

// Crossing is the size from which To is better than From in the quantity of an SLO.
type Crossing struct {
	SLO string `json:"slo"`
	// Size is the size from which To is better or, with Until, up to which it is better. Always: To is better at all
	// evaluated sizes. Never: at none.
	Size   float64     `json:"size,omitempty"`
	Always bool        `json:"always,omitempty"`
	Never  bool        `json:"never,omitempty"`
	Until  bool        `json:"until,omitempty"`
	Basis  model.Basis `json:"basis,omitempty"`
}

// Evaluation is the evaluation of a subject in one cluster with one policy.
type Evaluation struct {
	Scale   float64 `json:"scale"`
	Size    float64 `json:"size"` // size of the cluster, in the Unit of growth
	Cluster Cluster `json:"cluster"`
	Policy  Policy  `json:"policy"`
	// Given are the quantities of all five SLOs, given or not, by name. Quantities without measurements are missing.
	Quantities map[string]Estimate `json:"quantities"`
	// Holds are the SLOs that are met even at the upper bound. Breaks are the SLOs that are violated at the median.
	Met      []string `json:"met,omitempty"`
	Violated []string `json:"violated,omitempty"`
	// Quantiles of network programming latency, and the 99th percentile of the slowest node. SyncsPerSecond is per
	// node; BusyShare is the share of time in syncs.
	P50, P90, P99, SlowestP99 time.Duration
	SyncsPerSecond            float64  `json:"syncsPerSecond"`
	BusyShare                 float64  `json:"busyShare"`
	Rules                     Estimate `json:"rules"`
	FullSync                  Estimate `json:"fullSync"`    // s
	PartialSync               Estimate `json:"partialSync"` // s; one changed Service
	// Phases are the durations of a partial sync's phases, in seconds, by quantity. The sync has Together changed
	// Services, the mean number of this simulation.
	Phases   map[model.Quantity]float64 `json:"phases,omitempty"`
	Together int                        `json:"together"`
	// Changes is the number of simulated changes, on NodesSimulated nodes.
	Changes        int64 `json:"changes"`
	NodesSimulated int   `json:"nodesSimulated"`
}

// Limit is the largest cluster that meets an SLO.
type Limit struct {
	SLO   string  `json:"slo"`
	Scale float64 `json:"scale"`
	// Size is the size, with its bounds. The rest of the cluster grows with it, as in Cluster.
	Size    Estimate `json:"size"`
	Cluster Cluster  `json:"cluster"`
	// Never: today's cluster violates the SLO. Unbounded: the SLO is met up to the end of the search (Size.Median).
	Never     bool `json:"never,omitempty"`
	Unbounded bool `json:"unbounded,omitempty"`
	// End is the reason for the end of the search, in words; empty: the range of the cost model.
	End string `json:"end,omitempty"`
	// Smaller: today's cluster violates the SLO (Never), and Size is the largest smaller cluster that meets it. If no
	// cluster does, Size is 0.
	Smaller bool `json:"smaller,omitempty"`
	// Value is the SLO's quantity at this cluster (s, CPUs, B), as in Evaluation.Given.
	Value float64 `json:"value"`
	// Why names the largest part of the value, in a few words.
	Why string `json:"why"`
}

// Setting is a policy, and its evaluation in one cluster.
type Setting struct {
	Policy  Policy     `json:"policy"`
	Outlook Evaluation `json:"outlook"`
	Met     bool       `json:"met"`
	// InUse: it is today's policy. Discouraged is the reason why a setting is never recommended, at any cost.
	InUse       bool   `json:"inUse,omitempty"`
	Discouraged string `json:"discouraged,omitempty"`
}

// Sensitivity is the change of the largest cluster when one input changes.
type Sensitivity struct {
	Input  string  `json:"input"`  // "churn", "endpoints", "minSyncPeriod", "nodes", "cost"
	Lower  float64 `json:"lower"`  // factor of the input
	Higher float64 `json:"higher"` // factor of the input
	// AtLower and AtHigher are the largest sizes with these factors; 0: no size meets every SLO.
	AtLower  float64 `json:"atLower"`
	AtHigher float64 `json:"atHigher"`
	// CappedLower and CappedHigher: the search for AtLower or AtHigher ended there, so the value is a lower bound.
	CappedLower  bool `json:"cappedLower,omitempty"`
	CappedHigher bool `json:"cappedHigher,omitempty"`
}
