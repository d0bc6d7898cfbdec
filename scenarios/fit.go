package scenarios

import (
	"fmt"
	"math"
	"math/bits"
	"net/netip"
	"slices"

	"synclab/internal/inet"
)

// The networks of the simulated cluster that a shape does not choose, IPv4 first. Its service and pod networks must
// not overlap them.
var (
	// NodeNetworks hold the addresses of Nodes.
	NodeNetworks = []netip.Prefix{netip.MustParsePrefix("192.168.0.0/16"), netip.MustParsePrefix("fd00:192:168::/64")}
	// LoadBalancerNetworks hold the addresses of load balancers, ExternalIPNetworks the externalIPs. 198.18.0.0/15 is
	// set aside for benchmarks (RFC 2544), 2001:db8::/32 for documentation (RFC 3849).
	LoadBalancerNetworks = []netip.Prefix{netip.MustParsePrefix("198.18.0.0/16"), netip.MustParsePrefix("2001:db8:18::/64")}
	ExternalIPNetworks   = []netip.Prefix{netip.MustParsePrefix("198.19.0.0/16"), netip.MustParsePrefix("2001:db8:19::/64")}
)

// The API server's default --service-node-port-range.
const firstNodePort, lastNodePort = 30000, 32767

// taken are the networks that neither Services nor pods may use.
var taken = func() []namedNetwork {
	networks := []namedNetwork{
		{"loopback", netip.MustParsePrefix("127.0.0.0/8")}, {"link-local", netip.MustParsePrefix("169.254.0.0/16")},
		{"multicast", netip.MustParsePrefix("224.0.0.0/3")}, {"this-network", netip.MustParsePrefix("0.0.0.0/8")},
		{"loopback", netip.MustParsePrefix("::1/128")}, {"link-local", netip.MustParsePrefix("fe80::/10")},
		{"multicast", netip.MustParsePrefix("ff00::/8")},
	}
	for _, n := range NodeNetworks {
		networks = append(networks, namedNetwork{"node", n})
	}
	for _, n := range LoadBalancerNetworks {
		networks = append(networks, namedNetwork{"load balancer", n})
	}
	for _, n := range ExternalIPNetworks {
		networks = append(networks, namedNetwork{"externalIP", n})
	}
	return networks
}()

type namedNetwork struct {
	name    string
	network netip.Prefix
}

// familyNetworks are the networks of a list, by family.
type familyNetworks map[string]netip.Prefix

// checkNetworks parses the service and pod networks. It reports a family without one of each, and networks that
// overlap each other or a taken one.
func (s *Shape) checkNetworks(ps *Problems) (service, pod familyNetworks) {
	service = s.parseNetworks("shape.serviceCIDRs", s.ServiceCIDRs, ps)
	pod = s.parseNetworks("shape.podCIDRs", s.PodCIDRs, ps)
	for _, f := range s.Families {
		a, b := service[f], pod[f]
		if a.IsValid() && b.IsValid() && a.Overlaps(b) {
			ps.add("shape.podCIDRs", fmt.Sprintf("%s overlaps %s of shape.serviceCIDRs", b, a))
		}
	}
	return service, pod
}

func (s *Shape) parseNetworks(path string, cidrs []string, ps *Problems) familyNetworks {
	networks := familyNetworks{}
	for i, cidr := range cidrs {
		at := join(path, fmt.Sprint(i))
		p, err := netip.ParsePrefix(cidr)
		switch {
		case err != nil:
			ps.add(at, quote(cidr)+" is not a network: want an address and a length, such as 10.96.0.0/12")
			continue
		case p.Addr().Is4In6():
			ps.add(at, quote(cidr)+" is an IPv4 network written as IPv6: write it as IPv4")
			continue
		case p != p.Masked():
			ps.add(at, fmt.Sprintf("%s has bits set beyond its length: want %s", cidr, p.Masked()))
			continue
		}
		family := string(inet.FamilyOf(p.Addr()))
		if !slices.Contains(s.Families, family) {
			ps.add(at, fmt.Sprintf("%s is %s, which shape.families does not have", cidr, family))
			continue
		}
		if other, twice := networks[family]; twice {
			ps.add(at, fmt.Sprintf("%s is a second %s network after %s: want one a family", cidr, family, other))
			continue
		}
		networks[family] = p
		for _, t := range taken {
			if p.Overlaps(t.network) {
				ps.add(at, fmt.Sprintf("%s overlaps the %s network %s", cidr, t.name, t.network))
			}
		}
	}
	for _, f := range s.Families {
		if _, ok := networks[f]; !ok && !covers(pathsOf(*ps), path) && !anyBelow(*ps, path) {
			ps.add(path, fmt.Sprintf("has no %s network, and shape.families has %s", f, f))
		}
	}
	return networks
}

func pathsOf(ps Problems) []string {
	paths := make([]string, len(ps))
	for i, p := range ps {
		paths[i] = p.Path
	}
	return paths
}

// anyBelow reports whether a problem is about an element of the path's list.
func anyBelow(ps Problems, path string) bool {
	return slices.ContainsFunc(ps, func(p Problem) bool { return covers([]string{path}, p.Path) })
}

// checkFit checks that all objects fit at the moment when most of them exist.
func (s *Scenario) checkFit(service, pod familyNetworks, ps *Problems) {
	s.Shape.checkServiceAddresses(service, ps)
	s.Shape.checkNodePorts(ps)

	most := s.mostEndpoints()
	if most > MaxTotalEndpoints {
		ps.add("shape.endpoints.count", fmt.Sprintf("%s endpoints in all are not allowed: want at most %s, as the simulated cluster is in memory",
			thousands(most), thousands(int64(MaxTotalEndpoints))))
		return
	}
	if n := s.Shape.SharedPods; n > 0 {
		most = int64(n)*int64(s.Shape.Namespaces) + s.walkSteps().added
	}
	for _, f := range s.Shape.Families {
		if room := podAddresses(pod[f], s.Shape.Nodes); most > room {
			ps.add("shape.podCIDRs", fmt.Sprintf("%s does not fit: up to %s endpoints (with those that the steps add) need an address each, and %s Nodes have room for %s there",
				pod[f], thousands(most), thousands(s.Shape.Nodes), thousands(room)))
		}
	}
}

// chosenClusterIPs is the number of addresses kept free at the start of a service network. They are for Services that
// choose their address: DNS has the tenth by custom.
const chosenClusterIPs = 10

func (s *Shape) checkServiceAddresses(service familyNetworks, ps *Problems) {
	numbered := atMost(s.Services, 1-s.Types["Headless"]-s.Types["ExternalName"])
	for _, f := range s.Families {
		if room := usableAddresses(service[f]) - chosenClusterIPs; numbered > room {
			ps.add("shape.serviceCIDRs", fmt.Sprintf("%s does not fit: %s clusterIPs are needed, and it has room for %s",
				service[f], thousands(numbered), thousands(room)))
		}
	}
	for _, fixed := range []struct {
		path    string
		share   float64
		network netip.Prefix
	}{
		{"shape.types.LoadBalancer", s.Types["LoadBalancer"], LoadBalancerNetworks[0]},
		{"shape.externalIPs", s.ExternalIPs, ExternalIPNetworks[0]},
	} {
		if needed, room := atMost(s.Services, fixed.share), usableAddresses(fixed.network); needed > room {
			ps.add(fixed.path, fmt.Sprintf("%s addresses do not fit: %s has room for %s", thousands(needed), fixed.network, thousands(room)))
		}
	}
}

// checkNodePorts counts what the API server allocates: a node port for each
// port of NodePort and LoadBalancer Services, and a health-check node port for
// each LoadBalancer with externalTrafficPolicy Local, of the same range.
func (s *Shape) checkNodePorts(ps *Problems) {
	perPort := atMost(s.Services, s.Types["NodePort"]+s.Types["LoadBalancer"]) * int64(s.Ports)
	checks := atMost(s.Services, s.Types["LoadBalancer"]*s.ExternalLocal)
	const room = lastNodePort - firstNodePort + 1
	if perPort+checks > room {
		ps.add("shape.types", fmt.Sprintf("NodePort and LoadBalancer need %s node ports (%s for %d port(s) each, %s for health checks), and %d-%d has %s: want smaller shares, fewer ports or fewer Services",
			thousands(perPort+checks), thousands(perPort), s.Ports, thousands(checks), firstNodePort, lastNodePort, thousands(int64(room))))
	}
}

// atMost returns a share of n, rounded up. It rounds to six decimals first, so that 0.1 × 30 is 3 in floating point.
func atMost(n int, share float64) int64 {
	return int64(math.Ceil(math.Round(float64(n)*share*1e6) / 1e6))
}

// mostEndpoints bounds the number of endpoints at any moment from above, if no address is used twice. Changed
// endpoints take new addresses before the old ones are free.
func (s *Scenario) mostEndpoints() int64 {
	most := s.endpointsOf(s.Shape.Services)
	switch e := s.Shape.Endpoints; e.Distribution {
	case "uniform":
		most = int64(s.Shape.Services) * int64(e.Max)
	case "zipf": // sizes are random: allow a quarter more, and the largest Service twice
		most += most/4 + 2*int64(e.Max)
	}
	most = int64(math.Ceil(float64(most) * (1 - s.Shape.WithoutEndpoint)))
	return most + s.walkSteps().added
}

// endpointsOf returns the endpoints of n Services, if there are so many.
func (s *Scenario) endpointsOf(n int) int64 {
	return min(int64(n), int64(s.Shape.Services)) * int64(s.Shape.Endpoints.Count)
}

// podAddresses returns the room for pods. Like a cluster's controller, it divides the network into a power of two of
// equal parts, one a Node. One part in fifty stays free, as Nodes do not fill evenly.
func podAddresses(p netip.Prefix, nodes int) int64 {
	width := bits.Len(uint(nodes - 1))
	if p.Bits()+width > p.Addr().BitLen()-4 {
		return usableAddresses(p) // too small to divide: pods are numbered straight through
	}
	part := usableAddresses(netip.PrefixFrom(p.Addr(), p.Bits()+width))
	room := min(part, math.MaxInt64/2/int64(nodes)) * int64(nodes)
	return room - room/50
}

// usableAddresses excludes .0 and .255 of each 256 addresses, as they look like network and broadcast addresses.
func usableAddresses(p netip.Prefix) int64 {
	size := int64(1) << min(p.Addr().BitLen()-p.Bits(), 60)
	usable := size / 256 * 254
	if rest := size % 256; rest > 1 {
		usable += rest - 1
	}
	return usable
}
