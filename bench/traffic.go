package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"synclab/bench/netns"
	"synclab/bench/traffic"
	"synclab/bench/visible"
	"synclab/proxier/iptables"
	"synclab/proxier/plan"
	"synclab/proxier/tracker"
	"synclab/scenarios"
	"synclab/sim"
)

// purposeFlows is the stream of randomness of the order in which Services are sent to.
const purposeFlows = 3

// flows are the pods of a repetition and what they send.
type flows struct {
	rooms   *netns.Pods      // nil: the scenario sends no flows
	pods    *traffic.Process // nil: not needed yet
	ports   map[uint16]bool  // that they answer on
	clients []netip.Addr
	ledger  atomic.Pointer[traffic.Ledger] // nil: no stream runs
	packets map[int]int                    // of held flows, that were answered as ever

	mu    sync.Mutex
	steps []stepBegun
	early []visible.Sight // see sightedFlows
}

// stepBegun is when a step began: flows are judged later than they end.
type stepBegun struct {
	name string
	at   time.Time
}

func (f *flows) stepBegins(name string, at time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.steps = append(f.steps, stepBegun{name, at})
}

// stepAt is the step that a moment was in.
func (f *flows) stepAt(at time.Time) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, step := range slices.Backward(f.steps) {
		if !step.at.After(at) {
			return step.name
		}
	}
	return ""
}

// recordedPackets: of the packets of held flows that were answered by the one who always answers, one of so many is recorded.
const recordedPackets = 8

// traffic begins or ends the stream of new flows.
func (r *repetition) traffic(ctx context.Context, t *scenarios.Traffic, name string) error {
	r.say.stage(name, 0, 0)
	if t.Stop {
		return r.endTraffic()
	}
	if r.Feed != FeedAPI {
		return fmt.Errorf("who may answer a flow is known only with the feed %q", FeedAPI)
	}
	if r.followed {
		return errors.New("what a followed cluster holds is not known well enough to judge flows: stream before step follow")
	}
	if err := r.beginTraffic(ctx, t); err != nil {
		return err
	}
	if t.For > 0 {
		return wait(ctx, t.For)
	}
	return nil
}

func (r *repetition) beginTraffic(ctx context.Context, t *scenarios.Traffic) error {
	if err := r.inSyncBefore(ctx); err != nil {
		return err
	}
	if err := r.startPods(ctx); err != nil {
		return err
	}
	targets, err := r.sampleTargets(t)
	if err != nil {
		return err
	}
	objects := r.world.Objects()
	ledger := traffic.NewLedger(traffic.LedgerOptions{
		Families: r.families, Node: r.planNode(), Services: objects.Services, Slices: objects.Slices, Now: r.clock.Now(),
		Targets: targets, At: r.flows.pods.At, Grace: r.config.IPTables.MinSyncPeriod.Duration + heldGrace, Tell: r.observed,
	})
	stream := traffic.Stream{
		Rate: t.Rate, Targets: targets, Clients: r.flows.clients, Seed: r.random(purposeFlows).Uint64(),
		HeldTCP: holders(targets, corev1.ProtocolTCP, t.Held), HeldUDP: holders(targets, corev1.ProtocolUDP, t.Held),
	}
	r.flows.packets = map[int]int{}
	if err := r.flows.pods.Begin(stream, ledger.Take); err != nil {
		return err
	}
	r.flows.ledger.Store(ledger)
	return nil
}

// inSyncBefore waits until the kernel has what the cluster holds: from there on it is known who may answer.
func (r *repetition) inSyncBefore(ctx context.Context) error {
	waiting, cancel := context.WithTimeout(ctx, upTime)
	defer cancel()
	err := r.subject.inSync(waiting)
	if err != nil && ctx.Err() == nil && waiting.Err() != nil {
		return r.tooLong(err)
	}
	return err
}

// heldGrace is how much longer than a sync may be held back a held UDP flow may stay where a removed endpoint was: the
// end of the sync, in which the flow is cleaned, comes after its rules, by a walk through the conntrack table. That takes
// seconds where there are 100,000 flows and the CPU has other work; a flow that nobody cleans stays for as long as it sends.
const heldGrace = 5 * time.Second

// endTraffic ends the stream, if one runs, and records what is left to tell.
func (r *repetition) endTraffic() error {
	ledger := r.flows.ledger.Load()
	if ledger == nil {
		return nil
	}
	err := r.flows.pods.End()
	excused, unwatched := ledger.Finish()
	r.recordAs(Record{Unit: "count"}, FlowsUnwatched, float64(unwatched))
	if unwatched > 0 {
		r.say.message(message{Note: fmt.Sprintf("of %d flows nothing is known: the machine gave no CPU to who watched them", unwatched)})
	}
	if excused > 0 {
		r.say.message(message{Note: fmt.Sprintf("%d flows went unanswered, rightly: their Service had no endpoints, or might have had none", excused)})
	}
	r.flows.ledger.Store(nil)
	return err
}

// closePods ends the stream and the pods.
func (r *repetition) closePods() error {
	err := r.endTraffic()
	if r.flows.pods != nil {
		err = errors.Join(err, r.flows.pods.Close())
		r.flows.pods, r.flows.ports = nil, nil
	}
	if r.flows.rooms != nil {
		r.flows.rooms.Close()
	}
	return err
}

// changeLayout makes the subject that is started next write another layout, if it has layouts.
func (r *repetition) changeLayout(layout string) {
	switch {
	case layout == "":
	case r.about.Proxier != Synclab || r.variant == "":
		r.say.message(message{Note: fmt.Sprintf("layout %s: %s has no layouts", layout, r.Subject)})
	default:
		r.layout = iptables.Layout(layout)
	}
}

// planNode is the subject's node.
func (r *repetition) planNode() plan.Node {
	objects := r.world.Objects()
	node := plan.Node{Name: nodeName(objects)}
	if len(objects.Nodes) > 0 {
		node.Zone = objects.Nodes[0].Labels[corev1.LabelTopologyZone]
	}
	return node
}

// expectFlows tells the stream, if one runs, of a change that is about to be made.
func (r *repetition) expectFlows(op sim.Op, object runtime.Object, due time.Time) {
	ledger := r.flows.ledger.Load()
	if ledger == nil {
		return
	}
	if slice, ok := object.(*discoveryv1.EndpointSlice); ok && op != sim.Delete {
		if err := r.flows.pods.Listen(r.newPorts(slice)); err != nil { // before anybody is sent there
			r.fail(err)
		}
	}
	added, focus := ledger.Changed(op, object, due, r.clock.Now())
	if err := r.flows.pods.Follow(added, focus); err != nil {
		r.fail(err)
	}
}

// emptying are faults that take rules away, or have the subject take its own away while it looks for those to blame.
var emptying = map[string]bool{scenarios.FaultFlush: true, scenarios.FaultDelete: true, scenarios.FaultRuleRefused: true}

// sightedFlows tells the stream, if one runs, of a change that is visible in the kernel. Where rules are gone, nothing leads to
// a removed endpoint, and what brings the rules back may be a sync that knew nothing of the change yet: such a sight is
// told of when everything has settled.
func (r *repetition) sightedFlows(s visible.Sight) {
	ledger := r.flows.ledger.Load()
	switch {
	case ledger == nil:
	case r.emptied(s.Read):
		r.flows.mu.Lock()
		r.flows.early = append(r.flows.early, s)
		r.flows.mu.Unlock()
	default:
		ledger.Visible(s.Object, s.Family, s.Read)
	}
}

// settledFlows tells the stream of what was visible too early to count.
func (r *repetition) settledFlows() {
	r.flows.mu.Lock()
	early := r.flows.early
	r.flows.early = nil
	r.flows.mu.Unlock()
	if ledger := r.flows.ledger.Load(); ledger != nil {
		now := r.clock.Now()
		for _, s := range early {
			ledger.Visible(s.Object, s.Family, now)
		}
	}
}

// emptied says whether rules may have been gone at a moment.
func (r *repetition) emptied(at time.Time) bool {
	r.damages.mu.Lock()
	all := slices.Clone(r.damages.all)
	r.damages.mu.Unlock()
	return slices.ContainsFunc(all, func(d *damage) bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		return emptying[d.kind] && !at.Before(d.began) && (!d.closed || !at.After(d.done))
	})
}

var flowMetrics = map[traffic.Finding]Metric{
	traffic.NewFlow: Flow, traffic.HeldPacket: HeldFlow, traffic.RemovedServed: RemovedServed, traffic.AddedWaits: AddedWaits,
}

// methodHeld marks what is of a held flow.
const methodHeld = "held"

// observed records what the ledger found.
func (r *repetition) observed(o traffic.Observed) {
	t := o.Target
	step := r.flows.stepAt(o.At)
	r.checking.met.met(&o, mayFail(r.Scenario.Steps, step, r.flows.stepAt(o.At.Add(o.Took))))
	if o.Finding == traffic.HeldPacket && o.Outcome == traffic.Answered {
		if r.flows.packets[o.Number]++; r.flows.packets[o.Number]%recordedPackets != 1 {
			return
		}
	}
	rec := Record{
		At: o.At.Sub(r.started).Seconds(), Step: step, Unit: "s", Family: string(t.Family), Protocol: string(t.Protocol), Outcome: o.Outcome,
		Service: serviceText(t.Service), Target: t.Kind,
	}
	if o.Held && o.Finding == traffic.RemovedServed {
		rec.Method = methodHeld
	}
	if o.Outcome == traffic.Misrouted {
		rec.Error = "answered by " + o.By.String()
	}
	r.recordAs(rec, flowMetrics[o.Finding], o.Took.Seconds())
}

func serviceText(name tracker.ServicePortName) string { return name.String() }

// holders spreads the held flows over the targets of a protocol.
func holders(targets []traffic.Target, protocol corev1.Protocol, n int) []int {
	var able []int
	for i := range targets {
		if targets[i].Protocol == protocol && targets[i].Kind == "" {
			able = append(able, i)
		}
	}
	if len(able) == 0 {
		return nil
	}
	held := make([]int, n)
	for i := range held {
		held[i] = able[i*max(len(able)/n, 1)%len(able)]
	}
	return held
}

// sampleTargets picks Service ports spread over the dispatch, the first in name order among them, which is the one that step
// scale works on; and a tenth as many node ports and external addresses, as far as there are some.
func (r *repetition) sampleTargets(t *scenarios.Traffic) ([]traffic.Target, error) {
	objects := r.world.Objects()
	var targets []traffic.Target
	for _, family := range r.families {
		names := portsByAddress(objects.Services, family)
		frontends, _, err := r.dispatch(family)
		if err != nil {
			return nil, err
		}
		var able []traffic.Target
		slices.SortStableFunc(frontends, func(a, b iptables.Frontend) int { return cmp.Compare(a.Position, b.Position) })
		for _, f := range frontends {
			name, known := names[address{f.Protocol, f.Addr}]
			if known && f.Protocol != corev1.ProtocolSCTP {
				able = append(able, traffic.Target{Service: name, Family: family, Protocol: f.Protocol, Addr: f.Addr})
			}
		}
		if len(able) == 0 {
			continue
		}
		first := slices.MinFunc(able, func(a, b traffic.Target) int { return plan.CompareNames(a.Service, b.Service) })
		n := min(len(able), max(t.Services/len(r.families), 1))
		targets = append(targets, first)
		for i := range n {
			if pick := able[i*(len(able)-1)/max(n-1, 1)]; pick != first {
				targets = append(targets, pick)
			}
		}
		targets = append(targets, r.externalTargets(objects.Services, family, able, max(n/10, 1))...)
	}
	if len(targets) == 0 {
		return nil, errors.New("no TCP or UDP Service with endpoints to send to")
	}
	return targets, nil
}

// address is where a Service port is found.
type address struct {
	protocol corev1.Protocol
	addr     netip.AddrPort
}

// portsByAddress names the Service ports by their cluster IPs.
func portsByAddress(services []*corev1.Service, family corev1.IPFamily) map[address]tracker.ServicePortName {
	names := map[address]tracker.ServicePortName{}
	for _, svc := range services {
		for _, text := range svc.Spec.ClusterIPs {
			addr, ok := sim.ParseAddr(text)
			if !ok || familyOf(addr) != family {
				continue
			}
			for i := range svc.Spec.Ports {
				names[address{svc.Spec.Ports[i].Protocol, netip.AddrPortFrom(addr, uint16(svc.Spec.Ports[i].Port))}] = portName(svc, &svc.Spec.Ports[i])
			}
		}
	}
	return names
}

func portName(svc *corev1.Service, port *corev1.ServicePort) tracker.ServicePortName {
	return tracker.ServicePortName{
		NamespacedName: types.NamespacedName{Namespace: svc.Namespace, Name: svc.Name},
		PortKey:        tracker.PortKey{Name: port.Name, Protocol: port.Protocol},
	}
}

// externalTargets are up to n node ports and n external addresses of Services that can be sent to, and that send
// everybody everywhere.
func (r *repetition) externalTargets(services []*corev1.Service, family corev1.IPFamily, able []traffic.Target, n int) []traffic.Target {
	served := map[tracker.ServicePortName]bool{}
	for i := range able {
		served[able[i].Service] = true
	}
	i := slices.IndexFunc(r.node, func(addr netip.Addr) bool { return familyOf(addr) == family })
	var nodePorts, external []traffic.Target
	for _, svc := range services {
		if svc.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal {
			continue
		}
		for k := range svc.Spec.Ports {
			port := &svc.Spec.Ports[k]
			target := traffic.Target{Service: portName(svc, port), Family: family, Protocol: port.Protocol}
			if !served[target.Service] {
				continue
			}
			if port.NodePort > 0 && i >= 0 && len(r.config.NodePortAddresses) == 0 && len(nodePorts) < n {
				target.Kind, target.Addr = "node-port", netip.AddrPortFrom(r.node[i], uint16(port.NodePort))
				nodePorts = append(nodePorts, target)
			}
			for _, text := range svc.Spec.ExternalIPs {
				if addr, ok := sim.ParseAddr(text); ok && familyOf(addr) == family && len(external) < n {
					target.Kind, target.Addr = "external-ip", netip.AddrPortFrom(addr, uint16(port.Port))
					external = append(external, target)
				}
			}
		}
	}
	return append(nodePorts, external...)
}
