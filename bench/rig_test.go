package bench

import (
	"context"
	"net/netip"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/clock"

	"synclab/proxier"
	"synclab/proxier/config"
	"synclab/proxier/iptables"
	"synclab/scenarios"
	"synclab/sim"
)

// scope is a test's or benchmark's TB whose clean-up comes earlier: with close.
type scope struct {
	testing.TB
	cleanups []func()
}

func (s *scope) Cleanup(f func()) { s.cleanups = append(s.cleanups, f) }

func (s *scope) close() {
	for i := len(s.cleanups) - 1; i >= 0; i-- {
		s.cleanups[i]()
	}
	s.cleanups = nil
}

// benchWorld is a cluster of a shape, with benchEndpoints for every Service.
func benchWorld(tb testing.TB, shape scenarios.Shape) *sim.World {
	tb.Helper()
	shape.Endpoints.Count = benchEndpoints
	world, err := sim.NewWorld(shape, benchSeed)
	if err != nil {
		tb.Fatal(err)
	}
	if _, err := world.Create(scenarios.Create{}); err != nil {
		tb.Fatal(err)
	}
	return world
}

// rig is a proxier whose handlers have everything of a world, and that syncs when it is told to.
type rig struct {
	world   *sim.World
	cluster *sim.Cluster
	proxier *proxier.Proxier
	trace   sim.Trace // changes of the world that the cluster has not seen yet
	last    proxier.Sync
}

// newRig makes a subject's proxier. It works on the tables of the namespace that the goroutine is in, or on the given ones.
func newRig(tb testing.TB, world *sim.World, about Subject, tables iptables.Tables) *rig {
	tb.Helper()
	r := &rig{world: world, cluster: sim.NewCluster(clock.RealClock{})}
	tb.Cleanup(r.cluster.Stop)
	objects := world.Objects()
	opts := proxier.Options{
		Config: config.New(), Backend: about.Backend, Variant: about.Variant, Layout: about.Layout, NodeName: nodeName(objects),
		Machine: proxier.Machine{RandomFully: true}, OnSync: func(s proxier.Sync) { r.last = s },
	}
	opts.Config.ClusterCIDR = "10.128.0.0/9" // the pods'
	if tables != nil {
		opts.Tables = func(corev1.IPFamily) (iptables.Tables, error) { return tables, nil }
	}
	var err error
	if r.proxier, err = proxier.New(opts); err != nil {
		tb.Fatal(err)
	}
	if err := r.cluster.Load(tb.Context(), objects); err != nil {
		tb.Fatal(err)
	}
	if err := r.proxier.Watch(tb.Context(), r.cluster.Informers()); err != nil {
		tb.Fatal(err)
	}
	return r
}

// sync syncs in the calling goroutine, and so in its namespace.
func (r *rig) sync(tb testing.TB) {
	if err := r.proxier.SyncNow(tb.Context()); err != nil {
		tb.Fatal(err)
	}
}

// plannedAhead is how many changes a rig plans at once.
const plannedAhead = 100

// change makes what is due together next, and waits until the proxier's handlers know. kind as in scenarios.Churn.
func (r *rig) change(tb testing.TB, kind string) {
	if len(r.trace) == 0 {
		trace, err := r.world.Churn(scenarios.Churn{Rate: 1, Events: plannedAhead, Kind: kind})
		if err != nil {
			tb.Fatal(err)
		}
		r.trace = trace
	}
	for due := r.trace[0].Due; len(r.trace) > 0 && r.trace[0].Due == due; r.trace = r.trace[1:] {
		if err := r.cluster.Apply(tb.Context(), r.trace[0]); err != nil {
			tb.Fatal(err)
		}
	}
	services, slices := r.cluster.Version(&corev1.Service{}), r.cluster.Version(&discoveryv1.EndpointSlice{})
	if err := r.proxier.WaitSeen(tb.Context(), services, slices); err != nil {
		tb.Fatal(err)
	}
}

// missedAddr is an address in the Services' range that none of them has: the range's last one.
func missedAddr(world *sim.World) netip.AddrPort {
	prefix := netip.MustParsePrefix("10.96.0.0/12")
	addr := netip.MustParseAddr("10.111.255.254")
	for _, svc := range world.Objects().Services {
		if svc.Spec.ClusterIP == addr.String() || !prefix.Contains(netip.MustParseAddr(svc.Spec.ClusterIP)) {
			panic("the generator took " + svc.Spec.ClusterIP + ": choose another address to miss")
		}
	}
	return netip.AddrPortFrom(addr, 80)
}

// phases are the sums of what syncs report.
type phases struct {
	syncs, bytes, rules        int
	plan, encode, user, system time.Duration
}

func (p *phases) add(s proxier.Sync) {
	p.syncs++
	p.plan += s.Plan
	p.encode += s.Encode
	for _, run := range s.Runs {
		p.user += run.User
		p.system += run.System
		p.bytes += run.Bytes
	}
	p.rules = 0 // of the last one: what is installed then
	for _, count := range s.Installed {
		p.rules += count.Rules
	}
}

func (p *phases) report(b *testing.B) {
	perOp := func(total float64, unit string) { b.ReportMetric(total/float64(p.syncs), unit) }
	perOp(float64(p.plan), "plan-ns/op")
	perOp(float64(p.encode), "encode-ns/op")
	perOp(float64(p.user), "tool-user-ns/op")
	perOp(float64(p.system), "tool-sys-ns/op")
	perOp(float64(p.bytes), "restore-B/op")
	b.ReportMetric(float64(p.rules), "rules")
}

// voidTables takes every payload and forgets it.
type voidTables struct{}

func (voidTables) Restore(_ context.Context, p *iptables.Payload) (iptables.Run, error) {
	return iptables.Run{Tool: "void", Bytes: p.Size()}, nil
}
func (voidTables) EnsureJumps(context.Context) error                 { return nil }
func (voidTables) Rules(iptables.Table, ...string) ([]string, error) { return nil, nil }
func (voidTables) Leads() (iptables.Leads, error) {
	return iptables.NewModel(corev1.IPv4Protocol).Leads()
}
func (voidTables) Chains(iptables.Table) ([]string, error) { return nil, nil }
func (voidTables) Stamp() (iptables.Stamp, error)          { return iptables.Stamp{}, nil }
func (voidTables) Others(map[iptables.Table]iptables.Count) (iptables.Stamp, error) {
	return iptables.Stamp{}, nil
}
func (voidTables) Drift(context.Context, iptables.Expected) (string, error) { return "", nil }
