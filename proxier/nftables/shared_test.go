package nftables

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"synclab/proxier/backend"
	"synclab/proxier/iptables"
	"synclab/proxier/plan"
	"synclab/proxier/tracker"
)

// sharedBalancers returns load balancers that share one address and port. Each accepts packets of one client, the
// node's address of the same number, and has one endpoint.
func (n *node) sharedBalancers(balancers int) (ports []*plan.ServicePort) {
	for i := 1; i <= balancers; i++ {
		p := n.port(i, corev1.ProtocolUDP, i)
		copied := *p.ServicePort
		client := n.mustAddr(netNode, i)
		copied.NodePort, copied.LoadBalancerVIPs = 0, []netip.Addr{n.mustAddr(netServices, 200)}
		copied.SourceRanges = []netip.Prefix{netip.PrefixFrom(client, client.BitLen())}
		p.ServicePort = &copied
		ports = append(ports, p)
	}
	return ports
}

// answers returns what clients get at the shared address: an endpoint, or an error, which ends the list.
func (n *node) answers(clients int) (answers []string) {
	for i := 1; i <= clients; i++ {
		at, _, err := n.ask(corev1.ProtocolUDP, n.mustAddr(netNode, i), n.mustAddr(netServices, 200), servicePort)
		if err != nil {
			return append(answers, err.Error())
		}
		answers = append(answers, at.String())
	}
	return answers
}

// dropped checks that the client of no balancer cannot send.
func (n *node) dropped(client int) {
	n.t.Helper()
	d := net.Dialer{LocalAddr: net.UDPAddrFromAddrPort(netip.AddrPortFrom(n.mustAddr(netNode, client), 0))}
	c, err := d.Dial("udp", netip.AddrPortFrom(n.mustAddr(netServices, 200), servicePort).String())
	if err != nil {
		n.t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte("?")); !errors.Is(err, syscall.EPERM) {
		n.t.Errorf("client %d sends: %v", client, err)
	}
}

// Any number of load balancers share an address and port, each for separate sources, as in layout classic.
func TestSharedBalancers(t *testing.T) {
	for _, family := range bothFamilies {
		for _, balancers := range []int{17, 40} {
			t.Run(fmt.Sprintf("%s/%d", family, balancers), func(t *testing.T) {
				if _, err := exec.LookPath(iptables.Binary(iptables.Legacy, family, "restore")); err != nil {
					t.Skip(err)
				}
				theirs := newNodeOf(t, family, balancers+1, balancers)
				ports := theirs.sharedBalancers(balancers)
				theirs.classic(ports)
				want := theirs.answers(balancers)
				theirs.dropped(balancers + 1)
				if slices.Contains(want, "") || len(slices.Compact(slices.Clone(want))) != balancers {
					t.Fatalf("layout classic: %v", want)
				}

				n := newNodeOf(t, family, balancers+1, balancers)
				if result := mustSync(t, n.b, true, ports); len(result.Refused) > 0 {
					t.Errorf("refused: %v", result.Refused)
				}
				if got := n.answers(balancers); !slices.Equal(got, want) {
					t.Errorf("full sync: %v, not %v", got, want)
				}
				n.dropped(balancers + 1)

				// Remove the oldest one, then add it again: all others keep their endpoints.
				n.b.Update(plan.Delta{Removed: []tracker.ServicePortName{ports[0].Name}})
				mustSync(t, n.b, false, ports[1:])
				n.dropped(1)
				n.b.Update(plan.Delta{Changed: ports[:1]})
				mustSync(t, n.b, false, ports)
				if got := n.answers(balancers); !slices.Equal(got, want) {
					t.Errorf("partial sync: %v, not %v", got, want)
				}
				noDrift(t, n.b)
			})
		}
	}
}

// classic writes the rules of layout classic.
func (n *node) classic(ports []*plan.ServicePort) {
	n.t.Helper()
	host, err := iptables.NewHost(iptables.RestorerOptions{Variant: iptables.Legacy, Family: n.family, LockFile: filepath.Join(n.t.TempDir(), "lock")})
	if err != nil {
		n.t.Fatal(err)
	}
	b, err := iptables.New(iptables.Options{Options: n.b.opts.Options, Tables: host, Layout: iptables.Classic})
	if err != nil {
		n.t.Fatal(err)
	}
	if _, err := b.Sync(context.Background(), backend.Request{Full: true, Ports: ports}); err != nil {
		n.t.Fatal(err)
	}
}

// Beyond the largest number of claims to a frontend, the next one is refused and reported. A Service port that changes
// keeps its variant.
func TestMostShared(t *testing.T) {
	var ports []*plan.ServicePort
	for i := range mostClaims + 5 {
		p := clusterPort(i, 1)
		p.LoadBalancerVIPs = []netip.Addr{netip.MustParseAddr("198.18.0.1")}
		p.SourceRanges = []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 77, byte(i >> 8), byte(i)}), 32)}
		ports = append(ports, p)
	}
	r, m := loaded(t, plainSettings, ports)
	if served := mostClaims - 1; len(r.entries) != served || len(r.refused) != len(ports)-served { // one may claim it twice
		t.Fatalf("%d are served, %d refused", len(r.entries), len(r.refused))
	}
	if r.refused[ports[len(ports)-1].Name] == nil {
		t.Errorf("refused: %v", r.refused)
	}
	before := len(m.Sets[setLists.String()].Elements)
	for i := range 20 {
		changed := *ports[i*7]
		changed.SourceRanges = []netip.Prefix{netip.MustParsePrefix("10.77.0.0/16")}
		r.Update(plan.Delta{Changed: []*plan.ServicePort{&changed}})
		if err := r.Partial(m); err != nil {
			t.Fatal(err)
		}
	}
	if after := len(m.Sets[setLists.String()].Elements); after != before {
		t.Errorf("%d elements of lists, before %d", after, before)
	}
}
