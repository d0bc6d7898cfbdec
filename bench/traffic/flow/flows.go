package flow

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
	"k8s.io/apimachinery/pkg/types"

	"synclab/bench/fault"
	"synclab/bench/lab/netns"
	"synclab/bench/mirror"
	"synclab/bench/pass"
	"synclab/bench/raw"
	"synclab/bench/subject/host"
	"synclab/bench/subject/visible"
	"synclab/bench/traffic"
	"synclab/internal/inet"
	"synclab/proxier/iptables"
	"synclab/proxier/plan"
	"synclab/proxier/tracker"
	"synclab/scenarios"
	"synclab/sim"
)

// purposeFlows is the random stream for the order of the flows' Services.
const purposeFlows = 3

// Flows are the pods of a repetition and their traffic.
type Flows struct {
	*pass.Env
	Host   *host.Host
	Faults *fault.Faults
	// Met counts a result, with the steps in which its flow began and ended.
	Met func(o *traffic.Observed, from, to string)

	Rooms    *netns.Pods      // nil: the scenario sends no flows
	pods     *traffic.Process // nil: not needed yet
	ports    map[uint16]bool  // on which the pods answer
	Clients  []netip.Addr
	Outside  map[corev1.IPFamily]netip.Addr      // a host outside of the cluster
	watching []netip.Addr                        // Clients of the watcher, if packets may have to show the subject's state
	Checker  atomic.Pointer[traffic.FlowChecker] // nil: no stream runs
	Packets  map[int]int                         // of long-lived flows, answered by the same endpoint
	busy     int                                 // flows of the stream that failed together with control flows

	mu    sync.Mutex
	steps []stepBegun
	early []visible.VisibleChange // see visible
}

// stepBegun is the start of a step. It is needed because flows are judged later than they end.
type stepBegun struct {
	name string
	at   time.Time
}

func (r *Flows) Stepping(name string, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.steps = append(r.steps, stepBegun{name, at})
}

// stepAt returns the step that ran at a moment.
func (r *Flows) stepAt(at time.Time) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, step := range slices.Backward(r.steps) {
		if !step.at.After(at) {
			return step.name
		}
	}
	return ""
}

// recordedPackets: of a long-lived flow's packets that the same endpoint answers, one in so many is recorded.
const recordedPackets = 8

// Traffic starts or ends the stream of new flows.
func (r *Flows) Traffic(ctx context.Context, t *scenarios.Traffic, name string) error {
	r.Messages.Stage(name, 0, 0)
	if t.Stop {
		return r.endTraffic()
	}
	if r.Feed != raw.FeedAPI {
		return fmt.Errorf("step traffic needs --feed %s: otherwise the expected endpoints of a flow are not known", raw.FeedAPI)
	}
	if r.Followed {
		return errors.New("cannot judge flows to a followed cluster, whose state is not known exactly: put step traffic before step follow")
	}
	if err := r.beginTraffic(ctx, t); err != nil {
		return err
	}
	if t.For > 0 {
		return pass.Wait(ctx, t.For)
	}
	return nil
}

func (r *Flows) beginTraffic(ctx context.Context, t *scenarios.Traffic) error {
	if err := r.inSyncBefore(ctx); err != nil {
		return err
	}
	if err := r.StartPods(ctx); err != nil {
		return err
	}
	targets, err := r.sampleTargets(t)
	if err != nil {
		return err
	}
	objects := r.World.Objects()
	checker := traffic.NewLedger(traffic.LedgerOptions{
		Families: r.Families, Node: r.PlanNode(), NodeAddresses: r.Node, Services: objects.Services, Slices: objects.Slices, Now: r.Clock.Now(),
		Targets: targets, At: r.pods.At, Grace: r.Settings().MinSyncPeriod + heldGrace,
		Ended: r.Faults.SubjectEnded, Tell: r.Observed,
	})
	longLived := t.LongLived
	if r.About.ClusterIPsOnly() { // see docs/comparing.md: sockets of removed endpoints
		longLived = 0
	}
	stream := traffic.Stream{
		Rate: t.Rate, Focus: t.Focus, Targets: targets, Clients: r.Clients, Seed: r.Random(purposeFlows).Uint64(),
		LongLivedTCP: longLivedTargets(targets, corev1.ProtocolTCP, longLived), LongLivedUDP: longLivedTargets(targets, corev1.ProtocolUDP, longLived),
	}
	r.Packets = map[int]int{}
	if err := r.pods.Begin(stream, checker.Take); err != nil {
		return err
	}
	r.Checker.Store(checker)
	return nil
}

// inSyncBefore waits until the kernel has the desired state. From then on the expected endpoints of each flow are known.
func (r *Flows) inSyncBefore(ctx context.Context) error {
	waiting, cancel := context.WithTimeout(ctx, pass.UpTime)
	defer cancel()
	err := r.Host.Subject.InSync(waiting)
	if err != nil && ctx.Err() == nil && waiting.Err() != nil {
		return r.Host.TooLong(err)
	}
	return err
}

// heldGrace is how long a long-lived UDP flow may stay at a removed endpoint, beyond the longest delay of a sync. The
// sync cleans the flow after it has written the rules, in a walk through the conntrack table. With 100,000 flows and a
// busy CPU, the walk takes seconds. A flow that is not cleaned stays as long as it sends.
const heldGrace = 5 * time.Second

// endTraffic ends the stream, if one runs, and records the remaining results.
func (r *Flows) endTraffic() error {
	checker := r.Checker.Load()
	if checker == nil {
		return nil
	}
	err := r.pods.End()
	counts := checker.Finish()
	r.RecordAs(raw.Record{}, raw.FlowsUnobserved, float64(counts.Unobserved))
	for _, note := range []struct {
		n    int
		text string
	}{
		{counts.Unobserved, "were not observed: their observer had no CPU"},
		{r.busy, busyText(counts)},
		{counts.Excused, "without an answer are correct: their Service had no endpoints, or perhaps none, or an endpoint left while it answered"},
	} {
		if note.n > 0 {
			r.Messages.Send(pass.Message{Note: fmt.Sprintf("%d flows %s", note.n, note.text)})
		}
	}
	r.busy = 0
	r.Checker.Store(nil)
	return err
}

// busyText says why flows failed together with control flows. A machine that is too busy for a moment lets few of them
// fail.
func busyText(c traffic.Counts) string {
	if c.FailedControls > c.Controls/2 {
		return fmt.Sprintf("timed out, and so did %d of %d flows straight to an endpoint: pods do not answer without Services either", c.FailedControls, c.Controls)
	}
	return "timed out together with flows straight to an endpoint: the machine was too busy, and no rule is the cause"
}

// Close ends the stream and the pods.
func (r *Flows) Close() error {
	err := r.endTraffic()
	if r.pods != nil {
		err = errors.Join(err, r.pods.Close())
		r.pods, r.ports = nil, nil
	}
	if r.Rooms != nil {
		r.Rooms.Close()
	}
	return err
}

// Changing notifies the pods, and the stream if one runs, of a change that is about to be made.
func (r *Flows) Changing(c mirror.Change) {
	if slice, ok := c.Object.(*discoveryv1.EndpointSlice); ok && c.Op != sim.Delete && r.pods != nil {
		if err := r.pods.Listen(r.newPorts(slice)); err != nil { // before a flow can reach the endpoint
			r.Fail(err)
		}
	}
	checker := r.Checker.Load()
	if checker == nil {
		return
	}
	added, focus := checker.Changed(c.Op, c.Object, c.Due, r.Clock.Now())
	if err := r.pods.Follow(added, focus, nil); err != nil {
		r.Fail(err)
	}
}

// Visible notifies the stream, if one runs, of a change that is visible in the kernel. While rules are missing,
// none leads to a removed endpoint, and the sync that restores them may not include the change yet. Such a change is
// delivered when everything has converged.
func (r *Flows) Visible(s visible.VisibleChange) {
	checker := r.Checker.Load()
	switch {
	case checker == nil:
	case r.Faults.RulesMissing(s.Read):
		r.mu.Lock()
		r.early = append(r.early, s)
		r.mu.Unlock()
	default:
		if err := r.pods.Follow(nil, nil, checker.Visible(s.Object, s.Family, s.Read, s.Visible, s.Undone)); err != nil {
			r.Fail(err)
		}
	}
}

// Settled delivers the changes that visible held back, and ends doubts about what the kernel has.
func (r *Flows) Settled() {
	r.mu.Lock()
	early := r.early
	r.early = nil
	r.mu.Unlock()
	if checker := r.Checker.Load(); checker != nil {
		now := r.Clock.Now()
		for _, s := range early {
			checker.Visible(s.Object, s.Family, now, s.Visible, s.Undone)
		}
		checker.Settled(now)
	}
}

var flowMetrics = map[traffic.Finding]raw.Metric{
	traffic.NewFlow: raw.Flow, traffic.LongLivedPacket: raw.LongLivedFlow, traffic.RemovedEndpointServing: raw.RemovedEndpointServing, traffic.NewEndpointDelay: raw.NewEndpointDelay,
	traffic.Reachable: raw.Reachable, traffic.Unreachable: raw.Unreachable, traffic.ControlFailure: raw.ControlFailure,
}

// afterVisible are the metrics of the same findings, counted from the moment when the tables show the change.
var afterVisible = map[traffic.Finding]raw.Metric{
	traffic.Reachable: raw.ReachableAfterVisible, traffic.Unreachable: raw.UnreachableAfterVisible,
}

// methodLongLived marks records of long-lived flows.
const methodLongLived = "long-lived"

// Observed records a result of the checker.
func (r *Flows) Observed(o traffic.Observed) {
	t := o.Target
	step, end := r.stepAt(o.At), r.stepAt(o.At.Add(o.Took))
	if o.Finding == traffic.ControlFailure && fault.MayFail(r.Scenario.Steps, step, end) {
		o.Finding = traffic.NewFlow // a fault stops control flows too
		if o.LongLived {
			o.Finding = traffic.LongLivedPacket
		}
	}
	if o.Finding == traffic.ControlFailure {
		r.busy++
	}
	r.Met(&o, step, end)
	if o.Finding == traffic.LongLivedPacket && o.Outcome == traffic.Answered {
		if r.Packets[o.Number]++; r.Packets[o.Number]%recordedPackets != 1 {
			return
		}
	}
	rec := raw.Record{
		At: o.At.Sub(r.Started).Seconds(), Step: step, Family: string(t.Family), Protocol: string(t.Protocol), Outcome: o.Outcome,
		Service: ServiceText(t.Service), Target: t.Kind,
	}
	if o.LongLived && o.Finding == traffic.RemovedEndpointServing {
		rec.Method = methodLongLived
	}
	if o.Outcome == traffic.Misrouted {
		rec.Error = "answered by " + o.By.String()
	}
	r.RecordAs(rec, flowMetrics[o.Finding], o.Took.Seconds())
	if o.AfterVisible != nil {
		r.RecordAs(rec, afterVisible[o.Finding], o.AfterVisible.Seconds())
	}
}

func ServiceText(name tracker.ServicePortName) string { return name.String() }

// longLivedTargets spreads the long-lived flows over the targets of a protocol.
func longLivedTargets(targets []traffic.Target, protocol corev1.Protocol, n int) []int {
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

// sampleTargets picks Service ports spread over the dispatch positions, and the first one by name, which step scale
// changes. It adds a tenth as many node ports and external addresses, if there are any.
func (r *Flows) sampleTargets(t *scenarios.Traffic) ([]traffic.Target, error) {
	objects := r.World.Objects()
	var targets []traffic.Target
	for _, family := range r.Families {
		names := portsByAddress(objects.Services, family)
		frontends, _, err := r.Dispatch(family)
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
		n := min(len(able), max(t.Services/len(r.Families), 1))
		targets = append(targets, first)
		for i := range n {
			if pick := able[i*(len(able)-1)/max(n-1, 1)]; pick != first {
				targets = append(targets, pick)
			}
		}
		targets = append(targets, r.externalTargets(objects.Services, family, able, max(n/10, 1))...)
	}
	if len(targets) == 0 {
		return nil, errors.New("step traffic: no TCP or UDP Service has endpoints")
	}
	return targets, nil
}

// address is the protocol, address and port of a frontend.
type address struct {
	protocol corev1.Protocol
	addr     netip.AddrPort
}

// portsByAddress maps cluster IPs and ports to Service ports.
func portsByAddress(services []*corev1.Service, family corev1.IPFamily) map[address]tracker.ServicePortName {
	names := map[address]tracker.ServicePortName{}
	for _, svc := range services {
		for _, text := range svc.Spec.ClusterIPs {
			addr, ok := inet.ParseAddr(text)
			if !ok || inet.FamilyOf(addr) != family {
				continue
			}
			for i := range svc.Spec.Ports {
				names[address{svc.Spec.Ports[i].Protocol, netip.AddrPortFrom(addr, uint16(svc.Spec.Ports[i].Port))}] = PortName(svc, &svc.Spec.Ports[i])
			}
		}
	}
	return names
}

// PortName names a port of a Service.
func PortName(svc *corev1.Service, port *corev1.ServicePort) tracker.ServicePortName {
	return tracker.ServicePortName{
		NamespacedName: types.NamespacedName{Namespace: svc.Namespace, Name: svc.Name},
		PortKey:        tracker.PortKey{Name: port.Name, Protocol: port.Protocol},
	}
}

// externalTargets returns up to n node ports and n external addresses of the able Services. It skips Services with an
// external traffic policy Local.
func (r *Flows) externalTargets(services []*corev1.Service, family corev1.IPFamily, able []traffic.Target, n int) []traffic.Target {
	if r.ClusterIPsOnly {
		return nil
	}
	served := map[tracker.ServicePortName]bool{}
	for i := range able {
		served[able[i].Service] = true
	}
	node := r.NodeAddress(family)
	var nodePorts, external []traffic.Target
	for _, svc := range services {
		if svc.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal {
			continue
		}
		for k := range svc.Spec.Ports {
			port := &svc.Spec.Ports[k]
			target := traffic.Target{Service: PortName(svc, port), Family: family, Protocol: port.Protocol}
			if !served[target.Service] {
				continue
			}
			if port.NodePort > 0 && node.IsValid() && len(r.Config.NodePortAddresses) == 0 && len(nodePorts) < n {
				target.Kind, target.Addr = "node-port", netip.AddrPortFrom(node, uint16(port.NodePort))
				nodePorts = append(nodePorts, target)
			}
			for _, text := range svc.Spec.ExternalIPs {
				if addr, ok := inet.ParseAddr(text); ok && inet.FamilyOf(addr) == family && len(external) < n {
					target.Kind, target.Addr = "external-ip", netip.AddrPortFrom(addr, uint16(port.Port))
					external = append(external, target)
				}
			}
		}
	}
	return append(nodePorts, external...)
}
