package scenarios

import "time"

// Scenario is a named, seeded list of steps on a simulated cluster of a shape.
type Scenario struct {
	Name        string   `yaml:"name" json:"name" required:""`
	Description string   `yaml:"description" json:"description"`
	Labels      []string `yaml:"labels,omitempty" json:"labels,omitempty"`
	// Seed determines the cluster and all its events: same seed, same bytes.
	Seed  uint64 `yaml:"seed" json:"seed"`
	Shape Shape  `yaml:"shape" json:"shape" required:""`
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
	Steps      []Step             `yaml:"steps" json:"steps" required:""`
}

// Target is an expected value of a figure of a subject at a size. It sets exactly one of Times, AtMost and Exponent.
type Target struct {
	Subject  string `yaml:"subject" json:"subject" required:""`
	Services int    `yaml:"services" json:"services" required:""`
	// Figure: reaction, cold_start, full_sync, partial_sync, peak_rss, child_peak_rss, total_peak_rss (of both), or
	// first_packet: the median at the last Service.
	Figure string `yaml:"figure" json:"figure" required:""`
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
	Services   int       `yaml:"services" json:"services" required:""`
	Namespaces int       `yaml:"namespaces,omitempty" json:"namespaces"` // default 10, or 1 with SharedPods
	Nodes      int       `yaml:"nodes,omitempty" json:"nodes"`           // default 100; the proxier runs on the first, "node-0"
	Zones      int       `yaml:"zones,omitempty" json:"zones"`           // default 3
	Endpoints  Endpoints `yaml:"endpoints,omitempty" json:"endpoints"`
	// SharedPods: the Services of a namespace select the same pods, so many, and have Endpoints of them. A change of one pod
	// then changes the EndpointSlices of all its Services, one after the other. Default 0: the pods of a Service are its own.
	SharedPods int `yaml:"sharedPods,omitempty" json:"sharedPods,omitempty"`
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

	// WithoutTargetRef is the share of Services whose endpoints name no pod, as those that other controllers and people make.
	WithoutTargetRef float64 `yaml:"withoutTargetRef,omitempty" json:"withoutTargetRef,omitempty"`

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
	Field  string   `yaml:"field" json:"field" required:""` // a path as --set takes it, e.g. shape.services
	Values []string `yaml:"values,omitempty" json:"values,omitempty"`
	From   int      `yaml:"from,omitempty" json:"from,omitempty"`
	To     int      `yaml:"to,omitempty" json:"to,omitempty"`
	Points int      `yaml:"points,omitempty" json:"points,omitempty"`
}
