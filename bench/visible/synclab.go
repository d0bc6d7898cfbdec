package visible

import (
	"net/netip"
	"slices"

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
	*frontends
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
	return &ownNftables{k, reader, newFrontends()}, nil
}

// hidden are the endpoints of a port that none of its places shows.
func (n *ownNftables) hidden(key portKey) (hidden struct{ Cluster, Local bool }) {
	n.mu.Lock()
	defer n.mu.Unlock()
	hidden.Cluster, hidden.Local = true, true
	for i, p := range n.places[key] {
		at := slices.IndexFunc(n.claims[p], func(c *plan.ServicePort) bool { return c.Name == key.ServicePortName })
		if at < 0 { // the port is gone: its endpoints are to be seen no more, anywhere
			return struct{ Cluster, Local bool }{}
		}
		if slices.ContainsFunc(n.claims[p][:at], func(c *plan.ServicePort) bool { return holds(c, p) }) {
			continue
		}
		cluster, local := shows(n.claims[p][at], i == 0)
		hidden.Cluster, hidden.Local = hidden.Cluster && !cluster, hidden.Local && !local
	}
	return hidden
}

// holds says whether no packet for a place that a port claims gets to a younger Service's: not if the port is without
// endpoints for it, if those it has are for some senders only, or if only some senders may use the load balancer.
func holds(port *plan.ServicePort, p place) bool {
	switch addr := p.addr.Addr(); {
	case addr == port.ClusterIP:
		return port.HasInternalEndpoints()
	case !port.HasExternalEndpoints():
		return false
	case addr.IsValid() && !slices.Contains(port.ExternalIPs, addr):
		return len(port.SourceRanges) == 0
	}
	return true
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
	key := portKey{family, port}
	id := nftables.IDOf(port)
	s := State{Hidden: l.hidden(key)}
	for _, p := range l.of(key) {
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

// Unrecognised: what this reads is written by the same source, and what does not fit together is an error of reading.
func (ownLook) Unrecognised(corev1.IPFamily, tracker.ServicePortName) (string, error) { return "", nil }
