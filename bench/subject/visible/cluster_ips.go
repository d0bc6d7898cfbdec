package visible

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"synclab/proxier/plan"
	"synclab/proxier/tracker"
)

// clusterIPs is a Snapshot of a reader that looks up the endpoints of an address, as the kernel does for a packet.
type clusterIPs struct {
	reader RulesetReader
	*frontends
	endpoints func(place) ([]string, error)
	// elsewhere: where this node has no endpoint that a traffic policy Local allows, packets go to the others.
	elsewhere bool
}

func (l clusterIPs) Generation() (Generation, error) { return l.reader.Generation() }
func (l clusterIPs) Close()                          {}

// Port returns the endpoints of the port's cluster IP, if no older Service has it too.
func (l clusterIPs) Port(family corev1.IPFamily, port tracker.ServicePortName) (State, error) {
	var s State
	s.Hidden.Cluster, s.Hidden.Local = true, true
	at, by, shown := l.clusterIP(portKey{family, port})
	if !shown {
		return s, nil
	}
	local := by != nil && by.InternalPolicyLocal && !(l.elsewhere && len(by.Local) == 0)
	texts, err := l.endpoints(at)
	if err != nil {
		return s, err
	}
	slices.Sort(texts)
	if texts = slices.Compact(texts); local {
		s.Local, s.Hidden.Local = texts, false
	} else {
		s.Cluster, s.Hidden.Cluster = texts, false
	}
	return s, nil
}

// clusterIP returns the place of a port's cluster IP, and the port that has it; nil if that was deleted, and its endpoints
// must disappear. It is not shown if an older Service has the address.
func (f *frontends) clusterIP(key portKey) (at place, by *plan.ServicePort, shown bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	places := f.places[key]
	if len(places) == 0 {
		return place{}, nil, false
	}
	claims := f.claims[places[0]]
	if len(claims) == 0 {
		return places[0], nil, true
	}
	return places[0], claims[0], claims[0].Name == key.ServicePortName
}

// Dispatched: Port uses the lookup of packets, so its endpoints are dispatched.
func (l clusterIPs) Dispatched(family corev1.IPFamily, port tracker.ServicePortName) (cluster, local bool, err error) {
	s, err := l.Port(family, port)
	return len(s.Cluster) > 0, len(s.Local) > 0, err
}

// Unrecognised: an entry has no parts that this reader does not know.
func (clusterIPs) Unrecognised(corev1.IPFamily, tracker.ServicePortName) (string, error) {
	return "", nil
}

// Endpoint: the entries have the addresses themselves.
func (*frontends) Endpoint(_ tracker.ServicePortName, text string) string { return text }
