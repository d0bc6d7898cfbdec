package scenarios

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"synclab/internal/inet"
)

// RandomOptions limit what Random draws.
type RandomOptions struct {
	// Duration bounds the open-loop time of all steps together. Default 1m. Time to converge is extra.
	Duration time.Duration
	// Services is the maximum of a shape. Default 300.
	Services int
	// Without names step kinds and fault kinds to leave out: "traffic", "restart", FaultMemoryLimit.
	Without []string
}

// The smallest shape still has Services of every kind, and some that can take traffic, whatever the shares are.
const (
	leastServices       = 20
	defaultRandomMost   = 300
	defaultRandomLength = time.Minute
	// randomSettle bounds every settle step: a subject that never converges shows there.
	randomSettle = 2 * time.Minute
)

// Random returns the scenario of a seed: a shape, settings of the proxier, and rounds. First, changes and faults come
// together, and invariants must hold (safety). Then faults are cleared, and the subject must converge (liveness):
// settle, check. The stream of flows runs from the first round on.
//
// Same seed and options, same scenario. The scenario is valid, and Load reads its YAML.
func Random(seed uint64, o RandomOptions) (*Scenario, error) {
	if err := checkWithout(o.Without); err != nil {
		return nil, err
	}
	or(&o.Duration, defaultRandomLength)
	or(&o.Services, defaultRandomMost)
	d := &drawing{
		Rand:    rand.New(rand.NewPCG(seed, 0x736f616b)), // "soak"
		options: o,
		s: &Scenario{
			Name: fmt.Sprintf("random-%d", seed), Description: "random changes and faults of one seed", Labels: []string{"random", "fault"}, Seed: seed,
		},
	}
	d.shape()
	d.proxy()
	d.steps()
	d.s.Fill()
	if err := d.s.Validate(); err != nil {
		return nil, fmt.Errorf("random scenario of seed %d: %w", seed, err)
	}
	return d.s, nil
}

// drawing is a random scenario under construction.
type drawing struct {
	*rand.Rand
	options RandomOptions
	s       *Scenario
	spent   time.Duration // open-loop time of the steps so far
	lost    int           // lost nodes
	later   int           // Services still to be created
}

func (d *drawing) chance(p float64) bool { return d.Float64() < p }

// between returns a whole number from low to high, both included.
func (d *drawing) between(low, high int) int { return low + d.IntN(max(high-low, 0)+1) }

// span returns a duration from low to high in steps of 50 ms.
func (d *drawing) span(low, high time.Duration) time.Duration {
	const grain = 50 * time.Millisecond
	return low + time.Duration(d.between(0, int((high-low)/grain)))*grain
}

// share returns 0 with probability 1/3, else a share up to most, in hundredths.
func (d *drawing) share(most float64) float64 {
	if d.chance(1. / 3) {
		return 0
	}
	return math.Round(d.Float64()*most*100) / 100
}

func pick[T any](d *drawing, of ...T) T { return of[d.IntN(len(of))] }

func (d *drawing) without(kind string) bool { return slices.Contains(d.options.Without, kind) }

func (d *drawing) shape() {
	sh := &d.s.Shape
	// Most bugs show with few Services, and a round with few Services takes less time.
	sh.Services = d.between(leastServices, max(leastServices, d.options.Services))
	if d.chance(0.5) {
		sh.Services = d.between(leastServices, max(leastServices, d.options.Services/4))
	}
	sh.Namespaces = d.between(1, 10)
	sh.Nodes = d.between(4, 40)
	sh.Ports = pick(d, 1, 1, 1, 2, 3)
	switch n := d.between(1, 12); pick(d, "fixed", "uniform", "zipf") {
	case "fixed":
		sh.Endpoints = Endpoints{Distribution: "fixed", Count: n}
	case "uniform":
		low := d.between(0, 2)
		sh.Endpoints = Endpoints{Distribution: "uniform", Min: low, Max: low + 1 + n}
	case "zipf":
		sh.Endpoints = Endpoints{Distribution: "zipf", Count: n, Max: 5*n + 5}
	}
	sh.Types = shares{"NodePort": d.share(0.3), "LoadBalancer": d.share(0.25), "Headless": d.share(0.1), "ExternalName": d.share(0.05)}.present()
	sh.Protocols = shares{"UDP": d.share(0.5), "SCTP": d.share(0.1)}.present()
	sh.Families = pick(d, []string{"IPv4"}, []string{"IPv4"}, []string{"IPv4"}, []string{"IPv6"}, []string{"IPv4", "IPv6"}, []string{"IPv6", "IPv4"})
	sh.ExternalIPs, sh.SourceRanges, sh.Affinity = d.share(0.2), d.share(1), d.share(0.4)
	sh.InternalLocal, sh.ExternalLocal = d.share(0.2), d.share(0.5)
	sh.WithoutEndpoint, sh.NotReady, sh.Terminating = d.share(0.15), d.share(0.2), d.share(0.2)
	sh.TopologyHints, sh.WithoutTargetRef = d.share(0.5), d.share(0.5)
	if d.chance(0.2) {
		sh.SharedPods = int(math.Ceil(sh.Endpoints.Mean())) + d.between(0, 10)
	}
}

// shares maps names to shares. present drops those that are 0.
type shares map[string]float64

func (s shares) present() map[string]float64 {
	maps.DeleteFunc(s, func(_ string, share float64) bool { return share == 0 })
	if len(s) == 0 {
		return nil
	}
	return s
}

func (d *drawing) proxy() {
	p := &d.s.Proxy
	p.MinSyncPeriod = d.span(50*time.Millisecond, time.Second)
	// SyncPeriod bounds the time to repair damage that no event reports.
	p.SyncPeriod = d.span(2*time.Second, 10*time.Second)
	if p.Policy = pick(d, "", "token-bucket", "completion-to-start"); p.Policy == "token-bucket" {
		p.Burst = d.between(1, 5)
	}
	p.MasqueradeAll = d.chance(0.2)
	if d.chance(0.4) {
		answer := d.chance(0.5)
		p.LocalhostNodePorts = &answer
	}
	switch d.IntN(5) {
	case 0:
		p.NodePortAddresses = []string{"primary"}
	case 1:
		for _, network := range NodeNetworks {
			if slices.Contains(d.s.Shape.Families, string(inet.FamilyOf(network.Addr()))) {
				p.NodePortAddresses = append(p.NodePortAddresses, network.String())
			}
		}
	}
}

func (d *drawing) add(step Step) {
	step.fill()
	d.s.Steps = append(d.s.Steps, step)
}

func (d *drawing) steps() {
	first := &Create{}
	if d.chance(0.25) {
		first.Services = d.between(d.s.Shape.Services/2, d.s.Shape.Services-1)
		d.later = d.s.Shape.Services - first.Services
	}
	if d.chance(0.1) {
		d.coldFault()
	}
	d.add(Step{Create: first})
	d.add(Step{Settle: &Settle{Timeout: randomSettle}})
	if !d.without("traffic") {
		d.add(Step{Traffic: &Traffic{Rate: float64(d.between(20, 200)), Services: d.between(5, 50), LongLived: d.between(1, 20)}})
	}
	for d.spent < d.options.Duration {
		if !d.round() {
			break
		}
	}
	if !d.without("traffic") {
		d.add(Step{Traffic: &Traffic{Stop: true}})
	}
	d.settleAndCheck()
}

// coldFault adds a fault that is active when the subject starts for the first time.
func (d *drawing) coldFault() {
	kinds := slices.DeleteFunc([]string{FaultRestoreKilled, FaultRestoreFails, FaultLockHeld}, d.without)
	if len(kinds) > 0 {
		fault := d.drawFault(pick(d, kinds...))
		fault.For = min(fault.For, 3*time.Second)
		d.add(Step{Fault: fault})
	}
}

func (d *drawing) settleAndCheck() {
	d.add(Step{Settle: &Settle{Timeout: randomSettle}})
	if !d.without("check") {
		d.add(Step{Check: &Check{}})
	}
}

// round adds 1 to 4 changes and faults, then heal, settle and check. It returns false when nothing more fits.
func (d *drawing) round() bool {
	faults := d.drawFaults(pick(d, 0, 1, 1, 1, 2, 2))
	changes := d.between(1, 2)
	// The last step is a change: otherwise an active fault could act on nothing.
	order := slices.Concat(slices.Repeat([]bool{true}, len(faults)), slices.Repeat([]bool{false}, changes-1))
	d.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	before := len(d.s.Steps)
	for _, isFault := range append(order, false) {
		if isFault {
			d.add(Step{Fault: faults[0]})
			faults = faults[1:]
			continue
		}
		d.change(time.Second, min(8*time.Second, d.options.Duration-d.spent))
	}
	if len(d.s.Steps) == before {
		return false
	}
	if !d.without(FaultClear) && slices.ContainsFunc(d.s.Steps[before:], func(s Step) bool { return s.Fault != nil }) {
		d.add(Step{Fault: &Fault{Kind: FaultClear}})
	}
	d.settleAndCheck()
	return true
}

// randomChanges are the kinds of steps that change something. A new one is drawn by a case in change.
var randomChanges = []string{"churn", "rollout", "scale", "nodeLoss", "restart"}

// change adds a step that changes the cluster or the subject, and takes between low and high.
func (d *drawing) change(low, high time.Duration) {
	took := d.span(low, max(low, high))
	if d.later > 0 && d.chance(0.5) {
		d.add(Step{Create: &Create{Rate: rate(d.later, took)}})
		d.later, d.spent = 0, d.spent+took
		return
	}
	kinds := slices.DeleteFunc(slices.Concat([]string{"churn", "churn", "churn"}, randomChanges), d.without)
	if len(kinds) == 0 {
		kinds = []string{"churn"} // a round needs a change
	}
	switch pick(d, kinds...) {
	case "rollout":
		d.rollout(took)
	case "scale":
		to := d.between(0, 60)
		if d.chance(0.3) {
			to = 0 // a Service loses its last endpoint, and later gets one again
		}
		// Bounded by the maximum of to: only the World knows how many endpoints the first Service has.
		d.add(Step{Scale: &Scale{To: to, Rate: rate(60, took)}})
		d.spent += took
	case "nodeLoss":
		if n := d.between(1, 3); d.lost+n <= d.s.Shape.Nodes/3 {
			d.lost += n
			d.add(Step{NodeLoss: &NodeLoss{Nodes: n}})
			d.spent += time.Second
			return
		}
		d.churn(took)
	case "restart":
		d.add(Step{Restart: &Restart{Layout: pick(d, "", "", "classic", "tree")}})
		d.spent += time.Second
	default:
		d.churn(took)
	}
}

func (d *drawing) churn(took time.Duration) {
	events := d.between(1, 1+int(took.Seconds()*float64(pick(d, 2, 5, 20))))
	d.add(Step{Churn: &Churn{
		Rate: rate(events, took), Events: events,
		Kind: pick(d, "endpoints", "readiness", "services", "mixed", "mixed"), Arrivals: pick(d, "uniform", "poisson"),
	}})
	d.spent += took
}

func (d *drawing) rollout(took time.Duration) {
	surge := pick(d, 0.25, 0.5, 1)
	// One interval more than waves: the old endpoints go after the last wave.
	interval := (took / time.Duration(1/surge+1)).Truncate(50 * time.Millisecond)
	services := min(d.between(1, 4), d.s.usable(d.s.Shape.Services-d.later))
	d.add(Step{Rollout: &Rollout{Services: max(1, services), Surge: surge, Interval: max(interval, 100*time.Millisecond)}})
	d.spent += took
}

// rate returns the rate of n events in a duration, in tenths and never 0.
func rate(n int, in time.Duration) float64 {
	return max(0.1, math.Round(float64(n)/in.Seconds()*10)/10)
}
