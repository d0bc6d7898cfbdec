package manifests

import (
	"cmp"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"synclab/internal/inet"
	"synclab/sim"
)

// Support bundles redact addresses: "***HIDDEN***" or "***TOKEN_IPV4_1***" (troubleshoot.sh), "x-ipv4-0000000001-x" and
// "xxx.xxx.xxx.xxx" (must-gather-clean), "10.0.x.x" and "<redacted>" (people). Rules need addresses, so that Services and
// endpoints get new ones, in the number that the dump has.

var (
	redactedWord = regexp.MustCompile(`(?i)\*\*|hidden|redact|masked|anonymi|obfuscat|sanitiz|removed|^<.*>$|^\[.*\]$|^x-ipv[46]-`)
	redactedPart = regexp.MustCompile(`(?i)^[0-9a-f.:]*[x*][0-9a-fx.:*]*(/[0-9x*]+)?$`)
	familyWord   = regexp.MustCompile(`(?i)ipv[46]`)
)

// isRedacted reports whether a text stands for an address or a range that was removed.
func isRedacted(text string) bool {
	if _, isAddr := inet.ParseAddr(text); isAddr || text == "" || text == corev1.ClusterIPNone {
		return false
	}
	return redactedWord.MatchString(text) || redactedPart.MatchString(text)
}

// Ranges of addresses for redacted ones. They overlap with none of the defaults of ReadOptions.
var externalCIDRs = []netip.Prefix{
	netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("2001:db8::/64"),
}

// redactions replaces redacted addresses.
type redactions struct {
	pods, nodes, externals map[corev1.IPFamily]*addressPool
	byName                 map[string]string // replacements of pods and of numbered words
	count                  int
	book                   addressBook
}

func (m *manifests) newRedactions() *redactions {
	r := &redactions{byName: map[string]string{}, book: m.book}
	known := addressBook{}
	pools := func(prefixes []netip.Prefix) map[corev1.IPFamily]*addressPool {
		made := map[corev1.IPFamily]*addressPool{}
		for _, family := range sim.IPFamilies {
			made[family] = newAddressPool(prefixes, family, 0, known)
		}
		return made
	}
	r.pods, r.nodes, r.externals = pools(m.opts.PodCIDRs), pools(nodeCIDRs), pools(externalCIDRs)
	m.eachAddress(func(address string) {
		if addr, ok := inet.ParseAddr(address); ok {
			known[addr] = "the input"
		}
	})
	return r
}

// eachAddress visits the addresses that new ones must differ from.
func (m *manifests) eachAddress(visit func(string)) {
	for _, slice := range m.slices {
		for i := range slice.Endpoints {
			for _, address := range slice.Endpoints[i].Addresses {
				visit(address)
			}
		}
	}
	for _, e := range m.endpoints {
		for i := range e.Subsets {
			for _, address := range e.Subsets[i].Addresses {
				visit(address.IP)
			}
		}
	}
	for _, pod := range m.pods {
		for _, ip := range pod.Status.PodIPs {
			visit(ip.IP)
		}
	}
	for _, node := range m.nodes {
		for _, address := range node.Status.Addresses {
			visit(address.Address)
		}
	}
	for _, service := range m.services {
		for _, address := range service.Spec.ExternalIPs {
			visit(address)
		}
	}
}

// replace replaces a redacted address. The same name gets the same address again.
func (r *redactions) replace(text *string, pools map[corev1.IPFamily]*addressPool, family corev1.IPFamily, name string) {
	if !isRedacted(*text) {
		return
	}
	if word := familyWord.FindString(*text); word != "" {
		family = corev1.IPFamily("IPv" + word[3:])
	}
	pool := pools[family]
	if pool == nil {
		return // the check of the object names the family
	}
	r.count++
	key := name + " " + string(family)
	// A numbered word is one address. What is left of an address ("10.**.**.**") may be of several.
	rest := familyWord.ReplaceAllString(*text, "")
	if redactedWord.MatchString(*text) && !redactedPart.MatchString(*text) && strings.ContainsAny(rest, "0123456789") {
		key = *text
	}
	if known := r.byName[key]; known != "" {
		*text = known
		return
	}
	address, err := pool.take("a redacted address")
	if err != nil {
		return // the check of the object names the address
	}
	r.book[address] = name
	*text = address.String()
	r.byName[key] = *text
}

// replaceRedacted gives new addresses to the objects whose addresses are redacted, and warns once.
func (m *manifests) replaceRedacted() {
	if m.opts.Strict {
		return
	}
	r := m.newRedactions()
	var first metav1.Object
	m.eachRedacted(r, func(object metav1.Object, replace func()) {
		if replace(); r.count > 0 && first == nil {
			first = object
		}
	})
	if first != nil && m.opts.Warned != nil {
		at := m.found[first]
		m.opts.Warned(Warning{File: at.document.file, Line: at.line(""), Text: fmt.Sprintf("%d redacted addresses get new ones", r.count)})
	}
}

// eachRedacted visits the objects, each with the function that replaces its redacted addresses.
func (m *manifests) eachRedacted(r *redactions, visit func(object metav1.Object, replace func())) {
	for _, node := range m.nodes {
		visit(node, func() { r.node(node) })
	}
	for _, pod := range m.pods {
		visit(pod, func() { r.pod(pod) })
	}
	for _, service := range m.services {
		visit(service, func() { r.service(service) })
	}
	for _, slice := range m.slices {
		visit(slice, func() { r.slice(slice) })
	}
	for _, e := range m.endpoints {
		visit(e, func() { r.legacyEndpoints(e) })
	}
}

// familyAt returns the family of the address at a position: dual-stack objects list one of each.
func familyAt(families []corev1.IPFamily, i int) corev1.IPFamily {
	if i < len(families) {
		return families[i]
	}
	return sim.IPFamilies[min(i, 1)]
}

func (r *redactions) node(node *corev1.Node) {
	seen := map[corev1.NodeAddressType]int{}
	for i := range node.Status.Addresses {
		address := &node.Status.Addresses[i]
		pools := r.nodes
		switch address.Type {
		case corev1.NodeInternalIP:
		case corev1.NodeExternalIP:
			pools = r.externals
		default:
			continue
		}
		r.replace(&address.Address, pools, familyAt(nil, seen[address.Type]), fmt.Sprintf("node %s %d", node.Name, i))
		seen[address.Type]++
	}
	if slices.ContainsFunc(node.Spec.PodCIDRs, isRedacted) || isRedacted(node.Spec.PodCIDR) {
		r.count += len(node.Spec.PodCIDRs)
		node.Spec.PodCIDR, node.Spec.PodCIDRs = "", nil
	}
}

func (r *redactions) pod(pod *corev1.Pod) {
	if !isRedacted(pod.Status.PodIP) {
		return
	}
	normalizeStatus(pod)
	for i := range pod.Status.PodIPs {
		r.replace(&pod.Status.PodIPs[i].IP, r.pods, familyAt(nil, i), sim.ObjectName("pod", pod))
	}
	pod.Status.PodIP = pod.Status.PodIPs[0].IP
}

// service clears clusterIPs, which are allocated later as those of a manifest, and replaces the other addresses.
func (r *redactions) service(service *corev1.Service) {
	spec, name := &service.Spec, sim.ObjectName("service", service)
	if slices.ContainsFunc(spec.ClusterIPs, isRedacted) || isRedacted(spec.ClusterIP) {
		r.count += max(1, len(spec.ClusterIPs))
		if len(spec.ClusterIPs) == 2 && len(spec.IPFamilies) == 0 {
			spec.IPFamilies = slices.Clone(sim.IPFamilies)
		}
		spec.ClusterIP, spec.ClusterIPs = "", nil
	}
	if isRedacted(spec.LoadBalancerIP) {
		spec.LoadBalancerIP = ""
	}
	for i := range spec.ExternalIPs {
		r.replace(&spec.ExternalIPs[i], r.externals, familyAt(spec.IPFamilies, 0), fmt.Sprintf("%s externalIP %d", name, i))
	}
	for i := range service.Status.LoadBalancer.Ingress {
		ip := &service.Status.LoadBalancer.Ingress[i].IP
		r.replace(ip, r.externals, familyAt(spec.IPFamilies, i), fmt.Sprintf("%s ingress %d", name, i))
	}
	for i := range spec.LoadBalancerSourceRanges {
		text := &spec.LoadBalancerSourceRanges[i]
		if isRedacted(*text) {
			r.replace(text, r.externals, familyAt(spec.IPFamilies, 0), fmt.Sprintf("%s range %d", name, i))
			addr, _ := inet.ParseAddr(*text)
			*text = fmt.Sprintf("%s/%d", *text, addr.BitLen())
		}
	}
}

func (r *redactions) slice(slice *discoveryv1.EndpointSlice) {
	if slice.AddressType == discoveryv1.AddressTypeFQDN {
		return
	}
	for i := range slice.Endpoints {
		endpoint := &slice.Endpoints[i]
		for j := range endpoint.Addresses {
			name := endpointName(endpoint.TargetRef, slice, fmt.Sprintf(" %d %d", i, j))
			r.replace(&endpoint.Addresses[j], r.pods, corev1.IPFamily(slice.AddressType), name)
		}
	}
}

// endpointName names the pod of an endpoint, so that it has the same address everywhere.
func endpointName(target *corev1.ObjectReference, of metav1.Object, place string) string {
	if target == nil || target.Name == "" {
		return sim.ObjectName("endpoints of", of) + place
	}
	return sim.NameOf("pod", cmp.Or(target.Namespace, of.GetNamespace()), target.Name)
}

func (r *redactions) legacyEndpoints(e *endpoints) {
	for i := range e.Subsets {
		for j, addresses := range [][]corev1.EndpointAddress{e.Subsets[i].Addresses, e.Subsets[i].NotReadyAddresses} {
			for k := range addresses {
				name := endpointName(addresses[k].TargetRef, e, fmt.Sprintf(" %d %d %d", i, j, k))
				r.replace(&addresses[k].IP, r.pods, corev1.IPv4Protocol, name)
			}
		}
	}
}
