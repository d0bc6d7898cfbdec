package proxier

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"

	"synclab/bench/lab/netns"
	"synclab/proxier/backend"
	"synclab/proxier/conntrack"
	"synclab/proxier/iptables"
	"synclab/proxier/nftables"
)

// subject is a proxy under test: a backend with its variant and layout.
type subject struct {
	backend BackendKind
	variant iptables.Variant
	layout  iptables.Layout
	bpf     bool // in layout tree: flat chains
}

func (w subject) String() string {
	return strings.TrimRight(fmt.Sprintf("%s-%s-%s-%s", w.backend, w.variant, w.layout, map[bool]string{true: "flat"}[w.bpf]), "-")
}

// subjects lists all combinations.
var subjects = []subject{
	{Iptables, iptables.Legacy, iptables.Classic, false},
	{Iptables, iptables.Legacy, iptables.Tree, true},
	{Iptables, iptables.Nft, iptables.Classic, false},
	{Iptables, iptables.Nft, iptables.Tree, false},
	{Iptables, iptables.Nft, iptables.Tree, true},
	{backend: Nftables},
}

// apply sets a subject's options, except its tables.
func (w subject) apply(o *Options) {
	if o.Backend, o.Tables = w.backend, nil; w.backend != Nftables {
		o.Variant, o.Layout, o.Machine.BPF = w.variant, w.layout, w.bpf
	}
}

// eachSubjectInKernel runs a test for all subjects and both families, each in a separate namespace. start makes a
// proxier there.
func eachSubjectInKernel(t *testing.T, test func(t *testing.T, family corev1.IPFamily, w subject, start func(func(*Options)) *engine)) {
	for _, w := range subjects {
		for _, family := range []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol} {
			t.Run(w.String()+"/"+string(family), func(t *testing.T) {
				netns.Fresh(t)
				if w.backend == Iptables {
					needsLargeRestores(t, w.variant)
					if _, err := iptables.FindBinary(iptables.Binary(w.variant, family, "restore")); err != nil {
						t.Skip(err)
					}
				}
				test(t, family, w, func(change func(*Options)) *engine {
					return testEngine(t, family, nil, func(o *Options) { w.apply(o); change(o) })
				})
			})
		}
	}
}

// eachSubjectInMemory runs a test on models. start makes a proxier that finds the rules of the one before.
func eachSubjectInMemory(t *testing.T, test func(t *testing.T, family corev1.IPFamily, w subject, start func(func(*Options)) *engine)) {
	for _, w := range subjects {
		for _, family := range []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol} {
			t.Run(w.String()+"/"+string(family), func(t *testing.T) {
				tables, table := iptables.NewModel(family), nftables.NewModel(family)
				test(t, family, w, func(change func(*Options)) *engine {
					return testEngine(t, family, nil, func(o *Options) {
						w.apply(o)
						o.Tables = func(corev1.IPFamily) (iptables.Tables, error) { return tables, nil }
						o.Model = func(corev1.IPFamily) *nftables.Model { return table }
						change(o)
					})
				})
			})
		}
	}
}

// heritage is a cluster with UDP Services of all kinds, and flows to them.
type heritage struct {
	t      *testing.T
	family corev1.IPFamily
	flows  *conntrack.Memory
	start  func(func(*Options)) *engine
}

// addr returns an address of the family by name: "svc.1" and so on.
func (h *heritage) addr(name string) string {
	network, host, _ := strings.Cut(name, ".")
	v4 := map[string]string{"svc": "10.96.0.", "pod": "10.128.0.", "ext": "192.0.2.", "node": "172.18.0.", "other": "10.7.7."}[network] + host
	if h.family == corev1.IPv4Protocol {
		return v4
	}
	return map[string]string{"svc": "fd00:96::", "pod": "fd00:128::", "ext": "2001:db8::", "node": "fd00:18::", "other": "fd00:7::"}[network] + host
}

// flow parses a flow such as "svc.1:53>pod.1:53": a client sends to the first address, and the second one answers.
func (h *heritage) flow(way string) conntrack.Flow {
	to, by, _ := strings.Cut(way, ">")
	parse := func(place string) netip.AddrPort {
		name, port, _ := strings.Cut(place, ":")
		var number uint16
		if _, err := fmt.Sscan(port, &number); err != nil {
			h.t.Fatal(err)
		}
		return netip.AddrPortFrom(netip.MustParseAddr(h.addr(name)), number)
	}
	client := parse("pod.99:4000")
	return conntrack.Flow{Src: client, Dst: parse(to), ReplySrc: parse(by), ReplyDst: client}
}

// engine makes the engine of a new proxier.
func (h *heritage) engine() *engine {
	return h.start(func(o *Options) {
		o.Conntrack = func(corev1.IPFamily) (conntrack.Table, error) { return h.flows, nil }
		o.NodeIPs = []netip.Addr{netip.MustParseAddr(h.addr("node.2"))}
	})
}

// service n has a cluster IP "svc.n" and two endpoints, "pod.n" and "pod.n+100", port 53.
func (h *heritage) service(e *engine, n int, change func(*corev1.Service)) *corev1.Service {
	name := fmt.Sprintf("s%d", n)
	svc := plainService(name, h.addr(fmt.Sprintf("svc.%d", n)), int64(n))
	svc.Spec.IPFamilies = []corev1.IPFamily{h.family}
	svc.Spec.Ports[0].Port, svc.Spec.Ports[0].Protocol = 53, corev1.ProtocolUDP
	if change != nil {
		change(svc)
	}
	slice := plainSlice(name, h.addr(fmt.Sprintf("pod.%d", n)), h.addr(fmt.Sprintf("pod.%d", n+100)))
	slice.AddressType = discoveryv1.AddressType(h.family)
	slice.Ports[0].Protocol, slice.Ports[0].Port = ptr.To(svc.Spec.Ports[0].Protocol), ptr.To[int32](53)
	slice.Endpoints[0].NodeName = ptr.To("node-0")
	e.tracker.SetService(svc, time.Time{})
	e.tracker.SetSlice(slice, time.Time{})
	return svc
}

func (h *heritage) sync(e *engine) {
	h.t.Helper()
	if err := e.sync(h.t.Context()); err != nil {
		h.t.Fatal(err)
	}
}

// cleans checks which of the given flows a sync deletes.
func (h *heritage) cleans(e *engine, gone, stay []string) {
	h.t.Helper()
	for _, way := range slices.Concat(gone, stay) {
		h.flows.Add(h.flow(way))
	}
	h.sync(e)
	left := h.flows.Flows()
	for _, way := range gone {
		if slices.Contains(left, h.flow(way)) {
			h.t.Errorf("flow %s is still there", way)
		}
	}
	for _, way := range stay {
		if !slices.Contains(left, h.flow(way)) {
			h.t.Errorf("flow %s is gone", way)
		}
	}
}

// Services and addresses are deleted while no proxier runs. The next proxier finds them in the rules and deletes their
// flows. Flows that other rules redirect stay.
func inheritsFrontends(t *testing.T, family corev1.IPFamily, _ subject, start func(func(*Options)) *engine) {
	h := &heritage{t: t, family: family, flows: &conntrack.Memory{}, start: start}
	stays := func(e *engine) {
		h.service(e, 1, func(svc *corev1.Service) {
			svc.Spec.Type, svc.Spec.Ports[0].NodePort = corev1.ServiceTypeNodePort, 30001
		})
	}
	e := h.engine()
	stays(e)
	h.service(e, 2, func(svc *corev1.Service) {
		svc.Spec.Type, svc.Spec.Ports[0].NodePort = corev1.ServiceTypeLoadBalancer, 30002
		svc.Spec.ExternalIPs = []string{h.addr("ext.2")}
		svc.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: h.addr("ext.3")}}
		svc.Spec.LoadBalancerSourceRanges = []string{h.addr("other.0") + "/24"}
	})
	h.service(e, 4, func(svc *corev1.Service) { svc.Spec.ExternalIPs = []string{h.addr("ext.4")} })
	h.service(e, 5, func(svc *corev1.Service) { svc.Spec.Ports[0].Protocol = corev1.ProtocolTCP })
	h.service(e, 6, func(svc *corev1.Service) {
		svc.Spec.Type, svc.Spec.Ports[0].NodePort = corev1.ServiceTypeNodePort, 30006
		svc.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
		svc.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
		svc.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: ptr.To[int32](100)}}
	})
	for n := 10; n < 40; n++ { // enough for a tree
		h.service(e, n, nil)
	}
	h.sync(e)

	e = h.engine()
	stays(e)
	h.service(e, 4, nil)
	for n := 10; n < 40; n++ {
		h.service(e, n, nil)
	}
	stay := []string{
		"svc.1:53>pod.1:53", "node.2:30001>pod.101:53", "svc.4:53>pod.104:53", "svc.12:53>pod.12:53",
		"svc.2:53>other.7:53", "node.2:30002>other.7:53", "ext.2:53>ext.2:53", // redirected by other rules, or not at all
		"node.3:30002>pod.2:53", // not an address of this node
		"svc.5:53>pod.5:53",     // UDP to a TCP frontend
		"svc.2:54>pod.2:53",     // no port of the Service
	}
	h.cleans(e, []string{
		"svc.2:53>pod.2:53", "svc.2:53>pod.102:53", "ext.2:53>pod.102:53", "ext.3:53>pod.2:53", "node.2:30002>pod.2:53",
		"ext.4:53>pod.4:53", "svc.6:53>pod.106:53", "node.2:30006>pod.6:53", "svc.4:53>pod.9:53",
	}, stay)
	// After that sync the cleaner has forgotten the previous rules.
	e.flows.cleaner.Force()
	h.cleans(e, nil, []string{"svc.2:53>pod.2:53", "ext.4:53>pod.4:53"})
}

func TestInheritedFrontends(t *testing.T)         { eachSubjectInMemory(t, inheritsFrontends) }
func TestInheritedFrontendsInKernel(t *testing.T) { eachSubjectInKernel(t, inheritsFrontends) }

// failing is a Backend whose Sync does its work and then fails, while fail is set.
type failing struct {
	Backend
	fail bool
}

var errAfterwards = errors.New("killed after its work")

func (f *failing) Sync(ctx context.Context, req backend.Request) (backend.Result, error) {
	result, err := f.Backend.Sync(ctx, req)
	if f.fail && err == nil {
		err = errAfterwards
	}
	return result, err
}

// Frontends that a failed sync wrote, or may have written, are cleaned even if they are gone before a sync succeeds. So
// are frontends that existed before a first sync that failed.
func forgetsNoFailedSync(t *testing.T, family corev1.IPFamily, _ subject, start func(func(*Options)) *engine) {
	h := &heritage{t: t, family: family, flows: &conntrack.Memory{}, start: start}
	var b *failing
	next := func() *engine {
		e := h.engine()
		b = &failing{Backend: e.backend}
		e.backend = b
		return e
	}
	fail := func(e *engine) {
		t.Helper()
		b.fail = true
		if err := e.sync(t.Context()); !errors.Is(err, errAfterwards) {
			t.Fatal(err)
		}
		b.fail = false
	}
	e := next()
	h.service(e, 1, nil)
	h.sync(e)
	svc := h.service(e, 2, func(svc *corev1.Service) {
		svc.Spec.Type, svc.Spec.Ports[0].NodePort = corev1.ServiceTypeNodePort, 30002
		svc.Spec.ExternalIPs = []string{h.addr("ext.2")}
	})
	fail(e)
	h.service(e, 1, func(svc *corev1.Service) { svc.Spec.ExternalIPs = []string{h.addr("ext.1")} })
	fail(e)
	h.service(e, 1, nil)
	e.tracker.DeleteService(svc, time.Time{})
	fail(e)
	h.cleans(e, []string{
		"svc.2:53>pod.2:53", "ext.2:53>pod.102:53", "node.2:30002>pod.2:53", "ext.1:53>pod.101:53",
	}, []string{"svc.1:53>pod.1:53", "svc.2:53>other.7:53", "node.3:30002>pod.2:53"})
	e.flows.cleaner.Force()
	h.cleans(e, nil, []string{"svc.2:53>pod.2:53"})

	e = next()
	svc = h.service(e, 1, nil)
	h.service(e, 3, nil)
	fail(e)
	e.tracker.DeleteService(svc, time.Time{})
	h.cleans(e, []string{"svc.1:53>pod.1:53"}, []string{"svc.3:53>pod.3:53", "svc.1:53>other.7:53"})
}

func TestFailedSyncsAreRemembered(t *testing.T)         { eachSubjectInMemory(t, forgetsNoFailedSync) }
func TestFailedSyncsAreRememberedInKernel(t *testing.T) { eachSubjectInKernel(t, forgetsNoFailedSync) }
