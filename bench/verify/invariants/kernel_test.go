package invariants

import (
	"maps"
	"net/netip"
	"os/exec"
	"slices"
	"testing"

	"github.com/google/nftables"
	vishnetns "github.com/vishvananda/netns"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/clock"

	"synclab/bench/lab/netns"
	"synclab/bench/subject"
	"synclab/bench/verify/walk"
	"synclab/proxier"
	"synclab/proxier/config"
	"synclab/proxier/conntrack"
	"synclab/proxier/iptables"
	"synclab/proxier/kernel"
	"synclab/sim/api"
	"synclab/sim/random"
)

var bothFamilies = []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}

// play runs a proxier on a random cluster, in a separate namespace.
type play struct {
	t       *testing.T
	subject Subject
	random  *random.Cluster
	cluster *api.Cluster
	proxier *proxier.Proxier
	options proxier.Options
	planted *Sentinels
	left    *Leftover
	syncs   uint64
}

func newPlay(t *testing.T, subject Subject, seed uint64) *play {
	t.Helper()
	netns.Fresh(t)
	if subject.Iptables() {
		if _, err := iptables.FindBinary(iptables.Binary(subject.Variant, ipv4, "restore")); err != nil {
			t.Skip(err)
		}
	}
	p := &play{t: t, subject: subject, cluster: api.NewCluster(clock.RealClock{})}
	t.Cleanup(p.cluster.Stop)
	p.random = random.New(random.Options{Seed: seed, Families: bothFamilies, Services: 15})
	objects := p.random.Objects()
	p.must(p.cluster.Load(t.Context(), objects))
	var err error
	if p.planted, err = Plant(t.Context(), subject.Variant, bothFamilies, objects); err != nil {
		t.Fatal(err)
	}
	machine, err := proxier.ExamineMachine(subject.Variant)
	p.must(err)
	cfg := config.New()
	cfg.ClusterCIDR = random.RandomPods
	ips := []netip.Addr{netip.MustParseAddr(random.RandomNode4), netip.MustParseAddr(random.RandomNode6)}
	p.options = proxier.Options{
		Config: cfg, Backend: subject.Backend, Variant: subject.Variant, Layout: subject.Layout, Families: bothFamilies,
		NodeName: "node-0", NodeIPs: ips, PodCIDRs: objects.Nodes[0].Spec.PodCIDRs, Machine: machine,
		Conntrack: func(corev1.IPFamily) (conntrack.Table, error) { return conntrack.NewKernel(vishnetns.None()), nil },
	}
	p.start()
	return p
}

func (p *play) must(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

// start starts a proxier with the current cluster and the current tables.
func (p *play) start() {
	p.t.Helper()
	opts := p.options
	opts.OnSync = func(proxier.Sync) { p.syncs++ }
	var err error
	p.proxier, err = proxier.New(opts)
	p.must(err)
	p.must(p.proxier.Watch(p.t.Context(), p.cluster.NewInformers()))
	p.sync()
}

func (p *play) sync() {
	p.t.Helper()
	p.must(p.proxier.WaitSeen(p.t.Context(), p.cluster.Version(&corev1.Service{}), p.cluster.Version(&discoveryv1.EndpointSlice{})))
	p.must(p.proxier.SyncNow(p.t.Context(), ""))
}

func (p *play) next() {
	p.t.Helper()
	for _, change := range p.random.Next() {
		p.must(p.cluster.Apply(p.t.Context(), change))
	}
	p.sync()
}

// evidence gathers the current evidence.
func (p *play) evidence() *Evidence {
	p.t.Helper()
	e := &Evidence{
		Subject: p.subject, Seed: 1, Families: bothFamilies, Objects: p.random.Objects(), Options: p.options, Planted: p.planted,
		Rules: map[corev1.IPFamily]*walk.Rules{}, Flows: map[corev1.IPFamily][]conntrack.Flow{}, ForeignNft: map[corev1.IPFamily][]string{},
		LeftBefore: p.left, Syncs: p.syncs,
	}
	e.Options.Tables, e.Options.Model, e.Options.Conntrack = nil, nil, nil
	var err error
	for _, family := range bothFamilies {
		if p.subject.Iptables() {
			if e.Saved == nil {
				e.Saved = map[corev1.IPFamily]Saved{}
			}
			e.Saved[family], err = Save(p.t.Context(), p.subject.Variant, family)
			p.must(err)
			e.Rules[family], err = e.Saved[family].Compile(family)
		} else {
			if e.Nft == nil {
				e.Nft = map[corev1.IPFamily]*NftTable{}
			}
			e.Nft[family], err = ReadNft(family)
			p.must(err)
			e.Rules[family], err = walk.ReadNftables(family, nftTables[:]...)
		}
		p.must(err)
		e.Flows[family], err = Flows(p.t.Context(), family)
		p.must(err)
		e.ForeignNft[family], err = ForeignNft(family)
		p.must(err)
	}
	return e
}

// holds fails the test if an invariant is violated now.
func (p *play) holds(when string) *Evidence {
	p.t.Helper()
	e := p.evidence()
	for invariant, found := range findings(p.t, e) {
		for _, f := range found[:min(3, len(found))] {
			p.t.Errorf("%s: %s %s: %s", when, invariant, f.Service, f.Text)
		}
	}
	if p.t.Failed() {
		p.t.FailNow()
	}
	var err error
	p.left, err = e.Left(p.t.Context())
	p.must(err)
	return e
}

var inKernel = []Subject{
	known("synclab/iptables-legacy-tree"), known("synclab/iptables-nft"), known("synclab/nftables"),
}

// After partial syncs and a restart, no invariant is violated with real tables. Then another process deletes something
// while no check runs, and the checkers find it.
func TestKernelIsFoundBroken(t *testing.T) {
	if testing.Short() {
		t.Skip("-short")
	}
	const seed, changes, between = 5, 12, 6
	for _, subject := range inKernel {
		t.Run(subject.Name, func(t *testing.T) {
			p := newPlay(t, subject, seed)
			p.holds("after the first sync")
			for i := range changes {
				p.next()
				if i%between == between-1 {
					p.holds("after partial syncs")
				}
			}
			before := p.evidence()
			restarted := &Restarted{Objects: Digest(before.Objects), Saved: before.Saved, Nft: before.Nft, Flows: map[corev1.IPFamily][]conntrack.Flow{}}
			for _, family := range bothFamilies {
				restarted.Flows[family] = before.Serving(family, 0, 3)
				for _, f := range restarted.Flows[family] {
					p.must(PlantFlow(family, f))
				}
			}
			p.start()
			e := p.evidence()
			e.Restarted = restarted
			if found := findings(t, e); len(found) > 0 {
				t.Errorf("after a restart: %+v", found)
			}
			found := findings(t, p.externalWrite())
			for _, invariant := range []string{"I1", "I2"} {
				if len(found[invariant]) == 0 {
					t.Errorf("%s does not find the external deletion: %+v", invariant, found)
				}
			}
		})
	}
}

// externalWrite deletes a rule or an element of a map that packets for a Service traverse.
func (p *play) externalWrite() *Evidence {
	p.t.Helper()
	if p.subject.Iptables() {
		path, err := iptables.FindBinary(iptables.Binary(p.subject.Variant, ipv4, ""))
		p.must(err)
		chains, err := kernel.Tally(string(p.subject.Variant), ipv4, "nat")
		p.must(err)
		if chains["KUBE-SERVICES"] < 2 {
			p.t.Fatalf("this seed leaves nothing to delete, choose another: %v", chains)
		}
		args := append(iptables.LockWait(p.subject.Variant), "-t", "nat", "-D", "KUBE-SERVICES", "1")
		if out, err := exec.CommandContext(p.t.Context(), path, args...).CombinedOutput(); err != nil {
			p.t.Fatalf("%v: %s", err, out)
		}
		return p.evidence()
	}
	p.must(dropElement(ipv4))
	return p.evidence()
}

// dropElement deletes the first frontend of Synclab's table.
func dropElement(family corev1.IPFamily) error {
	table, err := ReadNft(family)
	if err != nil {
		return err
	}
	conn, err := nftables.New()
	if err != nil {
		return err
	}
	set, err := conn.GetSetByName(&nftables.Table{Name: table.Name, Family: subject.TableFamily(family)}, "frontends")
	if err != nil {
		return err
	}
	key := slices.Min(slices.Collect(maps.Keys(table.Sets["frontends"])))
	if err := conn.SetDeleteElements(set, []nftables.SetElement{{Key: []byte(key)}}); err != nil {
		return err
	}
	return conn.Flush()
}
