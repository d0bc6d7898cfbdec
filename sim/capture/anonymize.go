package capture

import (
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"synclab/internal/inet"
	"synclab/sim"
)

// Anonymized is a cluster that cannot be identified.
type Anonymized struct {
	Objects *sim.Objects
	// Pods and Services are the new pod and service ranges, one a family: the clusterCIDR of a proxy's configuration
	// and the service range of a cluster. A family without a separate range has none here.
	Pods, Services []netip.Prefix
}

// wellKnownPorts are port names that occur in every cluster. All others are replaced.
var wellKnownPorts = map[string]bool{"": true, "http": true, "https": true, "grpc": true, "dns": true, "dns-tcp": true, "metrics": true}

// epoch is the creation time of the oldest object of an anonymized cluster. Each next object is a second younger.
var epoch = time.Date(2020, time.January, 1, 0, 0, 0, 0, time.UTC)

// Anonymize returns a copy of the objects with other names and addresses, and without fields that rules do not depend
// on. Equal names, addresses, ranges and zones stay equal, and ranges still contain what they contained.
//
// Kept are: the numbers of Services, ports, endpoints, nodes and zones and their relations; the ports of Services and
// endpoints, types, policies, affinity, conditions, hints; lengths of source ranges; the order in which objects were
// made and endpoints changed. By these, a reader that knows the cluster may recognize it, and see that two captures
// are of one cluster.
//
// The replacements are drawn with a key of 32 bytes from random, which should be crypto/rand.Reader. The key is not
// kept, so that the replacements cannot be reversed.
func Anonymize(o *sim.Objects, random io.Reader) (*Anonymized, error) {
	a, err := newAnonymizer(random)
	if err != nil {
		return nil, err
	}
	return a.anonymize(o)
}

func (a *anonymizer) anonymize(o *sim.Objects) (*Anonymized, error) {
	a.copy(o) // the first pass records what to replace
	if err := a.draw(o); err != nil {
		return nil, err
	}
	result := &Anonymized{Objects: a.copy(o)}
	for _, family := range []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol} {
		result.Services = append(result.Services, a.ranges(family, a.clusterIPs)...)
		result.Pods = append(result.Pods, a.ranges(family, a.podRanges(o))...)
	}
	return result, nil
}

// anonymizer replaces names and addresses. Before draw, it records them and returns them unchanged.
type anonymizer struct {
	rng   *rand.Rand
	drawn bool
	names map[category]map[string]string
	uids  map[types.UID]types.UID
	// serviceOf maps a slice to its Service, both as namespace/name.
	serviceOf map[string]string
	v4, v6    *numbering
	// times maps times, in UnixNano, to their replacements.
	times map[int64]time.Time
	// nodePorts maps the node ports of Services, and of their health checks, to their replacements.
	nodePorts map[int32]int32
	// clusterIPs and endpoints are the addresses of these kinds, recorded separately for their ranges.
	clusterIPs, endpoints []netip.Prefix
}

// category is the kind of a name: the same word may be a namespace and a port.
type category string

// The categories. A new name begins with the text of its category.
const (
	namespaces category = "ns"
	services   category = "svc"
	slicesOf   category = "slice"
	nodes      category = "node"
	portNames  category = "port"
	zones      category = "zone"
	hosts      category = "host"
	proxies    category = "proxy"
)

func newAnonymizer(random io.Reader) (*anonymizer, error) {
	var key [32]byte
	if _, err := io.ReadFull(random, key[:]); err != nil {
		return nil, fmt.Errorf("anonymize: key: %w", err)
	}
	rng := rand.New(rand.NewChaCha8(key))
	return &anonymizer{
		rng: rng, names: map[category]map[string]string{}, uids: map[types.UID]types.UID{}, serviceOf: map[string]string{},
		times: map[int64]time.Time{}, nodePorts: map[int32]int32{},
		v4: newNumbering(32, rng), v6: newNumbering(128, rng),
	}, nil
}

// draw determines all replacements.
func (a *anonymizer) draw(o *sim.Objects) error {
	for _, kind := range slices.Sorted(maps.Keys(a.names)) {
		// Sorted, then shuffled: the numbers do not follow the alphabet, and depend on the key alone.
		all := slices.Sorted(maps.Keys(a.names[kind]))
		a.rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		if kind == slicesOf {
			a.keepOrder(all)
		}
		width := len(fmt.Sprint(len(all)))
		for i, name := range all {
			a.names[kind][name] = fmt.Sprintf("%s-%0*d", kind, width, i+1)
		}
	}
	for _, uid := range slices.Sorted(maps.Keys(a.uids)) {
		a.uids[uid] = types.UID(fmt.Sprintf("%08x-%04x-4%03x-8%03x-%012x",
			a.rng.Uint32(), a.rng.Uint32()>>16, a.rng.Uint32()>>20, a.rng.Uint32()>>20, a.rng.Uint64()>>16))
	}
	for i, at := range slices.Sorted(maps.Keys(a.times)) {
		a.times[at] = epoch.Add(time.Duration(i) * time.Second)
	}
	a.drawNodePorts()
	for _, family := range []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol} {
		numbers := a.numbers(family)
		numbers.noteCover(inFamily(a.clusterIPs, family))
		numbers.noteCover(inFamily(a.podRanges(o), family))
		if err := numbers.assign(); err != nil {
			return fmt.Errorf("anonymize: addresses of %s: %w", family, err)
		}
	}
	a.drawn = true
	return nil
}

// keepOrder sorts the slices of each Service within the places that they have. If two slices have the same endpoint,
// their order may decide.
func (a *anonymizer) keepOrder(all []string) {
	places := map[string][]int{}
	for i, name := range all {
		places[a.serviceOf[name]] = append(places[a.serviceOf[name]], i)
	}
	for _, at := range places {
		names := make([]string, 0, len(at))
		for _, i := range at {
			names = append(names, all[i])
		}
		slices.Sort(names)
		for j, i := range at {
			all[i] = names[j]
		}
	}
}

func (a *anonymizer) numbers(family corev1.IPFamily) *numbering {
	if family == corev1.IPv4Protocol {
		return a.v4
	}
	return a.v6
}

func inFamily(all []netip.Prefix, family corev1.IPFamily) []netip.Prefix {
	return slices.DeleteFunc(slices.Clone(all), func(p netip.Prefix) bool { return inet.FamilyOf(p.Addr()) != family })
}

// podRanges returns the pod ranges of the nodes, or else the addresses of endpoints that no node has.
func (a *anonymizer) podRanges(o *sim.Objects) []netip.Prefix {
	var ranges []netip.Prefix
	ofNodes := map[netip.Prefix]bool{}
	for _, node := range o.Nodes {
		for _, cidr := range node.Spec.PodCIDRs {
			if p, ok := parseRange(cidr); ok {
				ranges = append(ranges, p)
			}
		}
		for _, address := range node.Status.Addresses {
			if p, ok := parseAddress(address.Address); ok {
				ofNodes[p] = true
			}
		}
	}
	for _, p := range a.endpoints {
		family := inet.FamilyOf(p.Addr())
		if !ofNodes[p] && !slices.ContainsFunc(ranges, func(r netip.Prefix) bool { return inet.FamilyOf(r.Addr()) == family && !r.IsSingleIP() }) {
			ranges = append(ranges, p)
		}
	}
	return ranges
}

// ranges returns the new place of the range that covers some addresses.
func (a *anonymizer) ranges(family corev1.IPFamily, of []netip.Prefix) []netip.Prefix {
	cover, ok := coverOf(inFamily(of, family))
	if !ok {
		return nil
	}
	if p, known := a.numbers(family).assigned[cover]; known {
		return []netip.Prefix{p}
	}
	return nil
}

// name replaces a name; "" stays.
func (a *anonymizer) name(kind category, name string) string {
	if name == "" || kind == portNames && wellKnownPorts[name] {
		return name
	}
	if !a.drawn {
		if a.names[kind] == nil {
			a.names[kind] = map[string]string{}
		}
		a.names[kind][name] = ""
		return name
	}
	return a.names[kind][name]
}

// inNamespace replaces a name that is unique only within its namespace.
func (a *anonymizer) inNamespace(kind category, namespace, name string) string {
	if name == "" {
		return ""
	}
	return a.name(kind, namespace+"/"+name)
}

// host replaces a domain name.
func (a *anonymizer) host(name string) string {
	if name == "" {
		return ""
	}
	return a.name(hosts, name) + ".example"
}

func (a *anonymizer) uid(uid types.UID) types.UID {
	if uid == "" {
		return ""
	}
	if !a.drawn {
		a.uids[uid] = ""
	}
	return a.uids[uid]
}

// time replaces a time by one that keeps only the order of times; zero stays.
func (a *anonymizer) time(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	if !a.drawn {
		a.times[t.UnixNano()] = t
	}
	return a.times[t.UnixNano()]
}

// nodePort replaces a node port; 0 stays.
func (a *anonymizer) nodePort(port int32) int32 {
	if port == 0 {
		return 0
	}
	if !a.drawn {
		a.nodePorts[port] = port
	}
	return a.nodePorts[port]
}

func (a *anonymizer) drawNodePorts() {
	first, last := 30000, 32767
	if len(a.nodePorts) > last-first+1 {
		first, last = 1024, 65535
	}
	drawn := a.rng.Perm(last - first + 1)
	for i, port := range slices.Sorted(maps.Keys(a.nodePorts)) {
		a.nodePorts[port] = int32(first + drawn[i%len(drawn)])
	}
}

// address replaces an address. It drops text that is not an address: no proxy reads it.
func (a *anonymizer) address(text string, note *[]netip.Prefix) string {
	p, ok := parseAddress(text)
	if !ok {
		return ""
	}
	numbers := a.numbers(inet.FamilyOf(p.Addr()))
	if !a.drawn {
		// Cluster IPs are one range: the result must not show which of them were neighbours.
		numbers.note(p, note != &a.clusterIPs)
		if note != nil {
			*note = append(*note, p)
		}
		return text
	}
	return numbers.assigned[p].Addr().String()
}

func (a *anonymizer) addresses(all []string, note *[]netip.Prefix) []string {
	var some []string
	for _, text := range all {
		if replaced := a.address(text, note); replaced != "" {
			some = append(some, replaced)
		}
	}
	return some
}

// cidr replaces a range and keeps its length. It drops text that is not a range.
func (a *anonymizer) cidr(text string) string {
	p, ok := parseRange(text)
	if !ok {
		return ""
	}
	if p.Addr().Is4In6() && p.Bits() >= mappedBits {
		return a.mappedCIDR(p)
	}
	numbers := a.numbers(inet.FamilyOf(p.Addr()))
	if !a.drawn {
		numbers.note(p, false)
		return text
	}
	if p.Bits() == 0 {
		return p.String()
	}
	return numbers.assigned[p].String()
}

// mappedBits is the length of ::ffff:0:0, the prefix of IPv4 addresses in IPv6 spelling.
const mappedBits = 96

// mappedCIDR replaces an IPv4 range in IPv6 spelling, and keeps the spelling: proxies write rules for ::ffff:0:0/96,
// but none for 0.0.0.0/0.
func (a *anonymizer) mappedCIDR(p netip.Prefix) string {
	if p.Bits() == mappedBits {
		return p.String()
	}
	inner := a.cidr(netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-mappedBits).String())
	replaced := netip.MustParsePrefix(inner)
	return fmt.Sprintf("::ffff:%s/%d", replaced.Addr(), replaced.Bits()+mappedBits)
}

func (a *anonymizer) cidrs(all []string) []string {
	var some []string
	for _, text := range all {
		if replaced := a.cidr(text); replaced != "" {
			some = append(some, replaced)
		}
	}
	return some
}
