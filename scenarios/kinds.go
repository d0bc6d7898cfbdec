package scenarios

import (
	"cmp"
	"fmt"
	"math"
	"time"
)

// Step is one step: exactly one of its fields is set. In YAML, a step whose fields all have defaults may be empty
// ("- settle:"), and probe and fault may be their kind alone ("- probe: traversal"). A role is what the work of the kind
// counts as. Fields of kinds may be required, or the size of a step: the number of its changes or objects.
type Step struct {
	Create      *Create      `yaml:"create,omitempty" json:"create,omitempty" role:"cold"`
	React       *React       `yaml:"react,omitempty" json:"react,omitempty" role:"change"`
	Churn       *Churn       `yaml:"churn,omitempty" json:"churn,omitempty" role:"change"`
	Rollout     *Rollout     `yaml:"rollout,omitempty" json:"rollout,omitempty" role:"change"`
	Scale       *Scale       `yaml:"scale,omitempty" json:"scale,omitempty" role:"change"`
	NodeLoss    *NodeLoss    `yaml:"nodeLoss,omitempty" json:"nodeLoss,omitempty" role:"change"`
	Restart     *Restart     `yaml:"restart,omitempty" json:"restart,omitempty"`
	Migrate     *Migrate     `yaml:"migrate,omitempty" json:"migrate,omitempty"`
	Follow      *Follow      `yaml:"follow,omitempty" json:"follow,omitempty" role:"change"`
	Fault       *Fault       `yaml:"fault,omitempty" json:"fault,omitempty"`
	Probe       *Probe       `yaml:"probe,omitempty" json:"probe,omitempty"`
	Traffic     *Traffic     `yaml:"traffic,omitempty" json:"traffic,omitempty"`
	Connections *Connections `yaml:"connections,omitempty" json:"connections,omitempty"`
	Check       *Check       `yaml:"check,omitempty" json:"check,omitempty" role:"look"`
	Settle      *Settle      `yaml:"settle,omitempty" json:"settle,omitempty" role:"wait"`
}

// stepRules are the limits and the defaults of each kind's fields.
var stepRules = map[string]rule{
	"create.services":         count(0, MaxServices, "0 means all of the shape that do not exist yet"),
	"create.rate":             {min: 0, max: maxRate, why: "Services a second; 0 means as fast as possible"},
	"react.count":             count(1, 10_000, "each waits until the subject has idled").or(10),
	"react.timeout":           between(time.Millisecond, MaxDuration, "it is a guard against waiting for ever").or(10 * time.Minute),
	"churn.rate":              {min: 0, max: maxRate, above: true, why: "changes a second; informers deliver no more"},
	"churn.events":            count(1, 10_000_000, "all changes of a step are planned ahead, in memory"),
	"churn.kind":              {words: []string{"endpoints", "readiness", "services", "mixed"}, preset: "endpoints"},
	"churn.arrivals":          {words: []string{"uniform", "poisson"}, preset: "uniform"},
	"rollout.services":        count(1, MaxServices, "how many Services roll at the same time").or(1),
	"rollout.surge":           {min: 0, max: 1, above: true, why: "it is the share of endpoints replaced at once", preset: 0.25}, // a Deployment's default maxSurge
	"rollout.interval":        between(time.Millisecond, time.Hour, "the time between two waves").or(time.Second),                // about the time that a pod takes to become ready
	"scale.to":                count(0, MaxEndpoints, "the most is one on each node of the largest supported cluster"),
	"scale.rate":              {min: 0, max: maxRate, above: true, why: "endpoints a second; informers deliver no more", preset: 100},
	"nodeLoss.nodes":          count(1, 14_999, "node-0, where the proxier runs, stays").or(1),
	"follow.for":              between(time.Second, MaxDuration, "the open-loop steps of a scenario may take a day").or(time.Minute),
	"fault.kind":              {words: FaultKinds()},
	"fault.table":             {words: []string{"", "nat", "filter", "mangle", "all"}},
	"fault.object":            {words: []string{"", "jump", "chain", "rule"}},
	"fault.times":             count(1, 1_000, "how many restores or events").unset(),
	"fault.for":               between(time.Millisecond, time.Hour, "how long the fault is active").unset(),
	"fault.bytes":             count(1<<20, 1<<40, "the memory of a proxier and its tools").unset(),
	"fault.flows":             count(1, 1_000_000, "each takes some 320 bytes of kernel memory").unset(),
	"fault.elements":          count(1, 5_000_000, "each takes some 100 bytes of kernel memory").unset(),
	"fault.rules":             count(10, 500_000, "each pod of another program has ten").unset(),
	"fault.services":          count(1, MaxServices, "how many lose an endpoint").unset(),
	"fault.text":              {pattern: shortText, why: "it is part of one line of a restore, of 64 characters at most"},
	"probe.kind":              {words: []string{"traversal", "verdicts"}},
	"probe.positions":         count(2, 1_000, "the first and the last at least").or(11), // the first, the nine deciles between, the last
	"probe.samples":           count(1, 100_000, "each sample is a separate flow, and conntrack tables are bounded").or(500),
	"probe.method":            {words: []string{"sendto", "flow"}, preset: "sendto"},
	"probe.kinds.N":           {words: []string{"reject", "node-port", "external-ip", "load-balancer", "affinity-first", "affinity-again"}},
	"traffic.rate":            {min: 0, max: 10_000, above: true, orUnset: true, why: "new flows a second; more would measure the machine", preset: 200},
	"traffic.focus":           {min: 0, max: 10_000, orUnset: true, why: "new flows a second to Services that change"},
	"traffic.services":        count(1, 10_000, "how many Services get traffic").unset().or(50),
	"traffic.longLived":       count(0, 1_000, "each is a long-lived connection").or(20),
	"traffic.stop":            anything,
	"traffic.for":             between(time.Millisecond, time.Hour, "how long flows run before the next step").unset(),
	"connections.clients":     count(1, 64, "each is a thread of the machine that also runs the rules").or(4),
	"connections.for":         between(time.Millisecond, 10*time.Minute, "how long connections to each destination are made").or(2 * time.Second),
	"connections.services":    count(2, 1_000, "the first and the last of the dispatch at least").or(3),
	"probe.trace":             anything,
	"migrate.to":              {pattern: oneLine, why: "a subject is called proxier/backend, or exec:NAME=COMMAND"},
	"migrate.gap":             between(time.Millisecond, time.Hour, "no pod starts in the moment in which another ends").unset().or(time.Second), // about the time in which a node pulls no image and starts a pod
	"restart.layout":          {words: []string{"", "classic", "tree"}},
	"check.invariants.N":      {pattern: oneInvariant, why: "the invariants are I1 to I14"},
	"settle.timeout":          between(time.Millisecond, MaxDuration, "it is a guard against waiting for ever").or(10 * time.Minute),
	"settle.restartOnTimeout": anything,
}

// step goes to the next step: what it takes, adds and needs, by its kind.
func (w *walk) step(st Step) {
	switch {
	case st.Create != nil:
		left := max(0, w.Shape.Services-w.created)
		n := cmp.Or(st.Create.Services, left)
		if st.Create.Rate > 0 {
			w.seconds = float64(n) / st.Create.Rate
		}
		if left == 0 {
			w.refuse(fmt.Sprintf("creates nothing: all %s Services of the shape exist already", thousands(w.Shape.Services)))
		} else if n > left {
			w.problems.add(join(w.at, "services"), fmt.Sprintf("%s Services are more than shape.services leaves: want at most %s", thousands(n), thousands(left)))
		}
		w.created += min(n, left)
	case st.Fault != nil:
		w.seconds = st.Fault.For.Seconds()
		st.Fault.check(w.at, w.created, &w.problems)
	case st.React != nil: // each added endpoint follows a removed one
		w.added += int64(st.React.Count)
		w.needEndpoints()
	case st.Churn != nil:
		w.seconds = float64(st.Churn.Events) / st.Churn.Rate
		switch st.Churn.Kind {
		case "readiness":
		case "endpoints":
			w.added += int64(st.Churn.Events)
		default: // freed addresses are used again, after all others
			w.added += w.endpointsOf(st.Churn.Events)
		}
		if st.Churn.Kind != "services" {
			w.needEndpoints()
		}
	case st.Rollout != nil: // at worst all new ones are up before an old one goes
		w.added += w.endpointsOf(st.Rollout.Services)
		// A surge of a quarter makes four waves, but no wave is smaller than one endpoint.
		waves := min(math.Ceil(1/st.Rollout.Surge), math.Ceil(w.Shape.Endpoints.Mean()))
		w.seconds = waves * st.Rollout.Interval.Seconds()
		if most := w.usable(w.created); st.Rollout.Services > most {
			w.problems.add(join(w.at, "services"), fmt.Sprintf("%s Services with endpoints may not exist: want at most %s", thousands(st.Rollout.Services), thousands(most)))
		}
	case st.Scale != nil:
		w.added += max(0, int64(st.Scale.To-w.Shape.Endpoints.Count))
		w.seconds = math.Abs(float64(st.Scale.To)-w.scaled) / st.Scale.Rate
		w.scaled = float64(st.Scale.To)
		w.needEndpoints()
	case st.NodeLoss != nil:
		if w.lost += st.NodeLoss.Nodes; w.lost >= w.Shape.Nodes {
			w.problems.add(join(w.at, "nodes"), fmt.Sprintf("%d lost Nodes in all leave none of shape.nodes, %d: want at most %d, as node-0 stays", w.lost, w.Shape.Nodes, w.Shape.Nodes-1))
		}
	case st.Follow != nil:
		w.seconds = st.Follow.For.Seconds()
	case st.Connections != nil:
		w.needEndpoints()
		if w.streams {
			w.refuse("shares the clients and their CPU time with a stream: stop it before")
		}
	case st.Traffic != nil:
		t := st.Traffic
		w.seconds = t.For.Seconds()
		switch {
		case t.Stop && !w.streams:
			w.refuse("stops a stream, but none runs")
		case t.Stop && (t.Rate != 0 || t.Services != 0 || t.LongLived != 0 || t.For != 0):
			w.refuse("stops a stream: rate, services, longLived and for have no effect")
		case !t.Stop && w.streams:
			w.refuse("begins a second stream: stop the first one before")
		case !t.Stop && w.usable(w.Shape.Services) == 0:
			w.refuse("may find no Service with endpoints")
		}
		w.streams = !t.Stop
	}
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
	Count int `yaml:"count" json:"count" size:""` // how many; default 10
	// Timeout of the convergence before each change. Default 10m.
	Timeout time.Duration `yaml:"timeout,omitempty" json:"timeout"`
}

// Churn is an open-loop stream of single changes at a rate: each has a due time, and latencies count from it.
type Churn struct {
	Rate   float64 `yaml:"rate" json:"rate" required:""`             // changes a second
	Events int     `yaml:"events" json:"events" required:"" size:""` // how many
	// Kind: endpoints (default: one endpoint of one EndpointSlice replaced), readiness (one endpoint's conditions),
	// services (delete one, create one), mixed.
	Kind string `yaml:"kind,omitempty" json:"kind"`
	// Arrivals: uniform (default: evenly spaced) or poisson.
	Arrivals string `yaml:"arrivals,omitempty" json:"arrivals"`
}

// Rollout replaces all endpoints of some Services, as a Deployment's rolling update does: surge endpoints come up
// ready, old ones terminate (serving) and are then removed.
type Rollout struct {
	Services int           `yaml:"services" json:"services" size:""`   // how many, at the same time; default 1
	Surge    float64       `yaml:"surge,omitempty" json:"surge"`       // share of endpoints replaced at once; default 0.25
	Interval time.Duration `yaml:"interval,omitempty" json:"interval"` // between two waves; default 1s
}

// Scale sets the number of endpoints of one Service (the first in name order), at a rate.
type Scale struct {
	To   int     `yaml:"to" json:"to" required:""`
	Rate float64 `yaml:"rate,omitempty" json:"rate"` // endpoints a second; default 100
}

// NodeLoss makes all endpoints of some nodes not ready and removes them, as when nodes die.
type NodeLoss struct {
	Nodes int `yaml:"nodes" json:"nodes" size:""` // default 1; never node-0
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
	Kind string `yaml:"kind" json:"kind" required:""`
	// Table for flush and delete: nat, filter, mangle or all. Default nat.
	Table string `yaml:"table,omitempty" json:"table,omitempty"`
	// Object for delete: jump (from a base chain to the proxier's), chain (its rules: a chain with references cannot
	// be deleted) or rule. In a table of nftables: a base chain, a chain, and an element of a set or map. Default
	// jump.
	Object string `yaml:"object,omitempty" json:"object,omitempty"`
	// Times is the number of restores that fail or are killed, or of events that are repeated or swapped. Default 1.
	Times int `yaml:"times,omitempty" json:"times,omitempty" size:""`
	// For is how long the fault is active, for kinds that last. Default 6s, which outlasts kube-proxy's wait for the
	// lock.
	For time.Duration `yaml:"for,omitempty" json:"for,omitempty"`
	// Bytes is the memory limit of the subject and its children, for memory-limit.
	Bytes int64 `yaml:"bytes,omitempty" json:"bytes,omitempty"`
	// Text for rule-refused: a restore with this text fails, as -m nfacct does on a kernel without that match.
	// Default: the address of the endpoint that is added next.
	Text string `yaml:"text,omitempty" json:"text,omitempty"`
	// Flows for conntrack-full: the number of connections to add, with room left in the table. Default: as many as
	// fit, so that new flows are dropped. For conntrack-stale: how many become stale; default 5,000.
	Flows int `yaml:"flows,omitempty" json:"flows,omitempty"`
	// Elements and Rules for foreign: the elements of a map in a foreign table of nftables, and the foreign rules, ten for
	// each pod, in the table filter of iptables; beside a subject with nftables, of iptables-nft. Default of both: 100000
	// and 1000.
	Elements int `yaml:"elements,omitempty" json:"elements,omitempty"`
	Rules    int `yaml:"rules,omitempty" json:"rules,omitempty"`
	// Services for conntrack-stale: how many lose an endpoint. Default 10.
	Services int `yaml:"services,omitempty" json:"services,omitempty"`
}

// Probe measures what the rules cost a packet.
type Probe struct {
	Kind      string `yaml:"kind" json:"kind" required:""`         // traversal; verdicts: how packets to every address of every Service end
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

// Connections makes TCP connections through Services, each for one question and its answer: as many as possible (a closed
// loop), from client pods through the node to other pods. It does the same straight to an endpoint, without a Service, and as a
// control, it sends as many bytes as possible through established connections.
type Connections struct {
	Clients int `yaml:"clients,omitempty" json:"clients"` // threads that make connections at the same time; default 4
	// For is how long connections to each destination are made, in turns with the other destinations. Default 2s.
	For      time.Duration `yaml:"for,omitempty" json:"for"`
	Services int           `yaml:"services,omitempty" json:"services"` // from the first of the dispatch to the last in equal steps; default 3
}

// Check checks the invariants that bench/verify/invariants lists, after the subject has converged.
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
