package proxier

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"synclab/bench/lab/netns"
	"synclab/bench/verify/walk"
	"synclab/internal/seedstest"
	"synclab/proxier/iptables"
)

// treeServices is the number of Services in random clusters of layout tree: enough for tree chains to come and go.
const treeServices = 120

var families = []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}

func newTreeCluster(seed uint64, family corev1.IPFamily) *randomCluster {
	c := newRandomCluster(seed, family)
	c.size = treeServices
	return c
}

func treeLayout(o *Options) { o.Layout = iptables.Tree }

// freshLayout returns the tables after a full sync of the same objects on empty tables.
func freshLayout(t testing.TB, c *randomCluster, layout iptables.Layout) string {
	t.Helper()
	return freshForm(t, c, form{layout, true})
}

func freshForm(t testing.TB, c *randomCluster, f form) string {
	t.Helper()
	model := iptables.NewModel(c.family)
	e := testEngine(t, c.family, model, f.apply)
	c.tell(e)
	if err := e.sync(context.Background()); err != nil {
		t.Fatal(err)
	}
	return saved(t, model)
}

// After any events, some of them in failed syncs, the trees are those that a fresh start would write.
func TestTreePartialEqualsFull(t *testing.T) {
	if testing.Short() {
		t.Skip("-short")
	}
	for _, family := range families {
		t.Run(string(family), func(t *testing.T) {
			c := newTreeCluster(seedstest.Of(t), family)
			model := iptables.NewModel(family)
			e := testEngine(t, family, model, treeLayout)
			for n := range min(1600, *eventsFlag) {
				c.step(e)
				if n%5 != 0 {
					continue
				}
				if model.Fail = nil; n%35 == 0 {
					model.Fail = func(*iptables.Payload) error { return errors.New("the tool was killed") }
				}
				if err := e.sync(t.Context()); err != nil && model.Fail == nil {
					t.Fatalf("event %d: %v", n, err)
				}
				if n%200 == 195 {
					model.Fail = nil
					if err := e.sync(t.Context()); err != nil {
						t.Fatal(err)
					}
					if diff := cmp.Diff(strings.Split(freshLayout(t, c, iptables.Tree), "\n"), strings.Split(saved(t, model), "\n")); diff != "" {
						t.Fatalf("event %d (-fresh +partial):\n%s", n, diff)
					}
				}
			}
		})
	}
}

// The kernel's tables equal the model's, in both variants and families, after a start and after changes.
func TestTreeInKernel(t *testing.T) {
	for _, variant := range []iptables.Variant{iptables.Legacy, iptables.Nft} {
		for _, family := range families {
			t.Run(string(variant)+"/"+string(family), func(t *testing.T) {
				netns.Fresh(t)
				needsLargeRestores(t, variant)
				c := newTreeCluster(seedstest.Of(t), family)
				host, err := iptables.NewHost(iptables.RestorerOptions{Variant: variant, Family: family})
				if err != nil {
					t.Skip(err)
				}
				e := testEngine(t, family, host, treeLayout)
				for n := range 900 {
					switch {
					case n == 600:
						c.crowd(e, c.size, 60)
					case n < 400 || n%25 != 0:
						c.step(e)
						continue
					}
					if err := e.sync(t.Context()); err != nil {
						t.Fatalf("event %d: %v", n, err)
					}
				}
				if err := e.sync(t.Context()); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(strings.Split(freshLayout(t, c, iptables.Tree), "\n"), strings.Split(kernelSaved(t, variant, family), "\n")); diff != "" {
					t.Fatalf("(-fresh full sync +kernel):\n%s", diff)
				}
			})
		}
	}
}

// overlaps adds the node's address as an external IP to some Services. Their ports get the numbers of other Services'
// NodePorts.
func (c *randomCluster) overlaps(e *engine, node netip.Addr) {
	for i, svc := range c.services {
		if !c.chance(0.3) {
			continue
		}
		svc = svc.DeepCopy()
		svc.Spec.ExternalIPs = append(svc.Spec.ExternalIPs, node.String())
		for n := range svc.Spec.Ports {
			svc.Spec.Ports[n].Port = int32(30000 + c.rng.IntN(c.size)*10)
		}
		c.services[i] = svc
		e.tracker.SetService(svc, e.clock.Now())
	}
}

// clash adds two Services that claim one port of the node. A NodePort without endpoints rejects. An external IP without
// local endpoints drops. The older Service decides.
func (c *randomCluster) clash(e *engine, i int, node netip.Addr, rejectingAge, droppingAge int64) {
	rejecting, dropping := c.service(i), c.service(i+1)
	for n, svc := range []*corev1.Service{rejecting, dropping} {
		svc.CreationTimestamp = metav1.Unix(1000-[]int64{rejectingAge, droppingAge}[n], 0)
		svc.Spec.Ports = []corev1.ServicePort{{Name: "p0", Protocol: corev1.ProtocolTCP, Port: int32(31000 + i)}}
		svc.Spec.Type, svc.Spec.ExternalIPs = corev1.ServiceTypeNodePort, nil
		svc.Status.LoadBalancer.Ingress, svc.Spec.HealthCheckNodePort = nil, 0
		svc.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyCluster
	}
	rejecting.Spec.Ports[0].NodePort = int32(31000 + i)
	dropping.Spec.ExternalIPs = []string{node.String()}
	dropping.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	slice := c.slice([2]int{i + 1, 0})
	slice.Endpoints = []discoveryv1.Endpoint{{Addresses: []string{c.addr("10.128.0.", "fd00:128::", 1)}, NodeName: ptr.To("node-1")}}
	c.services[i], c.services[i+1], c.slices[[2]int{i + 1, 0}] = rejecting, dropping, slice
	c.tell(e)
}

// crowd adds Services that share one address, each with a different port and protocol.
func (c *randomCluster) crowd(e *engine, first, services int) {
	for i := first; i < first+services; i++ {
		svc, slice := c.service(i), c.slice([2]int{i, 0})
		svc.Spec.ExternalIPs = []string{c.addr("192.0.2.", "fd00:2::", 200)}
		for n := range svc.Spec.Ports {
			svc.Spec.Ports[n].Port = int32(1 + c.rng.IntN(1<<(1+c.rng.IntN(16))))
		}
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{c.addr("10.128.0.", "fd00:128::", 3)}})
		c.services[i], c.slices[[2]int{i, 0}] = svc, slice
	}
	c.tell(e)
}

// packets returns packets from all kinds of senders to every frontend of a Service, and to neighbouring addresses and
// ports.
func (c *randomCluster) packets(node netip.Addr) []walk.Packet {
	addr := func(v4, v6 string, n int) netip.Addr { return netip.MustParseAddr(c.addr(v4, v6, n)) }
	var packets []walk.Packet
	var endpoint netip.Addr
	to := func(what string, dst netip.Addr, protocol corev1.Protocol, port int32) {
		number := map[corev1.Protocol]walk.Protocol{corev1.ProtocolTCP: walk.TCP, corev1.ProtocolUDP: walk.UDP, corev1.ProtocolSCTP: walk.SCTP}[protocol]
		for _, from := range []struct {
			device string
			src    netip.Addr
		}{
			{"eth0", addr("203.0.113.", "fd00:113::", 9)}, {"eth0", addr("198.51.100.", "fd00:51::", 9)},
			{"veth1", addr("10.128.0.", "fd00:128::", 1+c.rng.IntN(20))}, {"veth2", endpoint}, {"", node},
		} {
			packets = append(packets, walk.Packet{What: what, Input: from.device, Protocol: number,
				Source: netip.AddrPortFrom(from.src, 40000), Destination: netip.AddrPortFrom(dst, uint16(port))})
		}
	}
	for i, svc := range c.services {
		endpoint = addr("10.128.0.", "fd00:128::", 1+c.rng.IntN(20))
		for n := range randomSlices {
			if slice := c.slices[[2]int{i, n}]; slice != nil && len(slice.Endpoints) > 0 {
				endpoint = netip.MustParseAddr(slice.Endpoints[c.rng.IntN(len(slice.Endpoints))].Addresses[0])
			}
		}
		for _, p := range svc.Spec.Ports {
			vips := append([]string{svc.Spec.ClusterIP}, svc.Spec.ExternalIPs...)
			for _, ingress := range svc.Status.LoadBalancer.Ingress {
				vips = append(vips, ingress.IP)
			}
			for _, vip := range vips {
				to(svc.Name, netip.MustParseAddr(vip), p.Protocol, p.Port)
				to(svc.Name+", port beside", netip.MustParseAddr(vip), p.Protocol, p.Port+7)
				to(svc.Name+", address beside", netip.MustParseAddr(vip).Prev(), p.Protocol, p.Port)
			}
			if p.NodePort != 0 {
				to(svc.Name+", NodePort", node, p.Protocol, p.NodePort)
				to(svc.Name+", port beside NodePort", node, p.Protocol, p.NodePort+3)
			}
		}
		if port := svc.Spec.HealthCheckNodePort; port != 0 {
			to(svc.Name+", health", node, corev1.ProtocolTCP, port)
		}
	}
	return packets
}

type verdicts struct {
	world   walk.NodeAddresses
	packets []walk.Packet
}

// of evaluates all packets on a node that forwards everything, and on a node that forwards only what KUBE-FORWARD
// accepts.
func (v *verdicts) of(t *testing.T, family corev1.IPFamily, text string) []walk.Result {
	t.Helper()
	filter := strings.Index(text, "*filter")
	strict := text[:filter] + strings.Replace(text[filter:], ":FORWARD ACCEPT", ":FORWARD DROP", 1)
	var all []walk.Result
	for _, text := range []string{text, strict} {
		rules, err := walk.ParseIptables(family, []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		w := walk.New(rules, v.world)
		for i := range v.packets {
			verdict, err := w.Walk(&v.packets[i])
			if err != nil {
				t.Fatal(err)
			}
			verdict.Outcomes = slices.Clone(verdict.Outcomes)
			all = append(all, verdict)
		}
	}
	return all
}

// packet returns the packet of a verdict.
func (v *verdicts) packet(i int) *walk.Packet { return &v.packets[i%len(v.packets)] }

// hairpins counts the packets that may go back, masqueraded, to the endpoint that sent them.
func (v *verdicts) hairpins(all []walk.Result) (count int) {
	for i := range all {
		if slices.ContainsFunc(all[i].Outcomes, func(o walk.Outcome) bool {
			return o.Kind == walk.Pass && o.Masquerade && o.To.Addr() == v.packet(i).Source.Addr()
		}) {
			count++
		}
	}
	return count
}

func (v *verdicts) compare(t *testing.T, when string, want, got []walk.Result) {
	t.Helper()
	for i := range want {
		if !want[i].Equal(got[i]) {
			t.Fatalf("%s: %s: %s, not %s", when, v.packet(i), got[i], want[i])
		}
	}
}

func (c *randomCluster) node() netip.Addr {
	return netip.MustParseAddr(c.addr("172.18.0.", "fd00:18:0:1::", 2))
}

// settled returns a cluster after many events, with packets for it.
func settled(t *testing.T, family corev1.IPFamily) (*randomCluster, *verdicts) {
	t.Helper()
	c := newTreeCluster(seedstest.Of(t), family)
	e := testEngine(t, family, iptables.NewModel(family), nil)
	for range 800 {
		c.step(e)
	}
	c.overlaps(e, c.node())
	c.clash(e, c.size, c.node(), 1, 2)
	c.clash(e, c.size+2, c.node(), 2, 1)
	c.crowd(e, c.size+4, 60)
	return c, &verdicts{walk.NodeAddresses{Local: []netip.Addr{c.node()}}, c.packets(c.node())}
}

// Every packet has the same outcome in both layouts.
func TestTreeEqualsClassic(t *testing.T) {
	if testing.Short() {
		t.Skip("-short")
	}
	for _, family := range families {
		for range 4 {
			t.Run(string(family), func(t *testing.T) {
				c, v := settled(t, family)
				classic := v.of(t, family, freshLayout(t, c, iptables.Classic))
				v.compare(t, "tree", classic, v.of(t, family, freshLayout(t, c, iptables.Tree)))
				kinds := map[walk.Kind]int{}
				for _, verdict := range classic {
					for _, o := range verdict.Outcomes {
						kinds[o.Kind]++
					}
				}
				if len(v.packets) < 1000 || len(kinds) < 3 || v.hairpins(classic) < 100 {
					t.Errorf("%d packets, %d kinds of outcome, %d hairpin packets: too few for this test", len(v.packets), len(kinds), v.hairpins(classic))
				}
			})
		}
	}
}

// watched calls then after each restore.
type watched struct {
	*iptables.Model
	then func(p *iptables.Payload)
}

func (w watched) Restore(ctx context.Context, p *iptables.Payload) (iptables.Run, error) {
	run, err := w.Model.Restore(ctx, p)
	w.then(p)
	return run, err
}

// form is a layout, and whether the machine has match bpf.
type form struct {
	iptables.Layout
	bpf bool
}

func (f form) String() string {
	if f.Layout == iptables.Tree && !f.bpf {
		return "tree with chains of endpoints"
	}
	return string(f.Layout)
}

func (f form) apply(o *Options) { o.Layout, o.Machine.BPF = f.Layout, f.bpf }

var classicForm, flatForm, chainsForm = form{iptables.Classic, true}, form{iptables.Tree, true}, form{iptables.Tree, false}

// A proxier takes over from one with another layout, and no packet has another outcome meanwhile.
func TestConversion(t *testing.T) {
	for _, family := range families {
		for _, way := range [][2]form{
			{classicForm, flatForm}, {flatForm, classicForm}, {flatForm, flatForm},
			{classicForm, chainsForm}, {chainsForm, classicForm}, {chainsForm, flatForm}, {flatForm, chainsForm},
		} {
			t.Run(fmt.Sprintf("%s/%s to %s", family, way[0], way[1]), func(t *testing.T) {
				t.Parallel()
				c, v := settled(t, family)
				v.packets = v.packets[:len(v.packets)/3] // the packets are in random order of Services
				model := iptables.NewModel(family)
				before := testEngine(t, family, model, way[0].apply)
				c.tell(before)
				if err := before.sync(t.Context()); err != nil {
					t.Fatal(err)
				}
				want, restores, commits := v.of(t, family, saved(t, model)), 0, 0
				model.Committed = func() error {
					commits++
					v.compare(t, fmt.Sprintf("after commit %d", commits), want, v.of(t, family, saved(t, model)))
					return nil
				}
				watch := watched{model, func(*iptables.Payload) { restores++ }}
				after := testEngine(t, family, watch, func(o *Options) {
					way[1].apply(o)
					o.Variant, o.Batch = iptables.Nft, 80
				})
				c.tell(after)
				if err := after.sync(t.Context()); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(strings.Split(freshForm(t, c, way[1]), "\n"), strings.Split(saved(t, model), "\n")); diff != "" {
					t.Fatalf("(-fresh +converted):\n%s", diff)
				}
				if drift, err := after.backend.Drift()(t.Context()); drift != "" || err != nil {
					t.Errorf("drift: %s, %v", drift, err)
				}
				if restores < 5 && way[0] != way[1] {
					t.Errorf("%d restores are too few for this test", restores)
				}
			})
		}
	}
}

// Trees change in one restore or in many. After each restore, a packet has its outcome from before or from after the
// sync.
func TestTreeTransitions(t *testing.T) {
	if testing.Short() {
		t.Skip("-short")
	}
	for _, family := range families {
		for _, batch := range []int{0, 40} {
			t.Run(fmt.Sprintf("%s/batch=%d", family, batch), func(t *testing.T) {
				c := newTreeCluster(seedstest.Of(t), family)
				model, restores := iptables.NewModel(family), 0
				then := func() {}
				e := testEngine(t, family, watched{model, func(*iptables.Payload) { restores++; then() }}, func(o *Options) {
					o.Layout, o.Variant, o.Batch = iptables.Tree, iptables.Nft, batch
					o.OnSync = func(s Sync) {
						for _, run := range s.Runs {
							if run.ExitCode != 0 {
								t.Error("a payload was refused")
							}
						}
					}
				})
				for range 600 {
					c.step(e)
				}
				if err := e.sync(t.Context()); err != nil {
					t.Fatal(err)
				}
				restores = 0
				for round := range 9 {
					v := &verdicts{world: walk.NodeAddresses{Local: []netip.Addr{c.node()}}, packets: c.packets(c.node())}
					for range 1 << round {
						c.step(e)
					}
					v.packets = append(v.packets, c.packets(c.node())...)
					c.rng.Shuffle(len(v.packets), func(i, j int) { v.packets[i], v.packets[j] = v.packets[j], v.packets[i] })
					v.packets = v.packets[:len(v.packets)/4]
					before, after := v.of(t, family, saved(t, model)), v.of(t, family, freshLayout(t, c, iptables.Classic))
					then = func() {
						for i, got := range v.of(t, family, saved(t, model)) {
							if !got.Within(before[i], after[i]) {
								t.Fatalf("round %d, restore %d: %s: %s, neither %s nor %s", round, restores, v.packet(i), got, before[i], after[i])
							}
						}
					}
					if err := e.sync(t.Context()); err != nil {
						t.Fatal(err)
					}
					v.compare(t, "in the end", after, v.of(t, family, saved(t, model)))
				}
				t.Logf("%d restores", restores)
			})
		}
	}
}

var sharedChain = regexp.MustCompile(`(?m)^:(KUBE-TREE-\S+|KUBE-SERVICES|KUBE-NODEPORTS|KUBE-EXTERNAL-SERVICES|KUBE-PROXY-FIREWALL) `)

// A changed EndpointSlice rewrites no tree chain. A new or removed Service rewrites few.
func TestTreeTouchesLittle(t *testing.T) {
	c := newTreeCluster(seedstest.Of(t), corev1.IPv4Protocol)
	model := iptables.NewModel(c.family)
	var chains []string
	e := testEngine(t, c.family, watched{model, func(p *iptables.Payload) {
		for _, m := range sharedChain.FindAllStringSubmatch(string(p.Text()), -1) {
			chains = append(chains, m[1])
		}
	}}, treeLayout)
	sync := func() []string {
		t.Helper()
		chains = nil
		if err := e.sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		return chains
	}
	for i := range c.size {
		svc, slice := c.service(i), c.slice([2]int{i, 0})
		svc.Spec.Type, svc.Spec.ExternalIPs = corev1.ServiceTypeClusterIP, nil
		svc.Status.LoadBalancer.Ingress, svc.Spec.InternalTrafficPolicy = nil, nil
		svc.Spec.Ports = svc.Spec.Ports[:1]
		svc.Spec.Ports[0].NodePort = 0
		slice.Endpoints = []discoveryv1.Endpoint{{Addresses: []string{"10.128.0.1"}}}
		c.services[i], c.slices[[2]int{i, 0}] = svc, slice
	}
	c.tell(e)
	sync()
	for i := range c.size {
		slice := c.slices[[2]int{i, 0}].DeepCopy()
		slice.Endpoints[0].Addresses = []string{"10.128.0.2"}
		e.tracker.SetSlice(slice, e.clock.Now())
		if touched := sync(); len(touched) > 0 {
			t.Fatalf("a changed slice touches %q", touched)
		}
		e.tracker.DeleteService(c.services[i], e.clock.Now())
		gone := sync()
		e.tracker.SetService(c.services[i], e.clock.Now())
		back := sync()
		if len(gone) == 0 || len(gone) > 4 || len(back) == 0 || len(back) > 4 {
			t.Errorf("Service %d touches %q going and %q coming", i, gone, back)
		}
	}
}
