package visible

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"synclab/proxier/nftables"
	"synclab/proxier/plan"
	"synclab/proxier/tracker"
)

// ownNftables reads Synclab's backend nftables. Nothing in its table is named after a Service port. The reader looks a
// port up as packets do, by single keys of its addresses, so the reader needs these addresses (placed).
type ownNftables struct {
	commits
	reader *nftables.Reader
	*frontends
}

func newOwnNftables() (*ownNftables, error) {
	c, err := newCommits("synclab", "synclab-2") // one is filled while packets traverse the other
	if err != nil {
		return nil, err
	}
	reader, err := nftables.OpenReader()
	if err != nil {
		c.Close()
		return nil, err
	}
	return &ownNftables{c, reader, newFrontends()}, nil
}

// hidden returns the endpoint lists of a port that none of its places shows.
func (n *ownNftables) hidden(key portKey) (hidden struct{ Cluster, Local bool }) {
	n.mu.Lock()
	defer n.mu.Unlock()
	hidden.Cluster, hidden.Local = true, true
	for i, p := range n.places[key] {
		at := slices.IndexFunc(n.claims[p], func(c *plan.ServicePort) bool { return c.Name == key.ServicePortName })
		if at < 0 { // the port was deleted: its endpoints must disappear everywhere
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

// holds reports whether a port that claims a place gets all packets for it. It does not if the port has no endpoints
// for the place, or if only some sources may use its load balancer. Then a younger Service gets the other packets.
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

func (n *ownNftables) Look() (Snapshot, error) { return ownLook{n}, nil }

func (n *ownNftables) Close() {
	n.commits.Close()
	n.reader.Close()
}

type ownLook struct{ *ownNftables }

func (l ownLook) Close() {}

// Port returns the endpoints for packets to all addresses of the port.
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

// Dispatched: Port uses the lookup of packets, so its endpoints are dispatched.
func (l ownLook) Dispatched(family corev1.IPFamily, port tracker.ServicePortName) (cluster, local bool, err error) {
	s, err := l.Port(family, port)
	return len(s.Cluster) > 0, len(s.Local) > 0, err
}

// Unrecognised: this reader shares its source with the writer, and inconsistent content is a read error.
func (ownLook) Unrecognised(corev1.IPFamily, tracker.ServicePortName) (string, error) { return "", nil }
