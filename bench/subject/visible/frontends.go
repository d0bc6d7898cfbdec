package visible

import (
	"net/netip"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"synclab/proxier/plan"
	"synclab/proxier/tracker"
)

// place is a frontend of a Service port; without an address, a NodePort of a family.
type place struct {
	family   corev1.IPFamily
	protocol corev1.Protocol
	addr     netip.AddrPort
}

// frontends are the places of all Service ports.
type frontends struct {
	mu     sync.Mutex
	places map[portKey][]place
	claims map[place][]*plan.ServicePort // the oldest Service first
}

func newFrontends() *frontends {
	return &frontends{places: map[portKey][]place{}, claims: map[place][]*plan.ServicePort{}}
}

// place sets a port's addresses. A deleted port's addresses stay, because its absence must become visible there.
func (f *frontends) place(family corev1.IPFamily, name tracker.ServicePortName, port *plan.ServicePort) {
	f.mu.Lock()
	defer f.mu.Unlock()
	key := portKey{family, name}
	for _, p := range f.places[key] {
		f.claims[p] = slices.DeleteFunc(f.claims[p], func(c *plan.ServicePort) bool { return c.Name == name })
		if len(f.claims[p]) == 0 {
			delete(f.claims, p)
		}
	}
	if port == nil {
		return
	}
	f.places[key] = placesOf(family, port)
	for _, p := range f.places[key] {
		at, _ := slices.BinarySearchFunc(f.claims[p], port, plan.Compare)
		f.claims[p] = slices.Insert(f.claims[p], at, port)
	}
}

// placesOf returns a port's unique addresses, the cluster IP first.
func placesOf(family corev1.IPFamily, port *plan.ServicePort) []place {
	var places []place
	add := func(addr netip.Addr, number uint16) {
		if p := (place{family, port.Name.Protocol, netip.AddrPortFrom(addr, number)}); !slices.Contains(places, p) {
			places = append(places, p)
		}
	}
	add(port.ClusterIP, port.Port)
	for _, addr := range slices.Concat(port.ExternalIPs, port.LoadBalancerVIPs) {
		add(addr, port.Port)
	}
	if port.NodePort != 0 {
		add(netip.Addr{}, port.NodePort)
	}
	return places
}

// of returns a port's places, also of a deleted port.
func (f *frontends) of(key portKey) []place {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.places[key]
}

// shows reports which endpoint lists of a port packets may reach through its cluster IP, or through another place.
func shows(port *plan.ServicePort, clusterIP bool) (cluster, local bool) {
	if clusterIP {
		return !port.InternalPolicyLocal, port.InternalPolicyLocal
	}
	return true, port.ExternalPolicyLocal
}

// contested reports which endpoint lists of a port are reachable only through places that other ports have too.
func (f *frontends) contested(key portKey) (cluster, local bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var alone, shared struct{ cluster, local bool }
	for i, p := range f.places[key] {
		claims := f.claims[p]
		at := slices.IndexFunc(claims, func(c *plan.ServicePort) bool { return c.Name == key.ServicePortName })
		if at < 0 { // the port was deleted
			return false, false
		}
		toCluster, toLocal := shows(claims[at], i == 0)
		of := &alone
		if len(claims) > 1 {
			of = &shared
		}
		of.cluster, of.local = of.cluster || toCluster, of.local || toLocal
	}
	return shared.cluster && !alone.cluster, shared.local && !alone.local
}
