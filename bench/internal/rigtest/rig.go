package rigtest

import (
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/clock"

	"synclab/bench/lab/netns"
	"synclab/bench/subject"
	"synclab/proxier"
	"synclab/proxier/config"
	"synclab/proxier/iptables"
	"synclab/scenarios"
	"synclab/sim"
	"synclab/sim/api"
	"synclab/sim/world"
)

// The worlds of rigs: endpoints of every Service, and the seed.
const (
	Endpoints = 10
	Seed      = 1
)

// World makes a world of a shape, with Endpoints for every Service.
func World(tb testing.TB, shape scenarios.Shape) *world.World {
	tb.Helper()
	shape.Endpoints.Count = Endpoints
	world, err := world.NewWorld(shape, Seed)
	if err != nil {
		tb.Fatal(err)
	}
	if _, err := world.Create(scenarios.Create{}); err != nil {
		tb.Fatal(err)
	}
	return world
}

// Rig is a proxier whose handlers have all objects of a world. It syncs when Sync is called.
type Rig struct {
	World   *world.World
	Cluster *api.Cluster
	Proxier *proxier.Proxier
	Last    proxier.Sync
	trace   sim.Trace // changes of the world that the cluster has not seen yet
}

// New makes a subject's proxier. It uses the given tables, or those of the goroutine's namespace.
func New(tb testing.TB, world *world.World, about subject.Spec, tables iptables.Tables) *Rig {
	tb.Helper()
	r := &Rig{World: world, Cluster: api.NewCluster(clock.RealClock{})}
	tb.Cleanup(r.Cluster.Stop)
	objects := world.Objects()
	opts := proxier.Options{
		Config: config.New(), Backend: about.Backend, Variant: about.Variant, Layout: about.Layout, NodeName: objects.Nodes[0].Name,
		Machine: proxier.Machine{RandomFully: true}, OnSync: func(s proxier.Sync) { r.Last = s },
	}
	opts.Config.ClusterCIDR = "10.128.0.0/9" // range of the pods
	var err error
	if tables != nil {
		opts.Tables = func(corev1.IPFamily) (iptables.Tables, error) { return tables, nil }
	} else if opts.Machine, err = proxier.ExamineMachine(about.Variant); err != nil { // as a run does: rules depend on it
		tb.Fatal(err)
	}
	if r.Proxier, err = proxier.New(opts); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := r.Proxier.Close(); err != nil {
			tb.Error(err)
		}
	})
	if err := r.Cluster.Load(tb.Context(), objects); err != nil {
		tb.Fatal(err)
	}
	if err := r.Proxier.Watch(tb.Context(), r.Cluster.Informers()); err != nil {
		tb.Fatal(err)
	}
	return r
}

// Sync syncs in the calling goroutine, and thus in its namespace.
func (r *Rig) Sync(tb testing.TB) {
	if err := r.Proxier.SyncNow(tb.Context(), ""); err != nil {
		tb.Fatal(err)
	}
}

// plannedAhead is the number of changes that a Rig plans at once.
const plannedAhead = 100

// Change applies the next changes that are due together, and waits until the proxier's handlers have them. kind is as in
// scenarios.Churn.
func (r *Rig) Change(tb testing.TB, kind string) {
	if len(r.trace) == 0 {
		trace, err := r.World.Churn(scenarios.Churn{Rate: 1, Events: plannedAhead, Kind: kind})
		if err != nil {
			tb.Fatal(err)
		}
		r.trace = trace
	}
	for due := r.trace[0].Due; len(r.trace) > 0 && r.trace[0].Due == due; r.trace = r.trace[1:] {
		if err := r.Cluster.Apply(tb.Context(), r.trace[0]); err != nil {
			tb.Fatal(err)
		}
	}
	services, slices := r.Cluster.Version(&corev1.Service{}), r.Cluster.Version(&discoveryv1.EndpointSlice{})
	if err := r.Proxier.WaitSeen(tb.Context(), services, slices); err != nil {
		tb.Fatal(err)
	}
}

// Run runs a command and returns its output. Without the command, the test is skipped.
func Run(t testing.TB, stdin string, name string, args ...string) string {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		t.Skip(err)
	}
	cmd := exec.Command(name, args...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, out)
	}
	return string(out)
}

// Network gives the test a namespace with a node's addresses and routes.
func Network(t testing.TB) {
	t.Helper()
	netns.Fresh(t)
	lab, err := netns.Enter()
	if err != nil {
		t.Fatal(err)
	}
	if err := lab.Connect(netns.Topology{
		Node: []netip.Addr{netip.MustParseAddr("172.18.0.2"), netip.MustParseAddr("fd00:172:18::2")},
		Sink: []netip.Prefix{
			netip.MustParsePrefix("10.96.0.0/12"), netip.MustParsePrefix("10.128.0.0/9"),
			netip.MustParsePrefix("fd00:10:96::/108"), netip.MustParsePrefix("fd00:10:128::/64"),
		},
	}); err != nil {
		t.Fatal(err)
	}
}
