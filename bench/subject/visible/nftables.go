package visible

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"synclab/proxier/kernel"
	"synclab/proxier/tracker"
)

// The rules of kube-proxy's mode nftables (pkg/proxy/nftables/proxier.go of 1.36 and 1.37), in a table kube-proxy for
// each family:
//
//   - Chain service-<port> is for traffic to any node, local-<port> for traffic that stays on this node. <port> is
//     HASH-namespace/name/protocol/portname; HASH is 8 characters of a hash of the rest (SHA-256, base32).
//   - Each has one rule that looks a random number up in an anonymous map of "address . port". Since 1.37 a single
//     endpoint is in the rule itself (k/k#140723). With affinity there is one rule for each endpoint, which goes to
//     endpoint-HASH-…__address/port (with dots for colons in addresses), and a map of these chains.
//   - The maps service-ips and service-nodeports refer to these chains, also through external-<port>.
//
// The transaction that removes a chain from the maps also empties it; the chain is deleted later. If two Services claim
// an address, both have chains, and each sync gives the address to either: kube-proxy takes Services from a Go map.
const (
	proxyTable     = "kube-proxy"
	servicesChain  = "services"
	serviceIPs     = "service-ips"
	clusterPrefix  = "service-"
	localPrefix    = "local-"
	externalPrefix = "external-"
	endpointPrefix = "endpoint-"
	// masqueradeChain sets a mark; in 1.29 and 1.30 a service chain's first rule jumps there.
	masqueradeChain = "mark-for-masquerade"
)

type kubeNftables struct {
	commits
	*frontends
}

func newNftables() (*kubeNftables, error) {
	c, err := newCommits(proxyTable)
	return &kubeNftables{c, newFrontends()}, err
}

func (n *kubeNftables) found(family corev1.IPFamily) (bool, error) {
	_, there, err := n.kernel.Uses(family, proxyTable, servicesChain)
	return there, err
}

func (n *kubeNftables) Look() (Snapshot, error) { return kubeLook{n}, nil }

type kubeLook struct{ *kubeNftables }

func (l kubeLook) Close() {}

func (l kubeLook) Port(family corev1.IPFamily, port tracker.ServicePortName) (State, error) {
	base := portBase(port)
	cluster, err := l.endpoints(family, clusterPrefix+base)
	if err != nil {
		return State{}, err
	}
	local, err := l.endpoints(family, localPrefix+base)
	return State{Cluster: cluster, Local: local}, err
}

// Dispatched: a chain's uses are its own rules plus the references to it. A chain is emptied when it leaves the maps,
// so a referenced chain with endpoints is in use. If other Services have all addresses of a port, its chains may have
// no reference: then their existence is enough.
func (l kubeLook) Dispatched(family corev1.IPFamily, port tracker.ServicePortName) (cluster, local bool, err error) {
	base := portBase(port)
	if cluster, err = l.used(family, clusterPrefix+base); err == nil {
		local, err = l.used(family, localPrefix+base)
	}
	sharedCluster, sharedLocal := l.contested(portKey{family, port})
	return cluster || sharedCluster, local || sharedLocal, err
}

func (l kubeLook) used(family corev1.IPFamily, chain string) (bool, error) {
	uses, there, err := l.kernel.Uses(family, proxyTable, chain)
	if err != nil || !there {
		return false, err
	}
	rules, err := l.kernel.Rules(family, proxyTable, chain)
	return uses > len(rules), err
}

func (l kubeLook) endpoints(family corev1.IPFamily, chain string) ([]string, error) {
	rules, err := l.kernel.Rules(family, proxyTable, chain)
	if err != nil {
		return nil, err
	}
	var texts []string
	for _, rule := range rules {
		some, _, err := l.read(family, rule)
		if err != nil {
			return nil, err
		}
		texts = append(texts, some...)
	}
	slices.Sort(texts)
	return slices.Compact(texts), nil
}

// read returns the endpoints that a rule selects, and whether the rule does nothing else with packets.
func (l kubeLook) read(family corev1.IPFamily, rule kernel.Rule) (texts []string, all bool, err error) {
	all = !rule.Other
	add := func(text string) {
		if all = all && text != ""; text != "" {
			texts = append(texts, text)
		}
	}
	if rule.Jump != "" && rule.Jump != masqueradeChain {
		add(endpointOfChain(family, rule.Jump))
	}
	if rule.DNAT.IsValid() {
		add(rule.DNAT.String())
	}
	if rule.Map == "" {
		return texts, all, nil
	}
	elements, err := l.kernel.Elements(family, proxyTable, rule.Map)
	if err != nil {
		return nil, false, err
	}
	for _, e := range elements {
		if e.Jump != "" {
			add(endpointOfChain(family, e.Jump))
		} else {
			add(endpointOfValue(family, e.Data))
		}
	}
	return texts, all && len(elements) > 0, nil
}

// Unrecognised checks the rules of the port's chains. If it has none, the map of addresses may refer to another chain.
func (l kubeLook) Unrecognised(family corev1.IPFamily, port tracker.ServicePortName) (string, error) {
	base, chains := portBase(port), 0
	for _, chain := range []string{clusterPrefix + base, localPrefix + base} {
		rules, err := l.kernel.Rules(family, proxyTable, chain)
		if err != nil {
			return "", err
		}
		chains += min(len(rules), 1)
		for i, rule := range rules {
			_, all, err := l.read(family, rule)
			if err != nil {
				return "", err
			}
			if all {
				continue
			}
			texts, err := l.kernel.Texts(family, proxyTable, chain)
			if err != nil || i >= len(texts) { // the chain has changed
				return "", err
			}
			return fmt.Sprintf("table %s, chain %s: %s", proxyTable, chain, texts[i]), nil
		}
	}
	if chains > 0 {
		return "", nil
	}
	for _, p := range l.of(portKey{family, port}) {
		if !p.addr.Addr().IsValid() {
			continue
		}
		e, there, err := l.kernel.Element(family, proxyTable, serviceIPs, p.key())
		if err != nil {
			return "", err
		}
		known := func(prefix string) bool { return strings.HasPrefix(e.Jump, prefix) }
		if !there || slices.ContainsFunc([]string{clusterPrefix, localPrefix, externalPrefix}, known) {
			continue
		}
		return fmt.Sprintf("table %s, map %s: %s %s goes to %s", proxyTable, serviceIPs, p.protocol, p.addr, e.Jump), nil
	}
	return "", nil
}

// key returns the key of the map service-ips: address, protocol and port, each aligned to 4 bytes.
func (p place) key() []byte {
	numbers := map[corev1.Protocol]byte{corev1.ProtocolTCP: unix.IPPROTO_TCP, corev1.ProtocolUDP: unix.IPPROTO_UDP, corev1.ProtocolSCTP: unix.IPPROTO_SCTP}
	key := append(p.addr.Addr().AsSlice(), numbers[p.protocol], 0, 0, 0)
	return append(binary.BigEndian.AppendUint16(key, p.addr.Port()), 0, 0)
}

// portBase returns the common part of the names of a port's chains.
func portBase(port tracker.ServicePortName) string {
	name := port.Namespace + "/" + port.NamespacedName.Name + "/" + strings.ToLower(string(port.Protocol)) + "/" + port.Port()
	const hashLength = 8
	sum := sha256.Sum256([]byte(name))
	return base32.StdEncoding.EncodeToString(sum[:])[:hashLength] + "-" + name
}

// endpointOfChain parses "ip:port" from an endpoint chain's name; empty if it has none. kube-proxy truncates names to
// 240 characters; longer ones cannot be parsed, but need a namespace, a Service and a port of 60 characters each.
func endpointOfChain(family corev1.IPFamily, chain string) string {
	rest, ok := strings.CutPrefix(chain, endpointPrefix)
	at := strings.LastIndex(rest, "__")
	if !ok || at < 0 {
		return ""
	}
	addr, port, _ := strings.Cut(rest[at+2:], "/")
	if family == corev1.IPv6Protocol {
		addr = strings.ReplaceAll(addr, ".", ":")
	}
	ip, err := netip.ParseAddr(addr)
	n, err2 := strconv.ParseUint(port, 10, 16)
	if err != nil || err2 != nil {
		return ""
	}
	return netip.AddrPortFrom(ip, uint16(n)).String()
}

// endpointOfValue decodes an address and a port, each aligned to 4 bytes, in network byte order.
func endpointOfValue(family corev1.IPFamily, value []byte) string {
	bytes := 4
	if family == corev1.IPv6Protocol {
		bytes = 16
	}
	if len(value) < bytes+2 {
		return ""
	}
	ip, _ := netip.AddrFromSlice(value[:bytes])
	return netip.AddrPortFrom(ip, binary.BigEndian.Uint16(value[bytes:])).String()
}
