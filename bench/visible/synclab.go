package visible

import (
	"net/netip"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"synclab/proxier/kernel"
	"synclab/proxier/nftables"
	"synclab/proxier/plan"
	"synclab/proxier/tracker"
)

// ownNftables is the lab's own backend nftables. In its table nothing is called after a Service port: it is looked up as
// packets find it, from each of its addresses, by single keys, so the dialect has to know these (placed).
type ownNftables struct {
	kernel *kernel.Nftables
	reader *nftables.Reader

	mu     sync.Mutex
	places map[portKey][]place
}

// place is where packets for a Service port come in; without an address, a NodePort.
type place struct {
	protocol corev1.Protocol
	addr     netip.AddrPort
}

func newOwnNftables() (*ownNftables, error) {
	k, err := kernel.OpenNftables()
	if err != nil {
		return nil, err
	}
	reader, err := nftables.OpenReader()
	if err != nil {
		k.Close()
		return nil, err
	}
	return &ownNftables{kernel: k, reader: reader, places: map[portKey][]place{}}, nil
}

// place takes note of a port's addresses. Those of a port that is gone stay: the kernel is to be seen without it.
func (n *ownNftables) place(family corev1.IPFamily, port *plan.ServicePort) {
	protocol := port.Name.Protocol
	places := []place{{protocol, netip.AddrPortFrom(port.ClusterIP, port.Port)}}
	for _, addr := range slices.Concat(port.ExternalIPs, port.LoadBalancerVIPs) {
		places = append(places, place{protocol, netip.AddrPortFrom(addr, port.Port)})
	}
	if port.NodePort != 0 {
		places = append(places, place{protocol, netip.AddrPortFrom(netip.Addr{}, port.NodePort)})
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.places[portKey{family, port.Name}] = places
}

func (n *ownNftables) found(family corev1.IPFamily) (bool, error) {
	table, err := n.reader.Table(family)
	return table != "", err
}

func (n *ownNftables) Generation() (Generation, error) {
	id, err := n.kernel.Generation()
	return Generation{Dispatch: uint64(id)}, err
}

func (n *ownNftables) Misses() bool        { return false }
func (n *ownNftables) Look() (Look, error) { return ownLook{n}, nil }

func (n *ownNftables) Endpoint(_ tracker.ServicePortName, text string) string { return text }

func (n *ownNftables) Close() {
	n.kernel.Close()
	n.reader.Close()
}

// ownTables are the two names of the table: one is filled while packets meet the other.
var ownTables = []string{"synclab", "synclab-2"}

func (n *ownNftables) Installed(family corev1.IPFamily) (Installed, error) {
	k, err := kernel.OpenNftables()
	if err != nil {
		return Installed{}, err
	}
	defer k.Close()
	in := Installed{Rules: map[string]int{}}
	for _, table := range ownTables {
		t, err := k.Tally(family, table)
		if err != nil {
			return Installed{}, err
		}
		in.Rules[ownTables[0]] += t.Rules
		in.Chains, in.Elements = in.Chains+t.Chains, in.Elements+t.Elements
	}
	return in, nil
}

type ownLook struct{ *ownNftables }

func (l ownLook) Close() {}

// Port is where packets for all addresses of the port get to.
func (l ownLook) Port(family corev1.IPFamily, port tracker.ServicePortName) (State, error) {
	l.mu.Lock()
	places := l.places[portKey{family, port}]
	l.mu.Unlock()
	id := nftables.IDOf(port)
	var s State
	for _, p := range places {
		ways, err := l.reader.Frontend(family, p.protocol, p.addr)
		if err != nil {
			return State{}, err
		}
		for _, way := range ways {
			if way.Port == id {
				s.Cluster, s.Local = appendTexts(s.Cluster, way.All), appendTexts(s.Local, way.Local)
			}
		}
	}
	for _, list := range []*[]string{&s.Cluster, &s.Local} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	return s, nil
}

func appendTexts(texts []string, endpoints []netip.AddrPort) []string {
	for _, ep := range endpoints {
		texts = append(texts, ep.String())
	}
	return texts
}

// Dispatched: what Port found, it found as packets do.
func (l ownLook) Dispatched(family corev1.IPFamily, port tracker.ServicePortName) (cluster, local bool, err error) {
	s, err := l.Port(family, port)
	return len(s.Cluster) > 0, len(s.Local) > 0, err
}
