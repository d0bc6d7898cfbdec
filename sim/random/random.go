package random

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"synclab/sim"
	"synclab/sim/world"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Options are the options of a Cluster.
type Options struct {
	// Seed determines the cluster and all its changes: same seed, same bytes.
	Seed uint64
	// Families that Services may have, the cluster's preferred one first. nil: drawn at random, one or both in either
	// order.
	Families []corev1.IPFamily
	// Services is the maximum that the cluster begins with. Default 25.
	Services int
	// ForOldProxies: nothing that kube-proxy before 1.31 ends at or reads in another way. Each port of a slice has a number,
	// addresses and ranges have their canonical spelling, and no load balancer is a proxy.
	ForOldProxies bool
	// NoOpenRanges: no source range has all addresses.
	NoOpenRanges bool
}

// Cluster makes small and unusual clusters. It uses everything in Services and EndpointSlices that the API
// accepts, in combinations that no user would write, old spellings of addresses included. A World is a typical
// cluster; a Cluster is any that is allowed. It is for comparing what two proxiers make of the same objects.
type Cluster struct {
	rng      *rand.Rand
	options  Options
	families []corev1.IPFamily
	objects  sim.Objects // sorted, except during a change
	version  int64
	stray    int // slices without a Service, so far
	trace    *sim.Trace
}

// The addresses of a Cluster.
const (
	// RandomPods are the ranges of its pods, for detect-local.
	RandomPods = "10.128.0.0/16,fd00:10:128::/64"
	// RandomNode4 and RandomNode6 are the addresses of its first node.
	RandomNode4, RandomNode6 = "192.0.2.10", "fd00:192:0:2::10"
)

const randomNodes = 4

// New returns the cluster of a seed.
func New(o Options) *Cluster {
	c := &Cluster{rng: rand.New(rand.NewPCG(o.Seed, 0x5eed)), options: o, families: o.Families}
	both := []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}
	if len(c.families) == 0 {
		if c.chance(0.3) {
			slices.Reverse(both)
		}
		c.families = both[:1+c.oneIn(2)]
	}
	if o.Services == 0 {
		o.Services = 25
	}
	var unseen sim.Trace
	c.trace = &unseen
	for i := range randomNodes {
		c.put(sim.Add, c.node(i))
	}
	for range 1 + c.rng.IntN(o.Services) {
		c.addService()
	}
	for range c.rng.IntN(3) {
		c.put(sim.Add, c.straySlice())
	}
	return c
}

// Objects returns the present state. The objects are never written to.
func (c *Cluster) Objects() *sim.Objects {
	return &sim.Objects{
		Services: slices.Clone(c.objects.Services),
		Slices:   slices.Clone(c.objects.Slices),
		Nodes:    slices.Clone(c.objects.Nodes),
	}
}

func (c *Cluster) chance(p float64) bool { return c.rng.Float64() < p }

// oneIn returns 1 with probability 1/n, and 0 otherwise.
func (c *Cluster) oneIn(n int) int {
	if c.rng.IntN(n) == 0 {
		return 1
	}
	return 0
}

func oneOfThe[T any](c *Cluster, choices ...T) T { return choices[c.rng.IntN(len(choices))] }

// put stores a new state of an object, or deletes it, and adds the change to the trace.
func (c *Cluster) put(op sim.Op, object runtime.Object) {
	c.version++
	object.(metav1.Object).SetResourceVersion(strconv.FormatInt(c.version, 10))
	switch o := object.(type) {
	case *corev1.Service:
		c.objects.Services = stored(c.objects.Services, op, o)
	case *discoveryv1.EndpointSlice:
		c.objects.Slices = stored(c.objects.Slices, op, o)
	case *corev1.Node:
		c.objects.Nodes = stored(c.objects.Nodes, op, o)
	}
	c.trace.Add(0, op, object)
}

func stored[T metav1.Object](list []T, op sim.Op, object T) []T {
	i, found := slices.BinarySearchFunc(list, object, compareObjects[T])
	switch {
	case op == sim.Delete && found:
		return slices.Delete(list, i, i+1)
	case op == sim.Delete:
		return list
	case found:
		list[i] = object
		return list
	}
	return slices.Insert(list, i, object)
}

func compareObjects[T metav1.Object](a, b T) int {
	if n := strings.Compare(a.GetNamespace(), b.GetNamespace()); n != 0 {
		return n
	}
	return strings.Compare(a.GetName(), b.GetName())
}

func (c *Cluster) node(i int) *corev1.Node {
	name := fmt.Sprintf("node-%d", i)
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: world.UIDOf(c.options.Seed, "node/"+name), CreationTimestamp: metav1.NewTime(world.Epoch),
			Labels: map[string]string{corev1.LabelHostname: name},
		},
	}
	for _, family := range c.families { // a single-stack cluster has single-stack nodes
		address, pods := fmt.Sprintf("192.0.2.%d", 10+i), fmt.Sprintf("10.128.%d.0/24", i)
		if family == corev1.IPv6Protocol {
			address, pods = fmt.Sprintf("fd00:192:0:2::%d", 10+i), fmt.Sprintf("fd00:10:128:0:%x::/80", 1+i)
		}
		node.Spec.PodCIDRs = append(node.Spec.PodCIDRs, pods)
		node.Status.Addresses = append(node.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: address})
	}
	node.Spec.PodCIDR = node.Spec.PodCIDRs[0]
	c.setZone(node)
	return node
}

// setZone gives a node a zone, or none.
func (c *Cluster) setZone(node *corev1.Node) {
	if c.chance(0.15) {
		delete(node.Labels, corev1.LabelTopologyZone)
		return
	}
	node.Labels[corev1.LabelTopologyZone] = c.zone()
}

func (c *Cluster) zone() string { return oneOfThe(c, "zone-a", "zone-a", "zone-b", "zone-c") }

// spelled returns an address, sometimes in a spelling that only old objects have: with leading zeros, as an
// IPv4-mapped IPv6 address, or not in the form of RFC 5952. The API server keeps such objects.
func (c *Cluster) spelled(address string) string {
	if !c.chance(0.04) || c.options.ForOldProxies {
		return address
	}
	if strings.Contains(address, ":") {
		return strings.ToUpper(strings.Replace(address, "fd00:", "fd00:0", 1))
	}
	if c.chance(0.3) {
		return "::ffff:" + address
	}
	parts := strings.Split(address, ".")
	i := c.rng.IntN(len(parts))
	parts[i] = fmt.Sprintf("%03s", parts[i])
	return strings.Join(parts, ".")
}

// address returns the n-th of a pool: "10.96.0.%d", or "fd00:10:96::%x".
func (c *Cluster) address(family corev1.IPFamily, v4, v6 string, n int) string {
	if family == corev1.IPv6Protocol {
		return c.spelled(v6 + strconv.FormatInt(int64(n), 16))
	}
	return c.spelled(v4 + strconv.Itoa(n))
}

// anyFamily returns one of the cluster's families, or sometimes the other one.
func (c *Cluster) anyFamily() corev1.IPFamily {
	if c.chance(0.1) {
		return oneOfThe(c, corev1.IPv4Protocol, corev1.IPv6Protocol)
	}
	return oneOfThe(c, c.families...)
}
