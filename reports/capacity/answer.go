package capacity

import (
	"time"

	"synclab/reports/model"
)

// The promises, by name.
const (
	ProgrammingP99 = "programming_p99" // s
	FirstPacketP99 = "first_packet"    // s
	CPU            = "cpu"             // CPUs
	Memory         = "memory"          // B
	Start          = "start"           // s
)

// Answer is what is known of a Question.
type Answer struct {
	Question Question `json:"question"`
	// Target is the cluster grown by Question.Growth; nil without growth.
	Target *Cluster `json:"target,omitempty"`
	// Unit is what grows: every Reach is counted in it.
	Unit Unit `json:"unit"`
	// Model is what the numbers rest on: its run, machine and versions.
	Model *model.Model `json:"-"`
	Run   string       `json:"run"`
	// Command is the command line that it was asked with, for the page.
	Command  string          `json:"command,omitempty"`
	Remarks  []string        `json:"remarks,omitempty"`
	Subjects []SubjectAnswer `json:"subjects"`
	// Comparisons of every other subject with the first, which is in use today.
	Comparisons []Comparison `json:"comparisons,omitempty"`
	// Defaulted says that nothing was promised: Question.Promise is then Promise{}.WithDefaults().
	Defaulted bool `json:"defaulted,omitempty"`
	// Words are the answer in plain words, the most important sentence first.
	Words []string `json:"words"`
}

// SubjectAnswer is the answer for one subject.
type SubjectAnswer struct {
	Name string `json:"name"`
	// Today and Target are what is promised, at these clusters, with the policy in use.
	Today  Outlook  `json:"today"`
	Target *Outlook `json:"target,omitempty"`
	// Limits are how far each promise holds, with the policy in use, the first to break first; Largest is the least of
	// them, with the recommended policy, which holds no less than the one in use.
	Limits  []Limit `json:"limits"`
	Largest Limit   `json:"largest"`
	// RecommendedLimits are the limits with the recommended policy, of which Largest is the least.
	RecommendedLimits []Limit `json:"recommendedLimits,omitempty"`
	// Frontier are policies at the target (today without one), by minSyncPeriod; Recommended is one of them.
	Frontier    []Setting `json:"frontier"`
	Recommended Setting   `json:"recommended"`
	// Furthest is how far the policy goes that goes furthest, whatever CPU it uses as long as the promise of that holds.
	Furthest Furthest `json:"furthest"`
	// Way of a change to the proxier: what was added to every latency.
	Way time.Duration `json:"way"`
	// MemoryLimit is what to give the pod, in bytes: the upper bound at the target, and room.
	MemoryLimit uint64 `json:"memoryLimit"`
	// Curve is how it goes with scale, for plots.
	Curve []Outlook `json:"curve"`
	// Sensitivity is how far Largest moves with each input, the strongest first.
	Sensitivity []Sensitivity `json:"sensitivity"`
	// Remarks on what the answer rests on, such as what was not measured.
	Remarks []string `json:"remarks,omitempty"`
}

// Furthest is a policy and how far all that is promised holds with it, at the median; a Reach of 0: nowhere.
type Furthest struct {
	Policy Policy  `json:"policy"`
	Reach  float64 `json:"reach"`
	Scale  float64 `json:"scale"`
	// Unbounded: it holds as far as was looked.
	Unbounded bool `json:"unbounded,omitempty"`
}

// Comparison says when changing from one subject to another pays.
type Comparison struct {
	From string `json:"from"`
	To   string `json:"to"`
	// Ratio of the largest clusters, in what grows: above 1, To goes further. 0 where one of them is not known, or where
	// neither search ended at a limit.
	Ratio float64 `json:"ratio"`
	// AtLeast and AtMost say that Ratio is only a bound: the search for one of the two ended before its limit.
	AtLeast bool `json:"atLeast,omitempty"`
	AtMost  bool `json:"atMost,omitempty"`
	// Crossings are where one becomes better than the other, promise by promise.
	Crossings []Crossing `json:"crossings,omitempty"`
	// Words are the comparison in one sentence or two.
	Words string `json:"words"`
}

// Crossing is from where on To is better than From in what is promised.
type Crossing struct {
	Promise string `json:"promise"`
	// Reach from which on To is better; with Always, it is at all sizes that were looked at, with Never at none. With Until
	// it is the other way round: To is better below.
	Reach  float64     `json:"reach,omitempty"`
	Always bool        `json:"always,omitempty"`
	Never  bool        `json:"never,omitempty"`
	Until  bool        `json:"until,omitempty"`
	Basis  model.Basis `json:"basis,omitempty"`
}

// Outlook is a subject in one cluster with one policy.
type Outlook struct {
	Scale   float64 `json:"scale"`
	Reach   float64 `json:"reach"` // of the cluster
	Cluster Cluster `json:"cluster"`
	Policy  Policy  `json:"policy"`
	// Promised are the quantities of the promises (all five, whether promised or not), by name.
	Promised map[string]Estimate `json:"promised"`
	// Holds says which promises hold for sure (at the upper bound), Breaks which do not even at the median.
	Holds  []string `json:"holds,omitempty"`
	Breaks []string `json:"breaks,omitempty"`
	// Quantiles of network programming latency, the slowest node's 99th percentile, and what the loop did.
	P50, P90, P99, SlowestP99 time.Duration
	SyncsPerSecond            float64  `json:"syncsPerSecond"`
	BusyShare                 float64  `json:"busyShare"`
	Rules                     Estimate `json:"rules"`
	FullSync                  Estimate `json:"fullSync"`    // s
	PartialSync               Estimate `json:"partialSync"` // s: of one changed Service
	// Phases of the partial sync of as many Services as most syncs take here (Together), in seconds, by quantity.
	Phases   map[model.Quantity]float64 `json:"phases,omitempty"`
	Together int                        `json:"together"`
	// Changes that were simulated, on so many nodes.
	Changes        int64 `json:"changes"`
	NodesSimulated int   `json:"nodesSimulated"`
}

// Limit is the largest cluster at which a promise holds.
type Limit struct {
	Promise string  `json:"promise"`
	Scale   float64 `json:"scale"`
	// Reach at the median, and between which bounds; what else grows has grown with it, as in Cluster.
	Reach   Estimate `json:"reach"`
	Cluster Cluster  `json:"cluster"`
	// Never: it breaks today already. Unbounded: it holds as far as was looked (Reach.Median).
	Never     bool `json:"never,omitempty"`
	Unbounded bool `json:"unbounded,omitempty"`
	// End is why it was not looked further, in words; empty: because of what was measured.
	End string `json:"end,omitempty"`
	// Smaller: today's cluster breaks it (Never), and Reach is the largest smaller one that holds; 0 if none does.
	Smaller bool `json:"smaller,omitempty"`
	// Value is what is promised (s, CPUs, B), as in Outlook.Promised.
	Value float64 `json:"value"`
	// Why in a few words: which part of the cost it is.
	Why string `json:"why"`
}

// Setting is a policy and what comes of it at one cluster.
type Setting struct {
	Policy  Policy  `json:"policy"`
	Outlook Outlook `json:"outlook"`
	Holds   bool    `json:"holds"`
	// InUse is the policy of today. Discouraged says why a setting is not recommended whatever it costs.
	InUse       bool   `json:"inUse,omitempty"`
	Discouraged string `json:"discouraged,omitempty"`
}

// Sensitivity is how far the largest cluster moves when one input is moved.
type Sensitivity struct {
	Input  string  `json:"input"`  // "churn", "endpoints", "minSyncPeriod", "nodes", "cost"
	Lower  float64 `json:"lower"`  // factor of the input
	Higher float64 `json:"higher"` // factor of the input
	// AtLower and AtHigher are how far it reaches then; 0: all that is promised holds nowhere.
	AtLower  float64 `json:"atLower"`
	AtHigher float64 `json:"atHigher"`
	// CappedLower and CappedHigher: AtLower or AtHigher is only as far as was looked.
	CappedLower  bool `json:"cappedLower,omitempty"`
	CappedHigher bool `json:"cappedHigher,omitempty"`
}
