package proxier

import (
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"synclab/bench/lab/netns"
	"synclab/bench/verify/walk"
	"synclab/proxier/iptables"
	"synclab/proxier/iptables/prefix"
)

// The kernel's counters show a packet's path through the tree. The packet crosses as many rules as the ruleset
// evaluator reports.
func TestTreeCounters(t *testing.T) {
	const services = 600
	for _, variant := range []iptables.Variant{iptables.Legacy, iptables.Nft} {
		t.Run(string(variant), func(t *testing.T) {
			netns.Fresh(t)
			needsLargeRestores(t, variant)
			everywhere(t)
			e := testEngine(t, corev1.IPv4Protocol, hostOf(t, variant), treeLayout)
			var vips []netip.AddrPort
			for i := range services {
				vips = append(vips, udpService(e, i))
			}
			if err := e.sync(t.Context()); err != nil {
				t.Fatal(err)
			}
			rules, err := walk.ParseIptables(corev1.IPv4Protocol, save(t, variant))
			if err != nil {
				t.Fatal(err)
			}
			walker := walk.New(rules, walk.NodeAddresses{})
			for i := 0; i < services; i += 120 {
				packet := walk.Packet{Protocol: walk.UDP, Source: netip.MustParseAddrPort("127.0.0.1:40000"), Destination: vips[i]}
				verdict, err := walker.Walk(&packet)
				if err != nil {
					t.Fatal(err)
				}
				before := counters(t, save(t, variant, "-c"))
				send(t, vips[i])
				crossed, chains := way(before, counters(t, save(t, variant, "-c")))
				if crossed != verdict.Crossed.Dispatch || chains < 4 {
					t.Errorf("%s crosses %d rules in %d chains, %d by the evaluator", vips[i], crossed, chains, verdict.Crossed.Dispatch)
				}
			}
		})
	}
}

func hostOf(t *testing.T, variant iptables.Variant) iptables.Tables {
	t.Helper()
	host, err := iptables.NewHost(iptables.RestorerOptions{Variant: variant, Family: corev1.IPv4Protocol})
	if err != nil {
		t.Skip(err)
	}
	return host
}

// everywhere routes all addresses of the namespace to loopback.
func everywhere(t *testing.T) {
	t.Helper()
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	all := &net.IPNet{IP: net.IPv4zero, Mask: net.CIDRMask(0, 32)}
	if err := netlink.RouteAdd(&netlink.Route{LinkIndex: lo.Attrs().Index, Dst: all, Scope: netlink.SCOPE_LINK}); err != nil {
		t.Fatal(err)
	}
}

// udpService adds a Service with one endpoint and returns the Service's address.
func udpService(e *engine, i int) netip.AddrPort {
	name, addr := fmt.Sprintf("svc-%d", i), fmt.Sprintf("10.96.%d.%d", i*7%256, i/256)
	e.tracker.SetService(&corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, ClusterIP: addr,
			Ports: []corev1.ServicePort{{Protocol: corev1.ProtocolUDP, Port: 53}}},
	}, e.clock.Now())
	e.tracker.SetSlice(&discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "ns", Name: name + "-a", Labels: map[string]string{discoveryv1.LabelServiceName: name}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: ptr.To(""), Protocol: ptr.To(corev1.ProtocolUDP), Port: ptr.To[int32](53)}},
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"10.128.0.1"}}},
	}, e.clock.Now())
	return netip.AddrPortFrom(netip.MustParseAddr(addr), 53)
}

func send(t *testing.T, to netip.AddrPort) {
	t.Helper()
	conn, err := net.Dial("udp", to.String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
}

func save(t *testing.T, variant iptables.Variant, flags ...string) []byte {
	t.Helper()
	binary, err := iptables.FindBinary(iptables.Binary(variant, corev1.IPv4Protocol, "save"))
	if err != nil {
		t.Skip(err)
	}
	out, err := exec.Command(binary, append(flags, "-t", "nat")...).Output()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// counted is a rule with the number of packets that it matched.
type counted struct {
	chain, rule, packets string
}

func counters(t *testing.T, text []byte) (all []counted) {
	t.Helper()
	for line := range strings.Lines(string(text)) {
		count, rule, ok := strings.Cut(strings.TrimSpace(line), " -A ")
		if !ok {
			continue
		}
		packets, _, _ := strings.Cut(strings.TrimPrefix(count, "["), ":")
		chain, rule, _ := strings.Cut(rule, " ")
		all = append(all, counted{chain, rule, packets})
	}
	return all
}

// way returns the path of the packet between two readings of the counters, from OUTPUT to the chain of a Service: how
// many rules it crossed, and in how many chains.
func way(before, after []counted) (crossed, chains int) {
	place, chain := 0, ""
	for i, rule := range after {
		if place++; rule.chain != chain {
			place, chain = 1, rule.chain
		}
		dispatch := chain == "OUTPUT" || chain == "KUBE-SERVICES" || strings.HasPrefix(chain, "KUBE-TREE-")
		if dispatch && rule.packets != before[i].packets {
			crossed, chains = crossed+place, chains+1
		}
	}
	return crossed, chains
}

// The kernel accepts the longest possible path: a tree of prefix.MaxDepth chains, then a Service with a firewall.
func TestDeepestWay(t *testing.T) {
	for _, variant := range []iptables.Variant{iptables.Legacy, iptables.Nft} {
		t.Run(string(variant), func(t *testing.T) {
			netns.Fresh(t)
			binary, err := iptables.FindBinary(iptables.Binary(variant, corev1.IPv4Protocol, "restore"))
			if err != nil {
				t.Skip(err)
			}
			way := []string{"KUBE-SERVICES"}
			for i := range prefix.MaxDepth {
				way = append(way, fmt.Sprintf("KUBE-TREE-%d", i))
			}
			way = append(way, "KUBE-FW-X", "KUBE-EXT-X", "KUBE-SVC-X", "KUBE-SEP-X", "KUBE-MARK-MASQ")
			declared, rules := "*nat\n", "-A PREROUTING -j KUBE-SERVICES\n"
			for i, chain := range way {
				declared += ":" + chain + " - [0:0]\n"
				to := "-j MARK --or-mark 0x4000"
				if i+1 < len(way) {
					to = "-j " + way[i+1]
				}
				if strings.HasPrefix(chain, "KUBE-TREE-") && strings.Contains(to, "KUBE-TREE-") {
					to = strings.Replace(to, "-j", "-g", 1)
				}
				rules += "-A " + chain + " " + to + "\n"
			}
			cmd := exec.Command(binary, "--noflush")
			cmd.Stdin = strings.NewReader(declared + rules + "COMMIT\n")
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%d chains: %v\n%s", len(way), err, out)
			}
		})
	}
}
