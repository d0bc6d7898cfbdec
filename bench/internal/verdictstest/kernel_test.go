package verdictstest

import (
	"errors"
	"io/fs"
	"maps"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/clock"

	"synclab/bench/lab/netns"
	"synclab/bench/verify/conform"
	"synclab/bench/verify/walk"
	"synclab/internal/seedstest"
	"synclab/proxier"
	"synclab/proxier/config"
	"synclab/proxier/iptables"
	"synclab/sim"
	"synclab/sim/api"
	"synclab/sim/random"
)

// The rulesets that are compared with real packets.
var installs = []struct {
	name    string
	backend proxier.BackendKind
	variant iptables.Variant
	layout  iptables.Layout
}{
	{"iptables-legacy", proxier.Iptables, iptables.Legacy, iptables.Classic},
	{"iptables-nft", proxier.Iptables, iptables.Nft, iptables.Classic},
	{"iptables-legacy-tree", proxier.Iptables, iptables.Legacy, iptables.Tree},
	{"iptables-nft-tree", proxier.Iptables, iptables.Nft, iptables.Tree},
	{"nftables", proxier.Nftables, "", ""},
}

// The evaluator predicts the destination of real packets, the rules that they match, and the endpoints' client
// affinity.
func TestKernelAgrees(t *testing.T) {
	if testing.Short() {
		t.Skip("-short")
	}
	const sample = 75
	for _, x := range installs {
		t.Run(x.name, func(t *testing.T) {
			counted := x.backend != proxier.Nftables
			if counted {
				if variants, err := conform.Variants(); err != nil || !slices.Contains(variants, x.variant) {
					t.Skipf("iptables-%s: %v", x.variant, err)
				}
			}
			seed := seedstest.Of(t)
			s := kernelState(x.variant, seed)
			world, err := s.World()
			if err != nil {
				t.Fatal(err)
			}
			w := newWire(t, world)
			node, err := s.node()
			w.must(err)
			s.Machine, err = proxier.ExamineMachine(x.variant)
			w.must(err)
			o := s.Setting.Options(node, s.Machine)
			o.Families = both[:1]
			o.Backend, o.Layout = x.backend, x.layout
			w.must(install(t, o, s.Objects))
			k := &installed{wire: w, rng: rand.New(rand.NewPCG(seed, 3)), counted: counted, variant: x.variant}
			k.read()
			kinds := map[walk.Kind]int{}
			hairpins := 0
			for _, p := range k.sample(s, seed, sample) {
				got := k.try(&p)
				kinds[got.Kind]++
				if got.To.Addr() == p.Source.Addr() && p.Input != "" {
					hairpins++
				}
			}
			t.Logf("%d packets passed, %d rejected, %d dropped, %d went back to their source; %d matched the rules counted",
				kinds[walk.Pass], kinds[walk.Reject], kinds[walk.Drop], hairpins, k.matched)
			// Some random clusters lack a kind of packet; the cluster of the default seed has all kinds.
			if seed == 1 && (len(kinds) < 3 || hairpins == 0 || k.counted && k.matched == 0) {
				t.Errorf("only %v, %d counted: the sample is too small", kinds, k.matched)
			}
		})
	}
}

// kernelState returns a random cluster with packets that the namespace can carry.
func kernelState(variant iptables.Variant, seed uint64) *State {
	cfg := config.New()
	cfg.ClusterCIDR = random.RandomPods
	random := random.New(random.Options{Seed: seed, Families: both[:1], Services: 40})
	return &State{
		Setting: conform.Setting{Variant: variant, Families: both[:1], Config: cfg}, Node: "node-0", Objects: random.Objects(),
	}
}

// install writes the rules for the objects into this goroutine's namespace.
func install(t *testing.T, o proxier.Options, objects *sim.Objects) error {
	cluster := api.NewCluster(clock.RealClock{})
	t.Cleanup(cluster.Stop)
	if err := cluster.Load(t.Context(), objects); err != nil {
		return err
	}
	p, err := proxier.New(o)
	if err != nil {
		return err
	}
	if err := p.Watch(t.Context(), cluster.NewInformers()); err != nil {
		return err
	}
	if err := p.WaitSeen(t.Context(), cluster.Version(&corev1.Service{}), cluster.Version(&discoveryv1.EndpointSlice{})); err != nil {
		return err
	}
	return p.SyncNow(t.Context(), "")
}

// installed has the rules in the kernel, and an evaluator that was loaded from them.
type installed struct {
	*wire
	rng     *rand.Rand
	counted bool // its rules have counters
	variant iptables.Variant
	walker  *walk.Walker
	matched int // packets with confirmed matching rules
}

func (k *installed) read() {
	k.t.Helper()
	var rules *walk.Rules
	var err error
	if k.counted {
		rules, err = walk.ParseIptables(both[0], []byte(k.save()))
	} else {
		rules, err = walk.ReadNftables(both[0], "synclab", "synclab-2")
	}
	k.must(err)
	k.walker = walk.New(rules, k.world)
}

// save returns the output of iptables-save with counters.
func (k *installed) save() string {
	k.t.Helper()
	path, err := iptables.FindBinary(iptables.Binary(k.variant, both[0], "save"))
	k.must(err)
	out, err := exec.Command(path, "-c").Output()
	k.must(err)
	return string(out)
}

// counters returns the number of packets that each rule matched.
func (k *installed) counters() map[walk.RuleAt]int {
	k.t.Helper()
	found, numbers, table := map[walk.RuleAt]int{}, map[[2]string]int{}, ""
	for line := range strings.Lines(k.save()) {
		switch line = strings.TrimSpace(line); {
		case strings.HasPrefix(line, "*"):
			table = line[1:]
		case strings.HasPrefix(line, "["):
			counter, rule, _ := strings.Cut(line[1:], "] ")
			packets, _, _ := strings.Cut(counter, ":")
			chain := strings.Fields(rule)[1]
			at := walk.RuleAt{Table: table, Chain: chain, Number: numbers[[2]string{table, chain}]}
			numbers[[2]string{table, chain}]++
			n, err := strconv.Atoi(packets)
			k.must(err)
			found[at] = n
		}
	}
	return found
}

// onlyNew reports whether a chain sees only the first packets of flows. Answers and errors traverse the other chains
// too.
func onlyNew(at walk.RuleAt) bool {
	switch at.Chain {
	case "KUBE-SERVICES", "KUBE-EXTERNAL-SERVICES", "KUBE-PROXY-FIREWALL":
		return true
	}
	return at.Table == "nat" || strings.HasPrefix(at.Chain, "KUBE-TREE-")
}

// confirm compares the increased counters with the rules that match on one of the packet paths.
func (k *installed) confirm(p *walk.Packet, before map[walk.RuleAt]int, ways []walk.PacketPath) {
	k.t.Helper()
	rose := k.counters()
	for at := range rose {
		if rose[at] -= before[at]; rose[at] == 0 || !onlyNew(at) {
			delete(rose, at)
		}
	}
	others, err := k.walker.Paths(k.fence(p))
	k.must(err)
	var wants []map[walk.RuleAt]int
	for _, way := range ways {
		want := map[walk.RuleAt]int{}
		for _, at := range slices.Concat(way.Matched, others[0].Matched) {
			if onlyNew(at) {
				want[at]++
			}
		}
		if maps.Equal(rose, want) {
			k.matched++
			return
		}
		wants = append(wants, want)
	}
	k.t.Errorf("%s: counters rose\n%v\nwant\n%v", p, rose, wants)
}

// forget clears the rules' client affinity.
func (k *installed) forget() {
	k.t.Helper()
	if !k.counted {
		for _, table := range []string{"synclab", "synclab-2"} {
			_ = exec.Command("nft", "flush", "map", "ip", table, "affinity").Run() // one of the tables exists
		}
		return
	}
	const dir = "/proc/thread-self/net/xt_recent"
	lists, err := os.ReadDir(dir)
	k.must(err)
	for _, list := range lists {
		err := os.WriteFile(dir+"/"+list.Name(), []byte("/"), 0o644)
		if errors.Is(err, fs.ErrPermission) {
			k.t.Skip("only root can write the lists of xt_recent: cannot clear client affinity")
		}
		k.must(err)
	}
}

// sample returns random packets that the namespace can carry, at most a fifth of n of each kind.
func (k *installed) sample(s *State, seed uint64, n int) []walk.Packet {
	k.t.Helper()
	all, err := s.Packets(both[0], seed)
	k.must(err)
	all = slices.DeleteFunc(all, func(p walk.Packet) bool { return !k.carries(&p) })
	k.rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	byKind := map[string][]walk.Packet{}
	for i := range all {
		p := &all[i]
		if p.Input != "" {
			p.Input = netns.NodeDevice // the only input device here
		}
		v, err := k.walker.Walk(p)
		k.must(err)
		kind := v.Outcomes[0].Kind.String()
		if untouched(v) {
			kind = "untouched"
		} else if p.After != nil && len(v.Outcomes) == 1 {
			kind = "remembered"
		} else if slices.ContainsFunc(v.Outcomes, func(o walk.Outcome) bool { return o.To.Addr() == p.Source.Addr() }) {
			kind = "hairpin"
		}
		byKind[kind] = append(byKind[kind], *p)
	}
	var chosen []walk.Packet
	for _, kind := range []string{"pass", "reject", "drop", "untouched", "remembered", "hairpin"} {
		chosen = append(chosen, byKind[kind][:min(n/5, len(byKind[kind]))]...)
	}
	return chosen
}

// carries reports whether the namespace can carry a packet and show its outcome.
func (k *installed) carries(p *walk.Packet) bool {
	inside := func(a netip.Addr) bool {
		return slices.ContainsFunc(everywhere, func(text string) bool {
			prefix := netip.MustParsePrefix(text)
			return prefix.Contains(a) && prefix.Addr() != a
		})
	}
	from, to := p.Source.Addr(), p.Destination.Addr()
	switch {
	case p.Protocol == walk.SCTP, p.Destination.Port() == 0: // the tests send no such packets
		return false
	case p.After != nil && p.After.Via.IsValid():
		return false // one such packet is enough
	case !inside(to) && !to.IsLoopback() || !inside(from) && p.Input != "":
		return false
	case p.Input != "" && (k.world.IsLocal(from) || from.IsLoopback()):
		return false // the kernel rejects packets from its own addresses
	}
	v, err := k.walker.Walk(p)
	k.must(err)
	switch local := k.world.IsLocal(to); {
	case local && p.Protocol == walk.TCP && untouched(v):
		return false // no listener: the RST also removes the conntrack entry
	case local && p.Input == "":
		// INPUT rejects the packet only after its entry was made, and a closed UDP port sends an ICMP error anyway.
		return p.Protocol == walk.TCP && v.Outcomes[0].Kind != walk.Drop
	}
	return true
}

// try sends the client's earlier packet and the packet, and compares the outcome.
func (k *installed) try(p *walk.Packet) walk.Outcome {
	k.t.Helper()
	if p.After != nil {
		earlier := *p
		earlier.After, earlier.Source = nil, netip.AddrPortFrom(p.Source.Addr(), p.Source.Port()-1)
		p.After = &walk.After{Endpoint: k.verdict(&earlier).To} // the endpoint that the kernel chose
	}
	defer k.forget()
	var before map[walk.RuleAt]int
	if k.counted {
		before = k.counters()
	}
	got := k.verdict(p)
	ways, err := k.walker.Paths(p)
	k.must(err)
	v, err := k.walker.Walk(p)
	k.must(err)
	is := func(o walk.Outcome) bool {
		return o.Kind == got.Kind && o.To == got.To && (got.Kind != walk.Pass || o.Masquerade == got.Masquerade || k.world.IsLocal(p.Source.Addr()))
	}
	if !slices.ContainsFunc(v.Outcomes, is) {
		k.t.Errorf("%s: kernel %s, evaluator %s", p, got, v)
		return got
	}
	if k.counted {
		k.confirm(p, before, slices.DeleteFunc(ways, func(w walk.PacketPath) bool { return !is(w.Outcome) }))
	}
	return got
}
