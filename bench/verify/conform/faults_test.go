package conform

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"synclab/proxier/config"
	"synclab/proxier/iptables"
	"synclab/sim"
)

// Faults and flows: the rules of a converged proxier do not show them. Each test shows kube-proxy's behaviour. If
// Synclab's behaviour is not in the same test, docs/differences.md names the test that has it.

// watching starts kube-proxy on a feed with the given objects.
func watching(t *testing.T, s Setting, o *sim.Objects) (*kubeProxy, *feed) {
	t.Helper()
	f := newFeed()
	t.Cleanup(f.cluster.Stop)
	if err := f.apply(t.Context(), f.traceTo(o)); err != nil {
		t.Fatal(err)
	}
	k, err := startKubeProxy(t.Context(), kubeProxyCommand(t), s, o.Nodes[0], f)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.stop)
	return k, f
}

func settle(t *testing.T, k *kubeProxy, f *feed) {
	t.Helper()
	signal, err := f.raise(t.Context())
	if err == nil {
		err = k.await(t.Context(), signal)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// until polls holds until it returns true, because no event reports the condition.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	timeout := time.After(lookTimeout)
	for !holds() {
		select {
		case <-tick.C:
		case <-timeout:
			t.Fatalf("not within %s: %s", lookTimeout, what)
		case <-t.Context().Done():
			t.Fatal(what)
		}
	}
}

func oneService() *sim.Objects {
	return &sim.Objects{
		Nodes: []*corev1.Node{plainNode()}, Services: []*corev1.Service{plainService("a", "10.96.0.1")},
		Slices: []*discoveryv1.EndpointSlice{plainSlice("s", "a", "10.128.0.1")},
	}
}

// scripts replaces IPv4 tools by shell scripts; "" is iptables. A script finds the real tool in $tool. Calls with
// --version go to the real tool.
func scripts(byTool map[string]string) func(bin string) error {
	return func(bin string) error {
		for tool, script := range byTool {
			real, err := iptables.FindBinary(iptables.Binary(iptables.Legacy, both[0], tool))
			if err != nil {
				return err
			}
			path := filepath.Join(bin, strings.TrimSuffix("iptables-"+tool, "-"))
			if err := os.Remove(path); err != nil {
				return err
			}
			script = "#!/bin/sh\ntool=" + real + "\ncase $* in *--version*) exec \"$tool\" \"$@\";; esac\n" + script
			if err := os.WriteFile(path, []byte(script), 0o700); err != nil {
				return err
			}
		}
		return nil
	}
}

// Another process flushes nat. kube-proxy checks only a chain in mangle, and later syncs write only changed chains. The
// jumps and the Service's chains stay empty. Synclab: TestDrift, TestDriftBeforePartial, TestRunMendsDrift of package
// proxier.
func TestKubeProxyLeavesAFlushedTable(t *testing.T) {
	t.Parallel()
	k, f := watching(t, Setting{Variant: iptables.Legacy, Config: config.New()}, oneService())
	settle(t, k, f)
	before, err := saveIn(k.space, k.variant, both[0])
	if err != nil || len(before["ns/a"]) == 0 {
		t.Fatalf("the Service has no rules: %v", err)
	}
	path, err := iptables.FindBinary(iptables.Binary(iptables.Legacy, both[0], ""))
	if err != nil {
		t.Fatal(err)
	}
	if err := k.space.do(exec.Command(path, "-t", "nat", "-F").Run); err != nil {
		t.Fatal(err)
	}
	settle(t, k, f) // a sync after the flush: the signal's chains exist again
	after, err := saveIn(k.space, k.variant, both[0])
	if err != nil {
		t.Fatal(err)
	}
	for at := range after["ns/a"] {
		if at.table == "nat" {
			t.Errorf("kube-proxy repaired %s %s: is this a later version, in which the difference has gone?", at.table, at.chain)
		}
	}
}

// The first restore fails. kube-proxy does not retry before another change, but reports that it is healthy. Synclab:
// TestEveryFailureIsRetried of package proxier, TestHealthFollowsTheKernel of package health.
func TestKubeProxyDoesNotRepeatItsFirstSync(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	log, failed := filepath.Join(dir, "calls"), filepath.Join(dir, "failed")
	s := Setting{Variant: iptables.Legacy, Config: config.New()}
	s.tools = scripts(map[string]string{
		"restore": fmt.Sprintf("echo restore >>%[1]s\n[ -e %[2]s ] || { touch %[2]s; exit 1; }\nexec \"$tool\" \"$@\"\n", log, failed),
		"":        fmt.Sprintf("case $* in *KUBE-PROXY-CANARY*mangle*) echo canary >>%s;; esac\nexec \"$tool\" \"$@\"\n", log),
	})
	k, f := watching(t, s, oneService())
	calls := func() []string {
		text, _ := os.ReadFile(log)
		return strings.Fields(string(text))
	}
	until(t, "five checks of the canary, a sync period apart, after the failed restore", func() bool {
		all := calls()
		i := slices.Index(all, "restore")
		return i >= 0 && strings.Count(strings.Join(all[i:], " "), "canary") >= 5
	})
	restores := 0
	for _, call := range calls() {
		if call == "restore" {
			restores++
		}
	}
	if restores != 1 {
		t.Errorf("%d restores within five sync periods: is this a later version, in which the difference has gone?", restores)
	}
	settle(t, k, f) // any event makes it sync again
	if rules, err := saveIn(k.space, k.variant, both[0]); err != nil || len(rules["ns/a"]) == 0 {
		t.Errorf("the Service has no rules: %v", err)
	}
}

func udpService(name, ip string, nodePort int32) *corev1.Service {
	svc := plainService(name, ip)
	svc.Spec.Ports[0].Protocol, svc.Spec.Ports[0].Port = corev1.ProtocolUDP, 53
	if nodePort != 0 {
		svc.Spec.Type, svc.Spec.Ports[0].NodePort = corev1.ServiceTypeNodePort, nodePort
		sim.DefaultService(svc)
	}
	return svc
}

func udpSlice(name, service string, addresses ...string) *discoveryv1.EndpointSlice {
	s := plainSlice(name, service, addresses...)
	protocol, port := corev1.ProtocolUDP, int32(53)
	s.Ports[0].Protocol, s.Ports[0].Port = &protocol, &port
	return s
}

// flow returns a conntrack entry: from a client to one address and port, answered from another.
func flow(to string, port uint16, from string, replyPort uint16) *netlink.ConntrackFlow {
	client := net.ParseIP("192.0.2.99").To4()
	f := &netlink.ConntrackFlow{FamilyType: unix.AF_INET, TimeOut: 600}
	f.Forward = netlink.IPTuple{Protocol: unix.IPPROTO_UDP, SrcIP: client, SrcPort: 40000, DstIP: net.ParseIP(to).To4(), DstPort: port}
	f.Reverse = netlink.IPTuple{Protocol: unix.IPPROTO_UDP, SrcIP: net.ParseIP(from).To4(), SrcPort: replyPort, DstIP: client, DstPort: 40000}
	return f
}

// flowsIn lists the UDP flows of a namespace by destination.
func flowsIn(t *testing.T, s *space) []string {
	t.Helper()
	var all []string
	if err := s.do(func() error {
		list, err := netlink.ConntrackTableList(netlink.ConntrackTable, unix.AF_INET)
		for _, f := range list {
			if f.Forward.Protocol == unix.IPPROTO_UDP {
				all = append(all, fmt.Sprintf("%s:%d", f.Forward.DstIP, f.Forward.DstPort))
			}
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	slices.Sort(all)
	return all
}

// Service empty loses its last endpoint, moves has a NodePort, goes is deleted. kube-proxy leaves goes' flow, which
// leads nowhere (k/k#141371), and deletes a flow to the NodePort's number on another machine. Up to 1.36 it also left
// empty's flow (k/k#139628).
func TestStaleFlows(t *testing.T) {
	t.Parallel()
	o := &sim.Objects{
		Nodes:    []*corev1.Node{plainNode()},
		Services: []*corev1.Service{udpService("empty", "10.96.0.1", 0), udpService("moves", "10.96.0.2", 30053), udpService("goes", "10.96.0.3", 0)},
		Slices: []*discoveryv1.EndpointSlice{
			udpSlice("e", "empty", "10.128.0.1"), udpSlice("m", "moves", "10.128.0.2"), udpSlice("g", "goes", "10.128.0.4"),
		},
	}
	k, f := watching(t, Setting{Variant: iptables.Legacy, Config: config.New()}, o)
	in, err := startInstalled(t.Context(), Setting{Variant: iptables.Legacy, Config: config.New()}, o.Nodes[0], f)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(in.stop)
	settle(t, k, f)
	if _, err := in.rules(t.Context(), f, nil); err != nil {
		t.Fatal(err)
	}
	for _, s := range []*space{k.space, in.space} {
		for _, entry := range []*netlink.ConntrackFlow{
			flow("10.96.0.1", 53, "10.128.0.1", 53), flow("10.96.0.2", 53, "10.128.0.2", 53), flow("10.96.0.3", 53, "10.128.0.4", 53),
			flow("198.51.100.7", 30053, "198.51.100.7", 30053),
		} {
			if err := s.do(func() error { return netlink.ConntrackCreate(netlink.ConntrackTable, unix.AF_INET, entry) }); err != nil {
				t.Fatal(err)
			}
		}
	}
	// The Service goes first: seen without its slice, it would be one that has lost its last endpoint.
	for _, trace := range [][]sim.Change{
		append(update(udpSlice("e", "empty"), udpSlice("m", "moves", "10.128.0.3")), sim.Change{Op: sim.Delete, Object: o.Services[2]}),
		{{Op: sim.Delete, Object: o.Slices[2]}},
	} {
		if err := f.apply(t.Context(), trace); err != nil {
			t.Fatal(err)
		}
		settle(t, k, f)
	}
	until(t, "kube-proxy deletes the flow to the removed endpoint", func() bool { return !slices.Contains(flowsIn(t, k.space), "10.96.0.2:53") })
	if got := fmt.Sprint(flowsIn(t, k.space)); got != "[10.96.0.3:53]" {
		t.Errorf("kube-proxy left %s: is this a later version, in which the difference has gone?", got)
	}
	if _, err := in.rules(t.Context(), f, nil); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(flowsIn(t, in.space)); got != "[198.51.100.7:30053]" {
		t.Errorf("Synclab's proxier left %s", got)
	}
}

// UDP endpoints change, and the restore fails. When kube-proxy repeats the sync, it has forgotten which flows to delete
// (k/k#112604). Synclab: TestConntrackFailureFailsNoSync of package proxier, TestFailureLosesNothing of conntrack.
func TestKubeProxyForgetsFlowsOfAFailedSync(t *testing.T) {
	t.Parallel()
	fail := filepath.Join(t.TempDir(), "fail")
	s := Setting{Variant: iptables.Legacy, Config: config.New()}
	s.tools = scripts(map[string]string{"restore": fmt.Sprintf("[ -e %[1]s ] && rm %[1]s && exit 1\nexec \"$tool\" \"$@\"\n", fail)})
	o := &sim.Objects{
		Nodes: []*corev1.Node{plainNode()}, Services: []*corev1.Service{udpService("u", "10.96.0.1", 0)},
		Slices: []*discoveryv1.EndpointSlice{udpSlice("s", "u", "10.128.0.1")},
	}
	k, f := watching(t, s, o)
	settle(t, k, f)
	if err := k.space.do(func() error {
		return netlink.ConntrackCreate(netlink.ConntrackTable, unix.AF_INET, flow("10.96.0.1", 53, "10.128.0.1", 53))
	}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ fails, left bool }{{true, true}, {false, false}} {
		address := map[bool]string{true: "10.128.0.2", false: "10.128.0.3"}[c.fails]
		if c.fails {
			if err := os.WriteFile(fail, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := f.apply(t.Context(), update(udpSlice("s", "u", address))); err != nil {
			t.Fatal(err)
		}
		chain := endpointChain("ns/u", "udp", netip.AddrPortFrom(netip.MustParseAddr(address), 53))
		until(t, "the new endpoint's chain", func() bool {
			there, err := k.has(both[0], chain)
			return err == nil && there
		})
		settle(t, k, f) // the conntrack cleanup of a sync is done once the next sync is written
		if left := len(flowsIn(t, k.space)) > 0; left != c.left {
			t.Errorf("the sync failed at first: %t; the flow is left: %t", c.fails, left)
		}
	}
}

// A restore that rejects the rules of one Service rejects all rules, and kube-proxy does not try without that Service.
// Later Services get no rules. Synclab: TestRefusedRules, TestManyRefused of package proxier.
func TestKubeProxyLetsOneServiceStopAll(t *testing.T) {
	t.Parallel()
	log := filepath.Join(t.TempDir(), "refused")
	s := Setting{Variant: iptables.Legacy, Config: config.New()}
	s.tools = scripts(map[string]string{"restore": fmt.Sprintf(
		"payload=$(cat)\ncase $payload in *ns/bad*) echo refused >>%s; exit 2;; esac\nprintf '%%s\\n' \"$payload\" | \"$tool\" \"$@\"\n", log)})
	k, f := watching(t, s, oneService())
	settle(t, k, f)
	bad, good := plainService("bad", "10.96.0.2"), plainService("good", "10.96.0.3")
	if err := f.apply(t.Context(), sim.Trace{{Op: sim.Add, Object: bad}}); err != nil {
		t.Fatal(err)
	}
	refusals := func() int {
		text, _ := os.ReadFile(log)
		return strings.Count(string(text), "refused")
	}
	until(t, "a refusal", func() bool { return refusals() > 0 })
	if err := f.apply(t.Context(), sim.Trace{{Op: sim.Add, Object: good}, {Op: sim.Add, Object: plainSlice("g", "good", "10.128.0.9")}}); err != nil {
		t.Fatal(err)
	}
	before := refusals()
	until(t, "three more refusals", func() bool { return refusals() >= before+3 })
	rules, err := saveIn(k.space, k.variant, both[0])
	if err != nil {
		t.Fatal(err)
	}
	if len(rules["ns/a"]) == 0 || len(rules["ns/good"]) != 0 {
		t.Errorf("want the rules of a, and none of good: is this a later version, in which the difference has gone?")
	}
}

// Two Services have the same address and port. At every sync, kube-proxy chooses at random which Service gets the
// packets (k/k#69599). Synclab chooses the older Service: TestOldestServiceWins of package proxier.
func TestKubeProxyDrawsTheOrderOfServices(t *testing.T) {
	t.Parallel()
	o := oneService()
	o.Services = append(o.Services, plainService("b", "10.96.0.2"))
	o.Slices = append(o.Slices, plainSlice("t", "b", "10.128.0.2"))
	for _, svc := range o.Services {
		svc.Spec.ExternalIPs = []string{"203.0.113.1"}
		sim.DefaultService(svc)
	}
	k, f := watching(t, Setting{Variant: iptables.Legacy, Config: config.New()}, o)
	path, err := iptables.FindBinary(iptables.Binary(iptables.Legacy, both[0], ""))
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	const draws = 200
	for range draws {
		settle(t, k, f)
		var out []byte
		if err := k.space.do(func() (err error) {
			out, err = exec.Command(path, "-t", "nat", "-S", "KUBE-SERVICES").Output()
			return err
		}); err != nil {
			t.Fatal(err)
		}
		first := "a"
		if a, b := strings.Index(string(out), "ns/a external IP"), strings.Index(string(out), "ns/b external IP"); a < 0 || b < 0 {
			t.Fatalf("a rule is missing:\n%s", out)
		} else if b < a {
			first = "b"
		}
		if seen[first]++; len(seen) == 2 {
			break
		}
	}
	t.Logf("first Service: %v", seen)
	if len(seen) != 2 {
		t.Errorf("the same %d times: is this a later version, in which the difference has gone?", draws)
	}
}

// kube-proxy loses its node's first event if the event comes before its handler is registered. One CPU for all its
// threads makes that likely. kube-proxy then knows no zone, and sends traffic to all zones.
func TestKubeProxyMayLoseItsZone(t *testing.T) {
	t.Parallel()
	taskset, err := exec.LookPath("taskset")
	if err != nil {
		t.Skip(err)
	}
	one := filepath.Join(t.TempDir(), "kube-proxy")
	script := fmt.Sprintf("#!/bin/sh\nexport GOMAXPROCS=8\nexec %s -c 0 %s \"$@\"\n", taskset, kubeProxyCommand(t))
	if err := os.WriteFile(one, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	const starts = 60 // about one start in ten loses the zone
	for n := range starts {
		var found *Finding
		c := Comparison{First: Subject{KubeProxy: true}, Second: Subject{Real: true}, KubeProxy: one, State: func(_ *Batch, f *Finding) { found = f }}
		b := &Batch{Name: t.Name(), Setting: Setting{Variant: iptables.Legacy, Config: config.New()}}
		steps := []Step{{What: "at first", Objects: twoZones()}}
		b.Next = func() (Step, bool, error) {
			if len(steps) == 0 {
				return Step{}, false, nil
			}
			step := steps[0]
			steps = nil
			return step, true, nil
		}
		if err := c.Run(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		if found != nil {
			t.Logf("lost at start %d", n+1)
			only(t, found, "ns/a", EntryZone)
			return
		}
	}
	t.Skipf("not lost in %d starts", starts)
}
