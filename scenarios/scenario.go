package scenarios

import "time"

// Scenario is a named, seeded list of steps on a simulated cluster of a shape.
type Scenario struct {
	Name        string   `yaml:"name" json:"name"`
	Description string   `yaml:"description" json:"description"`
	Labels      []string `yaml:"labels,omitempty" json:"labels,omitempty"`
	// Seed determines the cluster and all its events: same seed, same bytes.
	Seed  uint64 `yaml:"seed" json:"seed"`
	Shape Shape  `yaml:"shape" json:"shape"`
	Proxy Proxy  `yaml:"proxy,omitempty" json:"proxy"`
	// Sweep makes one cell of each combination of the axes' values.
	Sweep []Axis `yaml:"sweep,omitempty" json:"sweep,omitempty"`
	// Targets are results that subjects are expected to reach. They make one cell of each size that they name, up to
	// the shape's own, with the subjects that they name there. A scenario with targets has no sweep.
	Targets []Target `yaml:"targets,omitempty" json:"targets,omitempty"`
	// Thresholds are the increases of figures that `synclab diff` accepts, as shares of the value before. Keys are the
	// figures' names (thresholds.go), or "all" for the others: {full_sync: 0.05, all: 0.2} accepts 5 % more of a full
	// sync and 20 % more of anything else.
	Thresholds map[string]float64 `yaml:"thresholds,omitempty" json:"thresholds,omitempty"`
	Steps      []Step             `yaml:"steps" json:"steps"`
}

// Target is an expected value of a figure of a subject at a size. It sets exactly one of Times, AtMost and Exponent.
type Target struct {
	Subject  string `yaml:"subject" json:"subject"`
	Services int    `yaml:"services" json:"services"`
	// Figure: reaction, cold_start, full_sync, partial_sync, peak_rss, child_peak_rss, total_peak_rss (of both), or
	// first_packet: the median at the last Service.
	Figure string `yaml:"figure" json:"figure"`
	// Times is a minimum ratio: the figure of the subject Beside is at least Times that of Subject.
	Times  float64 `yaml:"minRatio,omitempty" json:"minRatio,omitempty"`
	Beside string  `yaml:"baseline,omitempty" json:"baseline,omitempty"`
	// Once: one repetition of Beside is enough, because it takes so long.
	Once bool `yaml:"once,omitempty" json:"once,omitempty"`
	// AtMost is the longest duration allowed.
	AtMost time.Duration `yaml:"atMost,omitempty" json:"atMost,omitempty"`
	// Exponent: from size From to size Services, the figure grows at most with this power of the size.
	Exponent float64 `yaml:"exponent,omitempty" json:"exponent,omitempty"`
	From     int     `yaml:"from,omitempty" json:"from,omitempty"`
}

// Shape describes the simulated cluster. Fractions are 0..1.
type Shape struct {
	Services   int       `yaml:"services" json:"services"`
	Namespaces int       `yaml:"namespaces,omitempty" json:"namespaces"` // default 10
	Nodes      int       `yaml:"nodes,omitempty" json:"nodes"`           // default 100; the proxier runs on the first, "node-0"
	Zones      int       `yaml:"zones,omitempty" json:"zones"`           // default 3
	Endpoints  Endpoints `yaml:"endpoints,omitempty" json:"endpoints"`
	// Ports is the number of ports of each Service and protocol. Default 1.
	Ports int `yaml:"ports,omitempty" json:"ports"`
	// Types are the shares of Service types, by type name. The rest is ClusterIP.
	Types map[string]float64 `yaml:"types,omitempty" json:"types,omitempty"` // NodePort, LoadBalancer, Headless, ExternalName
	// Protocols are the shares of protocols. The rest is TCP.
	Protocols map[string]float64 `yaml:"protocols,omitempty" json:"protocols,omitempty"` // UDP, SCTP
	// Families: [IPv4] (default), [IPv6] or [IPv4, IPv6] for dual stack.
	Families []string `yaml:"families,omitempty" json:"families"`

	ExternalIPs     float64 `yaml:"externalIPs,omitempty" json:"externalIPs"`         // share of Services with an externalIP
	SourceRanges    float64 `yaml:"sourceRanges,omitempty" json:"sourceRanges"`       // share of LoadBalancers with loadBalancerSourceRanges
	Affinity        float64 `yaml:"affinity,omitempty" json:"affinity"`               // share of Services with ClientIP affinity
	InternalLocal   float64 `yaml:"internalLocal,omitempty" json:"internalLocal"`     // share with internalTrafficPolicy Local
	ExternalLocal   float64 `yaml:"externalLocal,omitempty" json:"externalLocal"`     // share of NodePort and LoadBalancer with externalTrafficPolicy Local
	WithoutEndpoint float64 `yaml:"withoutEndpoint,omitempty" json:"withoutEndpoint"` // share of Services with no endpoint
	NotReady        float64 `yaml:"notReady,omitempty" json:"notReady"`               // share of endpoints that are not ready
	Terminating     float64 `yaml:"terminating,omitempty" json:"terminating"`         // share of endpoints that terminate, half of them still serving
	TopologyHints   float64 `yaml:"topologyHints,omitempty" json:"topologyHints"`     // share of Services whose endpoints carry zone hints

	ServiceCIDRs []string `yaml:"serviceCIDRs,omitempty" json:"serviceCIDRs"` // default 10.96.0.0/12 and fd00:10:96::/108
	PodCIDRs     []string `yaml:"podCIDRs,omitempty" json:"podCIDRs"`         // default 10.128.0.0/9 and fd00:10:128::/64
	// PodNetwork is how flows of pods travel: routed (default; host routes, as Calico's), bridge (the node's client pods
	// are on a bridge), vxlan (all other pods are on another node, behind a tunnel, as flannel's).
	PodNetwork string `yaml:"podNetwork,omitempty" json:"podNetwork,omitempty"`
}

// Endpoints is the distribution of the number of endpoints a Service has.
type Endpoints struct {
	Distribution string `yaml:"distribution,omitempty" json:"distribution"` // fixed (default), uniform, zipf
	// Count is the number (fixed), or the mean (uniform, zipf). Default 10, or the middle of Min and Max.
	Count int `yaml:"count,omitempty" json:"count"`
	Min   int `yaml:"min,omitempty" json:"min,omitempty"` // uniform; default 0
	Max   int `yaml:"max,omitempty" json:"max,omitempty"` // uniform: default 2×Count−Min; zipf: the largest, default 100×Count
	// Skew is Zipf's exponent, above 1. Default 1.5.
	Skew float64 `yaml:"skew,omitempty" json:"skew,omitempty"`
}

// Proxy overrides settings of the proxier under test. Zero values keep the defaults of its configuration.
type Proxy struct {
	Policy        string        `yaml:"policy,omitempty" json:"policy,omitempty"`               // token-bucket, completion-to-start; default: each subject's own
	Burst         int           `yaml:"burst,omitempty" json:"burst,omitempty"`                 // token bucket; default 2
	MinSyncPeriod time.Duration `yaml:"minSyncPeriod,omitempty" json:"minSyncPeriod,omitempty"` // default 1s
	SyncPeriod    time.Duration `yaml:"syncPeriod,omitempty" json:"syncPeriod,omitempty"`       // default 30s
	MasqueradeAll bool          `yaml:"masqueradeAll,omitempty" json:"masqueradeAll,omitempty"`
	// NodePortAddresses as in KubeProxyConfiguration.
	NodePortAddresses []string `yaml:"nodePortAddresses,omitempty" json:"nodePortAddresses,omitempty"`
	// LocalhostNodePorts as in KubeProxyConfiguration; nil keeps the default, true.
	LocalhostNodePorts *bool `yaml:"localhostNodePorts,omitempty" json:"localhostNodePorts,omitempty"`
}

// Axis is one swept field: either its values, or a geometric series of Points values From … To. Values between the
// ends are rounded to two digits. To defaults to the field's value in the scenario, so that N sets the upper end; if N
// is below From, N is the only value. Points defaults to 5.
type Axis struct {
	Field  string   `yaml:"field" json:"field"` // a path as --set takes it, e.g. shape.services
	Values []string `yaml:"values,omitempty" json:"values,omitempty"`
	From   int      `yaml:"from,omitempty" json:"from,omitempty"`
	To     int      `yaml:"to,omitempty" json:"to,omitempty"`
	Points int      `yaml:"points,omitempty" json:"points,omitempty"`
}

// Step is one step: exactly one of its fields is set. In YAML, a step whose fields all have defaults may be empty
// ("- settle:"), and probe and fault may be their kind alone ("- probe: traversal"). A role is what the work of the kind
// counts as.
type Step struct {
	Create   *Create   `yaml:"create,omitempty" json:"create,omitempty" role:"cold"`
	React    *React    `yaml:"react,omitempty" json:"react,omitempty" role:"change"`
	Churn    *Churn    `yaml:"churn,omitempty" json:"churn,omitempty" role:"change"`
	Rollout  *Rollout  `yaml:"rollout,omitempty" json:"rollout,omitempty" role:"change"`
	Scale    *Scale    `yaml:"scale,omitempty" json:"scale,omitempty" role:"change"`
	NodeLoss *NodeLoss `yaml:"nodeLoss,omitempty" json:"nodeLoss,omitempty" role:"change"`
	Restart  *Restart  `yaml:"restart,omitempty" json:"restart,omitempty"`
	Migrate  *Migrate  `yaml:"migrate,omitempty" json:"migrate,omitempty"`
	Follow   *Follow   `yaml:"follow,omitempty" json:"follow,omitempty" role:"change"`
	Fault    *Fault    `yaml:"fault,omitempty" json:"fault,omitempty"`
	Probe    *Probe    `yaml:"probe,omitempty" json:"probe,omitempty"`
	Traffic  *Traffic  `yaml:"traffic,omitempty" json:"traffic,omitempty"`
	Check    *Check    `yaml:"check,omitempty" json:"check,omitempty" role:"look"`
	Settle   *Settle   `yaml:"settle,omitempty" json:"settle,omitempty" role:"wait"`
}

// Create creates Services and their EndpointSlices. The first Create of a scenario comes before the proxier starts,
// unless it has a rate. The first sync is then one cold full sync of everything.
type Create struct {
	// Services is the number to create; 0 means all of the shape that do not exist yet.
	Services int `yaml:"services,omitempty" json:"services,omitempty"`
	// Rate is Services a second, open loop; 0 means as fast as the informers take them.
	Rate float64 `yaml:"rate,omitempty" json:"rate,omitempty"`
}

// React makes isolated changes of one endpoint each, removed and added in turn. Before each change the subject
// converges, then idles for minSyncPeriod and up to as long again, so that no rate limit delays the sync: metric
// reaction.
type React struct {
	Count int `yaml:"count" json:"count"` // how many; default 10
	// Timeout of the convergence before each change. Default 10m.
	Timeout time.Duration `yaml:"timeout,omitempty" json:"timeout"`
}

// Churn is an open-loop stream of single changes at a rate: each has a due time, and latencies count from it.
type Churn struct {
	Rate   float64 `yaml:"rate" json:"rate"`     // changes a second
	Events int     `yaml:"events" json:"events"` // how many
	// Kind: endpoints (default: one endpoint of one EndpointSlice replaced), readiness (one endpoint's conditions),
	// services (delete one, create one), mixed.
	Kind string `yaml:"kind,omitempty" json:"kind"`
	// Arrivals: uniform (default: evenly spaced) or poisson.
	Arrivals string `yaml:"arrivals,omitempty" json:"arrivals"`
}

// Rollout replaces all endpoints of some Services, as a Deployment's rolling update does: surge endpoints come up
// ready, old ones terminate (serving) and are then removed.
type Rollout struct {
	Services int           `yaml:"services" json:"services"`           // how many, at the same time; default 1
	Surge    float64       `yaml:"surge,omitempty" json:"surge"`       // share of endpoints replaced at once; default 0.25
	Interval time.Duration `yaml:"interval,omitempty" json:"interval"` // between two waves; default 1s
}

// Scale sets the number of endpoints of one Service (the first in name order), at a rate.
type Scale struct {
	To   int     `yaml:"to" json:"to"`
	Rate float64 `yaml:"rate,omitempty" json:"rate"` // endpoints a second; default 100
}

// NodeLoss makes all endpoints of some nodes not ready and removes them, as when nodes die.
type NodeLoss struct {
	Nodes int `yaml:"nodes" json:"nodes"` // default 1; never node-0
}

// Restart stops the proxier and starts another over the rules that the first one left.
type Restart struct {
	// Layout of the new proxier, for subjects that have layouts: classic or tree. Default: unchanged.
	Layout string `yaml:"layout,omitempty" json:"layout,omitempty"`
}

// Migrate ends the subject and starts another one over its rules, as when a DaemonSet is replaced. Nothing is cleaned up
// in between. Both subjects are separate processes.
type Migrate struct {
	To string `yaml:"to,omitempty" json:"to,omitempty"` // the other subject; default: back to the run's own
	// Gap is the time between the end of one process and the start of the other. Default 1s.
	Gap time.Duration `yaml:"gap,omitempty" json:"gap"`
}

// Follow applies the changes that happen meanwhile in the followed cluster (synclab run --kubeconfig).
type Follow struct {
	For time.Duration `yaml:"for,omitempty" json:"for"` // default 1m
}

// Fault breaks something on purpose. The kinds, and what each does, are in faults.go.
type Fault struct {
	Kind string `yaml:"kind" json:"kind"`
	// Table for flush and delete: nat, filter, mangle or all. Default nat.
	Table string `yaml:"table,omitempty" json:"table,omitempty"`
	// Object for delete: jump (from a base chain to the proxier's), chain (its rules: a chain with references cannot
	// be deleted) or rule. In a table of nftables: a base chain, a chain, and an element of a set or map. Default
	// jump.
	Object string `yaml:"object,omitempty" json:"object,omitempty"`
	// Times is the number of restores that fail or are killed, or of events that are repeated or swapped. Default 1.
	Times int `yaml:"times,omitempty" json:"times,omitempty"`
	// For is how long the fault is active, for kinds that last. Default 6s, which outlasts kube-proxy's wait for the
	// lock.
	For time.Duration `yaml:"for,omitempty" json:"for,omitempty"`
	// Bytes is the memory limit of the subject and its children, for memory-limit.
	Bytes int64 `yaml:"bytes,omitempty" json:"bytes,omitempty"`
	// Text for rule-refused: a restore with this text fails, as -m nfacct does on a kernel without that match.
	// Default: the address of the endpoint that is added next.
	Text string `yaml:"text,omitempty" json:"text,omitempty"`
	// Flows for conntrack-full: the number of connections to add, with room left in the table. Default: as many as
	// fit, so that new flows are dropped.
	Flows int `yaml:"flows,omitempty" json:"flows,omitempty"`
}

// Probe measures what the rules cost a packet.
type Probe struct {
	Kind      string `yaml:"kind" json:"kind"`                     // traversal; verdicts: how packets to every address of every Service end
	Positions int    `yaml:"positions,omitempty" json:"positions"` // dispatch positions first … last; default 11 (first, deciles, last); a miss is added
	Samples   int    `yaml:"samples,omitempty" json:"samples"`     // packets a position; default 500
	// Method: sendto (default) is the duration of the system call that sends a fresh flow's first packet, in the node's
	// namespace: sendto of UDP, or connect of TCP where the cluster has no UDP Service. flow is
	// the round trip of a new flow from a client pod through the node to a server pod, each in a separate namespace.
	Method string `yaml:"method,omitempty" json:"method"`
	// Trace also sends one UDP packet with method flow, and prints its way hop by hop, in the first repetition.
	Trace bool `yaml:"trace,omitempty" json:"trace,omitempty"`
	// Kinds of destinations besides the positions and the miss: reject, node-port, external-ip, load-balancer (with
	// source ranges), affinity-first, affinity-again. A kind without a Service in the cluster is left out, with a
	// remark.
	Kinds []string `yaml:"kinds,omitempty" json:"kinds,omitempty"`
}

// Traffic is an open-loop stream of new flows, TCP and UDP, from a client pod to a sample of Services, during the
// steps that follow. It ends with a Traffic step that stops it, or with the repetition.
type Traffic struct {
	Rate     float64 `yaml:"rate,omitempty" json:"rate"`         // new flows a second; default 200
	Services int     `yaml:"services,omitempty" json:"services"` // the sample, spread over all positions; default 50
	// Focus is the number of additional flows a second to Services whose endpoints are changing, for exact latencies of
	// packets. Default 0: half of Rate goes to them.
	Focus float64 `yaml:"focus,omitempty" json:"focus,omitempty"`
	// LongLived is the number of long-lived TCP connections, and of long-lived UDP flows of one source port. Default 20.
	LongLived int  `yaml:"longLived,omitempty" json:"longLived"`
	Stop      bool `yaml:"stop,omitempty" json:"stop,omitempty"` // stop the stream that runs
	// For is how long the step lasts before the next one begins, to observe flows at rest. Default 0: no time at all.
	For time.Duration `yaml:"for,omitempty" json:"for,omitempty"`
}

// Check checks the invariants that bench/invariants lists, after the subject has converged.
type Check struct {
	// Invariants by number, I1 to I14. Empty: all that apply.
	Invariants []string `yaml:"invariants,omitempty" json:"invariants,omitempty"`
}

// Settle waits until the proxier has converged and has repaired the damage of faults.
type Settle struct {
	Timeout time.Duration `yaml:"timeout,omitempty" json:"timeout"` // default 10m
	// RestartOnTimeout: after the timeout, damage that remains counts as not repaired, active faults are cleared, and the
	// subject is restarted on an empty ruleset. Else the timeout ends the repetition.
	RestartOnTimeout bool `yaml:"restartOnTimeout,omitempty" json:"restartOnTimeout,omitempty"`
}
