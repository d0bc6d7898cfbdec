package nftables

import (
	"encoding/binary"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"synclab/bench/verify/walk"
	"synclab/proxier/nftables/objects"
	"synclab/proxier/plan"
)

// Neighbours cannot reach loopback, as in layout classic, not even with packets that belong to no flow.
func TestLoopbackIsGuarded(t *testing.T) {
	settings := plainSettings
	settings.LocalhostNodePorts = true
	c := newCluster(1, corev1.IPv4Protocol)
	_, m := loaded(t, settings, nil)
	ours, theirs := walk.New(rulesOf(t, m), c.world()), walk.New(classic(t, settings, c), c.world())
	for _, from := range []string{"10.9.9.9:1", "127.0.0.1:1"} {
		for _, state := range []walk.State{walk.StateNew, walk.StateEstablished, walk.StateRelated, walk.StateInvalid} {
			p := walk.Packet{
				Input: "eth0", Protocol: walk.TCP, State: state,
				Source: netip.MustParseAddrPort(from), Destination: netip.MustParseAddrPort("127.0.0.1:10249"),
			}
			if want, have := walked(t, theirs, &p), walked(t, ours, &p); !want.Equal(have) {
				t.Errorf("%s:\n%s, not\n%s", &p, have, want)
			}
		}
	}
}

// Clients without room in the affinity set are served too.
func TestNoRoomToRemember(t *testing.T) {
	before := specs[setAffinity].most
	specs[setAffinity].most = 1
	defer func() { specs[setAffinity].most = before }()
	n := newNode(t, corev1.IPv4Protocol)
	p := n.port(1, corev1.ProtocolTCP, 1, 2, 3)
	p.AffinitySeconds = 100
	mustSync(t, n.b, true, []*plan.ServicePort{p})
	for i := range 4 {
		if _, _, err := n.ask(corev1.ProtocolTCP, n.mustAddr(netNode, 1+i%2), p.ClusterIP, p.Port); err != nil {
			t.Fatalf("client %d: %v", 1+i%2, err)
		}
	}
}

// On a kernel that does not report the sizes of sets, the fingerprint ignores them, and the drift check counts
// elements.
func TestSizesAreCounted(t *testing.T) {
	b := onKernel(t, plainSettings)
	mustSync(t, b, true, []*plan.ServicePort{clusterPort(1, 3)})
	reported, err := b.kernel.ReportedSizes(corev1.IPv4Protocol, b.encoder.table)
	if err != nil || len(reported) != int(sets) {
		t.Fatalf("sizes: %v, %v", reported, err)
	}
	counted, err := b.kernel.Sizes(corev1.IPv4Protocol, b.encoder.table)
	if err != nil {
		t.Fatal(err)
	}
	for i, size := range reported {
		if size.Elements >= 0 && counted[i] != size {
			t.Errorf("counted %v, reported %v", counted[i], size)
		}
	}
	noDrift(t, b)
}

// refusedAt contains the installed refused addresses, each once.
func TestRefusedAddressesAreNoted(t *testing.T) {
	installed := func(e objects.Element) refusal {
		return refusal(binary.NativeEndian.Uint32(e.Value[blankLen:])).external()
	}
	most := 0
	seeds(t, 5, func(t *testing.T, c *cluster) {
		r, m := loaded(t, c.settings(), nil)
		for range 100 {
			c.step()
			r.Update(c.take())
			if err := r.Partial(m); err != nil {
				t.Fatal(err)
			}
			noted := 0
			for at, addrs := range r.refusedAt {
				for _, addr := range addrs {
					noted++
					p := place{set: setRefused, proto: at.proto, port: at.port, addr: addr}
					if e, there := m.Sets[setRefused.String()].Elements[string(p.key(nil))]; !there || installed(e) == 0 {
						t.Fatalf("%v is recorded and not installed", p)
					}
				}
			}
			found := 0
			for _, e := range m.Sets[setRefused.String()].Elements {
				if installed(e) != 0 {
					found++
				}
			}
			if noted != found {
				t.Fatalf("%d addresses recorded, %d installed", noted, found)
			}
			most = max(most, noted)
		}
	})
	if most < 3 {
		t.Errorf("no more than %d addresses were refused", most)
	}
}
