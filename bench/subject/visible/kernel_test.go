package visible

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"synclab/bench/lab/netns"
	"synclab/bench/mirror"
	"synclab/internal/seedstest"
	"synclab/proxier"
	"synclab/proxier/config"
	"synclab/proxier/iptables"
	"synclab/proxier/kernel"
	"synclab/proxier/plan"
	"synclab/scenarios"
	"synclab/sim"
	"synclab/sim/api"
	"synclab/sim/random"
	"synclab/sim/world"
)

// play is a cluster, a subject, and a Watcher that sees only the kernel.
type play struct {
	*Watcher
	t       *testing.T
	cluster *api.Cluster
	sights  chan VisibleChange
	// awaited are the expected changes by due time; due times are unique.
	awaited map[time.Time]map[corev1.IPFamily]bool
	last    time.Time
	running context.Context // ends when the subject exits
}

// waitLimit is for failing tests: passing tests need less than a tenth of it.
const waitLimit = time.Minute

var bothFamilies = []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}

// newPlay loads a cluster in a fresh namespace, without a subject.
func newPlay(t *testing.T, objects *sim.Objects, reader string) *play {
	t.Helper()
	netns.Fresh(t)
	p := &play{
		t: t, running: t.Context(), cluster: api.NewCluster(clock.RealClock{}), sights: make(chan VisibleChange, 1<<16),
		awaited: map[time.Time]map[corev1.IPFamily]bool{},
	}
	t.Cleanup(p.cluster.Stop)
	node := objects.Nodes[0]
	var err error
	p.Watcher, err = New(Options{
		Families: bothFamilies, RulesetReader: reader, Seen: func(s VisibleChange) { p.sights <- s },
		Node: plan.Node{Name: node.Name, Zone: node.Labels[corev1.LabelTopologyZone]},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Watcher.Close)
	for _, o := range objects.Services {
		p.Changed(mirror.Change{Op: sim.Add, Object: o, Due: time.Time{}})
	}
	for _, o := range objects.Slices {
		p.Changed(mirror.Change{Op: sim.Add, Object: o, Due: time.Time{}})
	}
	if err := p.cluster.Load(t.Context(), objects); err != nil {
		t.Fatal(err)
	}
	return p
}

// ruleWriter is a backend and layout of Synclab's proxier.
type ruleWriter struct {
	name    string
	reader  string
	backend proxier.BackendKind
	variant iptables.Variant
	layout  iptables.Layout
}

var ruleWriters = []ruleWriter{
	{name: "legacy", reader: IptablesLegacy, variant: iptables.Legacy},
	{name: "nft", reader: IptablesNft, variant: iptables.Nft},
	{name: "legacy-tree", reader: IptablesLegacy, variant: iptables.Legacy, layout: iptables.Tree},
	{name: "nft-tree", reader: IptablesNft, variant: iptables.Nft, layout: iptables.Tree},
	{name: "nftables", reader: SynclabNftables, backend: proxier.Nftables},
}

// inProcess is Synclab's proxier in this goroutine's namespace. It syncs on request.
type inProcess struct {
	*play
	proxier *proxier.Proxier
}

func newInProcess(p *play, rules ruleWriter) inProcess {
	p.t.Helper()
	variant := rules.variant
	limit, err := kernel.SendLimit()
	if err != nil {
		p.t.Fatal(err)
	}
	if variant == iptables.Nft && limit > 0 { // some random clusters exceed the limit
		p.t.Skipf("an iptables-nft-restore of this user may take only %d bytes of netlink messages", limit)
	}
	for _, family := range bothFamilies {
		if _, err := exec.LookPath(iptables.Binary(variant, family, "restore")); variant != "" && err != nil {
			p.t.Skip(err)
		}
	}
	own, err := proxier.New(proxier.Options{
		Config: config.New(), Backend: rules.backend, Variant: variant, Layout: rules.layout, Families: bothFamilies, NodeName: p.opts.Node.Name,
	})
	if err != nil {
		p.t.Fatal(err)
	}
	if err := own.Watch(p.t.Context(), p.cluster.Informers()); err != nil {
		p.t.Fatal(err)
	}
	return inProcess{p, own}
}

// wait waits until all changes are visible.
func (p *play) wait() {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.running, waitLimit)
	defer cancel()
	if err := p.Wait(ctx); err != nil {
		p.t.Fatal(err)
	}
}

// change makes one change, scheduled for now.
func (p *play) change(c sim.Change) {
	p.t.Helper()
	due := time.Now()
	if !due.After(p.last) {
		due = p.last.Add(1)
	}
	p.last = due
	if p.Changed(mirror.Change{Op: c.Op, Object: c.Object, Due: due}) {
		p.awaited[due] = map[corev1.IPFamily]bool{}
	}
	if err := p.cluster.Apply(p.t.Context(), c); err != nil {
		p.t.Fatal(err)
	}
}

// sync makes the proxier sync all changes, and waits until they are visible.
func (p inProcess) sync() {
	p.t.Helper()
	ctx := p.t.Context()
	if err := p.proxier.WaitSeen(ctx, p.cluster.Version(&corev1.Service{}), p.cluster.Version(&discoveryv1.EndpointSlice{})); err != nil {
		p.t.Fatal(err)
	}
	if err := p.proxier.SyncNow(ctx, ""); err != nil {
		p.t.Fatal(err)
	}
	p.ToolEnded(time.Now())
	p.wait()
}

// readable checks that no rule of any port is unrecognised.
func (p *play) readable() {
	p.t.Helper()
	err := p.do(func() {
		look, err := p.reader.Look()
		if err != nil {
			p.t.Error(err)
			return
		}
		defer look.Close()
		for key := range p.ports {
			if rule, err := look.Unrecognised(key.family, key.ServicePortName); rule != "" || err != nil {
				p.t.Errorf("%s %s: unrecognised %s, %v", key.family, key.ServicePortName, rule, err)
			}
		}
	})
	if err != nil {
		p.t.Error(err)
	}
}

// check compares the sights so far with the awaited changes: one for each change and family, not before the change was
// made.
func (p *play) check() {
	p.t.Helper()
	p.readable()
	for {
		select {
		case s := <-p.sights:
			families, ok := p.awaited[s.Due]
			switch {
			case !ok:
				p.t.Errorf("%+v: not awaited", s)
			case families[s.Family]:
				p.t.Errorf("%+v: twice", s)
			case s.Visible.Before(s.Due):
				p.t.Errorf("%+v: visible before it was made", s)
			default:
				families[s.Family] = true
			}
			continue
		default:
		}
		break
	}
	for due, families := range p.awaited {
		if len(families) == 0 {
			p.t.Errorf("the change of %v was not reported", due)
		}
	}
}

var mixed = scenarios.Shape{
	Services: 40, Nodes: 4, Zones: 2, Ports: 2,
	Endpoints: scenarios.Endpoints{Distribution: "uniform", Min: 0, Max: 6},
	Types:     map[string]float64{"NodePort": 0.2, "LoadBalancer": 0.2, "Headless": 0.05, "ExternalName": 0.05},
	Protocols: map[string]float64{"UDP": 0.3}, Families: []string{"IPv4", "IPv6"},
	ExternalIPs: 0.1, SourceRanges: 0.5, Affinity: 0.3, InternalLocal: 0.2, ExternalLocal: 0.5,
	WithoutEndpoint: 0.1, NotReady: 0.1, Terminating: 0.1, TopologyHints: 0.3,
}

func newWorld(t *testing.T, shape scenarios.Shape, seed uint64) *world.World {
	t.Helper()
	world, err := world.NewWorld(shape, seed)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := world.Create(scenarios.Create{}); err != nil {
		t.Fatal(err)
	}
	return world
}

// Every change with an effect becomes visible exactly once a family, even if syncs coalesce changes.
func TestRandomChurn(t *testing.T) {
	seed := seedstest.Of(t)
	all := slices.Clone(ruleWriters)
	for _, x := range ruleWriters { // also with detection of the reader
		x.name, x.reader = x.name+"-unknown", ""
		all = append(all, x)
	}
	for _, x := range all {
		t.Run(x.name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 1))
			world := newWorld(t, mixed, seed)
			p := newInProcess(newPlay(t, world.Objects(), x.reader), x)
			p.sync()
			p.check()
			const events = 100
			trace, err := world.Churn(scenarios.Churn{Rate: 1, Events: events, Kind: "mixed"})
			if err != nil {
				t.Fatal(err)
			}
			for i, c := range trace {
				p.change(c)
				if i == len(trace)-1 || rng.IntN(4) == 0 {
					p.sync()
				}
			}
			p.check()
			if len(p.awaited) < events/2 {
				t.Errorf("only %d of %d changes were awaited", len(p.awaited), len(trace))
			}
			p.flush(x)
		})
	}
}

// The same for random clusters with unusual objects and changes.
func TestRandomClusters(t *testing.T) {
	seed := seedstest.Of(t)
	for i, x := range slices.Concat(ruleWriters, ruleWriters) {
		t.Run(x.name, func(t *testing.T) {
			cluster := random.New(random.Options{Seed: seed + uint64(i)})
			p := newInProcess(newPlay(t, cluster.Objects(), x.reader), x)
			p.sync()
			for range 10 {
				for _, c := range cluster.Next() {
					if _, node := c.Object.(*corev1.Node); !node { // no wait for zones
						p.change(c)
					}
				}
				p.sync()
			}
			p.check()
		})
	}
}

// If an older Service has an address, the younger Service's endpoints behind only this address are not awaited. They
// are awaited after the older Service is deleted.
func TestSharedAddress(t *testing.T) {
	for _, x := range ruleWriters {
		t.Run(x.name, func(t *testing.T) {
			objects := &sim.Objects{Nodes: []*corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "node-0"}}}}
			for i, name := range []string{"older", "younger"} {
				svc := service(name)
				svc.CreationTimestamp = metav1.NewTime(epoch.Add(time.Duration(i) * time.Hour))
				svc.Spec.ClusterIP = fmt.Sprintf("10.96.0.%d", i+1)
				svc.Spec.ClusterIPs, svc.Spec.ExternalIPs = []string{svc.Spec.ClusterIP}, []string{"203.0.113.6"}
				svc.Spec.Type, svc.Spec.ExternalTrafficPolicy = corev1.ServiceTypeClusterIP, corev1.ServiceExternalTrafficPolicyLocal
				objects.Services = append(objects.Services, svc)
				endpoints := slice(name, strconv.Itoa(10+i))
				endpoints.Endpoints[0].NodeName = ptr.To("node-0")
				objects.Slices = append(objects.Slices, endpoints)
			}
			p := newInProcess(newPlay(t, objects, x.reader), x)
			p.sync()
			p.change(sim.Change{Op: sim.Delete, Object: objects.Services[0]})
			p.Recheck()
			soon, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			if err := p.Wait(soon); err == nil || x.reader == SynclabNftables && !strings.Contains(err.Error(), "ns/younger:http (TCP, IPv4): kernel has 0 of 1 local endpoints") {
				t.Errorf("before the sync: %v", err)
			}
			p.sync()
			p.Recheck()
			p.wait()
			p.check()
		})
	}
}

// flush: after another process flushed the table, all ports are pending until the proxier repairs the table.
func (p inProcess) flush(rules ruleWriter) {
	p.t.Helper()
	for _, family := range p.opts.Families {
		command := []string{iptables.Binary(rules.variant, family, ""), "-t", "nat", "-F"}
		if rules.backend == proxier.Nftables {
			command = []string{"nft", "flush", "ruleset"}
		}
		if out, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
			p.t.Fatalf("%v\n%s", err, out)
		}
	}
	p.Recheck()
	if pending := p.Pending(); pending == 0 {
		p.t.Error("nothing is pending after a flush")
	}
	if err := p.proxier.SyncNow(p.t.Context(), "test"); err != nil {
		p.t.Fatal(err)
	}
	if err := p.Quiet(p.t.Context(), 2*p.opts.Period); err != nil {
		p.t.Error(err)
	}
	in, err := p.Installed(p.t.Context())
	v4, v6 := in[corev1.IPv4Protocol], in[corev1.IPv6Protocol]
	if rules.backend == proxier.Nftables {
		v4.Rules["nat"], v6.Chains = v4.Elements, v6.Elements
	}
	if err != nil || v4.Rules["nat"] < 100 || v6.Chains < 50 {
		p.t.Errorf("installed %+v, %v", in, err)
	}
	p.check()
}
