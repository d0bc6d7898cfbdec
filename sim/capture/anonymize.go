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

	"synclab/sim"
)

// Anonymized is a cluster that nobody knows.
type Anonymized struct {
	Objects *sim.Objects
	// Pods and Services are the ranges that these are in now, one a family: what clusterCIDR of a proxy's configuration
	// and the service range of a cluster were. A family without a range of its own has none here.
	Pods, Services []netip.Prefix
}

// wellKnownPorts are names of ports that are in every cluster. All others are replaced.
var wellKnownPorts = map[string]bool{"": true, "http": true, "https": true, "grpc": true, "dns": true, "dns-tcp": true, "metrics": true}

// epoch is when the oldest object of an anonymized cluster was made; the next one followed a second later.
var epoch = time.Date(2020, time.January, 1, 0, 0, 0, 0, time.UTC)

// Anonymize returns a copy of the objects with other names and addresses, and without everything that rules do not
// depend on. What was one name, address, range or zone is one again, and what lay within what still does.
//
// Kept are: numbers of Services, ports, endpoints, nodes and zones and how they belong together; the ports of Services and
// endpoints, types, policies, affinity, conditions, hints; lengths of source ranges; in which order objects were made and
// endpoints changed. Who knows the cluster may recognize it by these, and see that two captures are of one cluster.
//
// The replacements are drawn with a key of 32 bytes from random, which should be crypto/rand.Reader: with the key gone,
// nothing leads back.
func Anonymize(o *sim.Objects, random io.Reader) (*Anonymized, error) {
	a, err := newAnonymizer(random)
	if err != nil {
		return nil, err
	}
	return a.anonymize(o)
}

func (a *anonymizer) anonymize(o *sim.Objects) (*Anonymized, error) {
	a.copy(o) // the first time to see what there is
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

// anonymizer replaces. Before draw it notes what there is to replace, and gives back what it got.
type anonymizer struct {
	rng   *rand.Rand
	drawn bool
	names map[category]map[string]string
	uids  map[types.UID]types.UID
	// serviceOf is the Service of a slice, both as namespace/name.
	serviceOf map[string]string
	v4, v6    *numbering
	// times by UnixNano.
	times map[int64]time.Time
	// nodePorts are those of Services, and the ports of their health checks.
	nodePorts map[int32]int32
	// clusterIPs and endpoints are addresses, noted apart for their ranges.
	clusterIPs, endpoints []netip.Prefix
}

// category of names: the same word may be a namespace and a port.
type category string

// What a name is of; the category's text begins the new names.
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

// draw decides on all replacements.
func (a *anonymizer) draw(o *sim.Objects) error {
	for _, kind := range slices.Sorted(maps.Keys(a.names)) {
		// Sorted and then shuffled: the numbers say nothing of the alphabet, and depend on the key alone.
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

// keepOrder sorts the slices of each Service among themselves, in the places that they have: where two have the same
// endpoint, their order may decide.
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

func familyOf(p netip.Prefix) corev1.IPFamily {
	if p.Addr().Is4() {
		return corev1.IPv4Protocol
	}
	return corev1.IPv6Protocol
}

func inFamily(all []netip.Prefix, family corev1.IPFamily) []netip.Prefix {
	return slices.DeleteFunc(slices.Clone(all), func(p netip.Prefix) bool { return familyOf(p) != family })
}

// podRanges are those of the nodes, or else the addresses of endpoints that are no node's.
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
		family := familyOf(p)
		if !ofNodes[p] && !slices.ContainsFunc(ranges, func(r netip.Prefix) bool { return familyOf(r) == family && !r.IsSingleIP() }) {
			ranges = append(ranges, p)
		}
	}
	return ranges
}

// ranges is where the cover of some addresses went.
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

// inNamespace replaces a name that is one only with its namespace.
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

// time replaces a time by one that tells only what came before what; zero stays.
func (a *anonymizer) time(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	if !a.drawn {
		a.times[t.UnixNano()] = t
	}
	return a.times[t.UnixNano()]
}

// nodePort replaces a port that is open on nodes; 0 stays.
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

// address replaces an address. What is none is dropped: no proxy reads it.
func (a *anonymizer) address(text string, note *[]netip.Prefix) string {
	p, ok := parseAddress(text)
	if !ok {
		return ""
	}
	numbers := a.numbers(familyOf(p))
	if !a.drawn {
		// Cluster IPs are one range: which of them are neighbours is nobody's business.
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

// cidr replaces a range and keeps its length. What is none is dropped.
func (a *anonymizer) cidr(text string) string {
	p, ok := parseRange(text)
	if !ok {
		return ""
	}
	if p.Addr().Is4In6() && p.Bits() >= mappedBits {
		return a.mappedCIDR(p)
	}
	numbers := a.numbers(familyOf(p))
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

// mappedCIDR replaces an IPv4 range that is spelled as an IPv6 one, and keeps the spelling: proxies write rules for
// ::ffff:0:0/96 where they write none for 0.0.0.0/0.
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
