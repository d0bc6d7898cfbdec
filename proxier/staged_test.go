package proxier

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
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
	"synclab/bench/verify/walk/walktest"
	"synclab/internal/seedstest"
	"synclab/proxier/iptables"
)

// transitionsFlag is the number of random transitions of each variant and layout. Each is repeated with a crash in each
// of its states.
var transitionsFlag = flag.Int("transitions", 8, "random transitions whose every state is walked through, of each variant and layout")

// staged is a proxier on a model. The test evaluates every intermediate state of the tables.
type staged struct {
	t       *testing.T
	cluster *randomCluster
	model   *iptables.Model
	engine  *engine
	options func(*Options)
	world   walk.NodeAddresses
	walked  map[string][]walk.Result // by the text of the tables, for the packets of one transition
}

// verdicts returns the outcomes of all packets on one state of the tables.
func (s *staged) verdicts(m *iptables.Model, packets []walk.Packet) []walk.Result {
	s.t.Helper()
	var text bytes.Buffer
	if err := m.Save(&text); err != nil {
		s.t.Fatal(err)
	}
	if known := s.walked[text.String()]; known != nil {
		return known
	}
	rules, err := walk.CompileIptables(s.cluster.family, m.Tables())
	if err != nil {
		s.t.Fatal(err)
	}
	walker := walk.New(rules, s.world)
	verdicts := make([]walk.Result, len(packets))
	for i := range packets {
		if verdicts[i], err = walker.Walk(&packets[i]); err != nil {
			s.t.Fatal(err)
		}
		verdicts[i].Outcomes = slices.Clone(verdicts[i].Outcomes)
	}
	s.walked[text.String()] = verdicts
	return verdicts
}

// watched runs a sync and returns every intermediate state of the tables and the last one. The restore is killed after
// that many tables are written; negative: it is not killed.
func (s *staged) watched(e *engine, m *iptables.Model, after int) (states []*iptables.Model) {
	s.t.Helper()
	m.Committed = func() error {
		states = append(states, m.Clone())
		if len(states) == after {
			return errors.New("killed")
		}
		return nil
	}
	err := e.sync(s.t.Context())
	m.Committed = nil
	if killed := after >= 0 && len(states) >= after; (err != nil) != killed {
		s.t.Fatalf("after %d of %d tables: %v", len(states), after, err)
	}
	return append(states, m.Clone())
}

// allowed checks that each packet has, in each state, the outcome from before or from after the sync.
func (s *staged) allowed(what string, states []*iptables.Model, packets []walk.Packet, old, now []walk.Result) {
	s.t.Helper()
	for n, m := range states {
		for i, v := range s.verdicts(m, packets) {
			if !v.Equal(old[i]) && !v.Equal(now[i]) {
				var before, between, after bytes.Buffer
				_, _, _ = s.model.Save(&before), m.Save(&between), states[len(states)-1].Save(&after)
				s.t.Fatalf("%s, state %d of %d: %s\n\tbefore  %s\n\tbetween %s\n\tafter   %s\nbetween:\n%s\nafter:\n%s",
					what, n+1, len(states), &packets[i], old[i], v, now[i], between.String(), after.String())
			}
		}
	}
}

// transition changes the cluster, syncs and checks every state. It also checks the sync of a new proxier that finds the
// state.
func (s *staged) transition(n int, rng *rand.Rand) {
	start := s.model.Clone()
	frontends := walktest.PlannedFrontends(s.engine.plan.Ports())
	for range 1 + rng.IntN(12) {
		s.cluster.step(s.engine)
	}
	killed := -1
	if rng.IntN(3) == 0 {
		killed = 1 + rng.IntN(4)
	}
	states := s.watched(s.engine, s.model, killed)
	frontends = append(frontends, walktest.PlannedFrontends(s.engine.plan.Ports())...)
	population := walk.PacketSet{Frontends: frontends, World: s.world, Least: 1, Seed: rng.Uint64()}
	packets := population.Packets(s.cluster.family == corev1.IPv4Protocol)
	if killed >= 0 { // the same proxier continues without further changes
		states = append(states, s.watched(s.engine, s.model, -1)...)
	}
	s.walked = map[string][]walk.Result{}
	old, now := s.verdicts(start, packets), s.verdicts(s.model, packets)
	s.allowed(fmt.Sprintf("transition %d", n), states, packets, old, now)
	want := saved(s.t, s.model)
	for i, crashed := range append([]*iptables.Model{start}, states...) {
		m := crashed.Clone()
		next := testEngine(s.t, s.cluster.family, m, s.options)
		s.cluster.tell(next)
		s.allowed(fmt.Sprintf("transition %d, a new proxier after state %d", n, i), s.watched(next, m, -1), packets, old, now)
		if got := saved(s.t, m); got != want {
			s.t.Fatalf("transition %d: a new proxier after state %d leaves\n%s\nwant\n%s", n, i, got, want)
		}
	}
}

// Every packet meets the rules from before a sync or those from after it, whichever table was written last. That
// includes a proxier that was killed at any point and replaced by another one.
func TestNoPacketInBetween(t *testing.T) {
	for _, variant := range []iptables.Variant{iptables.Legacy, iptables.Nft} {
		for _, layout := range iptables.Layouts {
			t.Run(fmt.Sprintf("%s/%s", variant, layout), func(t *testing.T) {
				t.Parallel()
				rng := rand.New(rand.NewPCG(seedstest.Of(t), 3))
				s := &staged{
					t: t, cluster: newRandomCluster(rng.Uint64(), corev1.IPv4Protocol), model: iptables.NewModel(corev1.IPv4Protocol),
					world: walk.NodeAddresses{Local: []netip.Addr{netip.MustParseAddr("172.18.0.2")}},
				}
				s.cluster.sole = true
				s.options = func(o *Options) {
					o.Variant, o.Layout, o.NodeIPs = variant, layout, s.world.Local
					o.Batch = 1 + rng.IntN(30)
				}
				s.engine = testEngine(t, corev1.IPv4Protocol, s.model, s.options)
				for range 20 {
					s.cluster.step(s.engine)
				}
				s.watched(s.engine, s.model, -1)
				for n := range *transitionsFlag {
					s.transition(n, rng)
				}
			})
		}
	}
}

// A new proxier over the rules of a killed one also writes in batches. It leaves the same tables as a proxier that
// starts on empty tables, in the kernel as on the model.
func TestRestartInBatches(t *testing.T) {
	for _, layout := range iptables.Layouts {
		t.Run(string(layout), func(t *testing.T) {
			netns.Fresh(t)
			needsLargeRestores(t, iptables.Nft)
			c := newRandomCluster(seedstest.Of(t), corev1.IPv4Protocol)
			start := func() *engine {
				host, err := iptables.NewHost(iptables.RestorerOptions{Variant: iptables.Nft, Family: c.family})
				if err != nil {
					t.Skip(err)
				}
				return testEngine(t, c.family, host, func(o *Options) { o.Variant, o.Layout, o.Batch = iptables.Nft, layout, 30 })
			}
			e := start()
			for range 4 {
				for range 60 {
					c.step(e)
				}
				if err := e.sync(t.Context()); err != nil {
					t.Fatal(err)
				}
				next := start()
				c.tell(next)
				for range 20 {
					c.step(next)
				}
				runs := 0
				next.opts.OnSync = func(s Sync) { runs = len(s.Runs) }
				if err := next.sync(t.Context()); err != nil {
					t.Fatal(err)
				}
				if runs < 3 {
					t.Errorf("%d restores: not in batches", runs)
				}
				want := iptables.NewModel(c.family)
				alone := testEngine(t, c.family, want, func(o *Options) { o.Layout = layout })
				c.tell(alone)
				if err := alone.sync(t.Context()); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(strings.Split(saved(t, want), "\n"), strings.Split(kernelSaved(t, iptables.Nft, c.family), "\n")); diff != "" {
					t.Fatalf("(-alone +kernel):\n%s", diff)
				}
				e = next
			}
		})
	}
}

// Two Services that share an external address change from any two states to any other two in one sync. No packet meets
// a transition state.
func TestSharedAddressTransitions(t *testing.T) {
	address := netip.MustParseAddr("192.0.2.10")
	states := []string{"absent", "empty", "elsewhere", "here", "limited"}
	for _, variant := range []iptables.Variant{iptables.Legacy, iptables.Nft} {
		for _, layout := range iptables.Layouts {
			t.Run(fmt.Sprintf("%s/%s", variant, layout), func(t *testing.T) {
				t.Parallel()
				s := &staged{
					t: t, cluster: newRandomCluster(1, corev1.IPv4Protocol), model: iptables.NewModel(corev1.IPv4Protocol),
					world: walk.NodeAddresses{Local: []netip.Addr{netip.MustParseAddr("172.18.0.2")}},
				}
				s.engine = testEngine(t, corev1.IPv4Protocol, s.model, func(o *Options) {
					o.Variant, o.Layout, o.NodeIPs, o.Batch = variant, layout, s.world.Local, 1
				})
				var packets []walk.Packet
				for _, from := range []struct{ device, addr string }{{"eth0", "203.0.113.9"}, {"eth0", "198.51.100.9"}, {"veth1", "10.128.0.3"}, {"", "172.18.0.2"}} {
					packets = append(packets, walk.Packet{What: "shared", Input: from.device, Protocol: walk.TCP,
						Source: netip.AddrPortFrom(netip.MustParseAddr(from.addr), 40000), Destination: netip.AddrPortFrom(address, 80)})
				}
				s.watched(s.engine, s.model, -1)
				at := [2]string{"absent", "absent"}
				become := func(to [2]string) {
					for i, state := range to {
						s.share(i, state, address)
					}
					at = to
				}
				var pairs [][2]string
				for _, older := range states {
					for _, younger := range states {
						pairs = append(pairs, [2]string{older, younger})
					}
				}
				for _, from := range pairs {
					for _, to := range pairs {
						if from == to || confused(from, to) {
							continue
						}
						if at != from {
							become(from)
							s.watched(s.engine, s.model, -1)
						}
						s.walked = map[string][]walk.Result{}
						old := s.verdicts(s.model, packets)
						become(to)
						all := s.watched(s.engine, s.model, -1)
						s.allowed(fmt.Sprintf("%v to %v", from, to), all, packets, old, s.verdicts(s.model, packets))
					}
				}
			})
		}
	}
}

// confused: before and after the sync, nat leaves different packets to filter, and one Service rejects while the other
// drops. For such packets, package iptables does not define which of the two happens in a transition state.
func confused(from, to [2]string) bool {
	leavesOver := func(pair [2]string) bool {
		return !slices.Contains(pair[:], "here") && (slices.Contains(pair[:], "limited") || slices.Contains(pair[:], "elsewhere"))
	}
	return leavesOver(from) && leavesOver(to) && slices.Contains(slices.Concat(from[:], to[:]), "empty")
}

// share puts a Service that claims an address into a state.
func (s *staged) share(i int, state string, address netip.Addr) {
	svc := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprintf("svc-%d", i), CreationTimestamp: metav1.Unix(int64(1000+i), 0)},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, ClusterIP: fmt.Sprintf("10.96.0.%d", i+1), ExternalIPs: []string{address.String()},
			Ports: []corev1.ServicePort{{Name: "p0", Protocol: corev1.ProtocolTCP, Port: 80}},
		},
	}
	slice := s.cluster.slice([2]int{i, 0})
	slice.Endpoints = []discoveryv1.Endpoint{{Addresses: []string{fmt.Sprintf("10.128.0.%d", 10+i)}, NodeName: ptr.To("node-0")}}
	switch state {
	case "empty":
		slice.Endpoints = nil
	case "elsewhere":
		svc.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
		slice.Endpoints[0].NodeName = ptr.To("node-1")
	case "limited":
		svc.Spec.ExternalIPs, svc.Spec.LoadBalancerSourceRanges = nil, []string{"203.0.113.0/24"}
		svc.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: address.String()}}
	case "absent":
		s.engine.tracker.DeleteService(svc, s.engine.clock.Now())
		return
	}
	s.engine.tracker.SetService(svc, s.engine.clock.Now())
	s.engine.tracker.SetSlice(slice, s.engine.clock.Now())
}
