package iptables

import (
	"crypto/sha256"
	"encoding/base32"
	"strings"

	"synclab/proxier/tracker"
)

// The chains all Services share.
const (
	chainServices         = "KUBE-SERVICES"
	chainExternalServices = "KUBE-EXTERNAL-SERVICES"
	chainForward          = "KUBE-FORWARD"
	chainNodePorts        = "KUBE-NODEPORTS"
	chainProxyFirewall    = "KUBE-PROXY-FIREWALL"
	chainPostrouting      = "KUBE-POSTROUTING"
	chainMarkMasq         = "KUBE-MARK-MASQ"
	chainFirewall         = "KUBE-FIREWALL" // shared with the kubelet: written, never deleted
	chainCanary           = "KUBE-PROXY-CANARY"
)

// The prefixes of the chains of one Service port.
const (
	prefixCluster  = "KUBE-SVC-"
	prefixLocal    = "KUBE-SVL-"
	prefixExternal = "KUBE-EXT-"
	prefixFirewall = "KUBE-FW-"
	prefixEndpoint = "KUBE-SEP-"
)

// prefixTree begins the names of a layout's own chains.
const prefixTree = "KUBE-TREE-"

// hashLength is how much of the hash a name keeps: with the longest prefix 25 of the 28 characters that iptables allows.
const hashLength = 16

// hash is the part of a chain's name that kube-proxy computes: 80 bits of SHA-256 in base32.
func hash(parts ...string) string {
	var buf [160]byte
	input := buf[:0]
	for _, part := range parts {
		input = append(input, part...)
	}
	sum := sha256.Sum256(input)
	var text [hashLength]byte
	base32.StdEncoding.Encode(text[:], sum[:hashLength*5/8])
	return string(text[:])
}

// serviceHash names the chains of a Service port: SVC, SVL, EXT and FW share it.
func serviceHash(name tracker.ServicePortName) string {
	return hash(name.String(), strings.ToLower(string(name.Protocol)))
}

// endpointHash names the chain of one endpoint ("ip:port") of a Service port.
func endpointHash(servicePort, protocol, endpoint string) string {
	return hash(servicePort, protocol, endpoint)
}

// ownChain reports by its name whether a chain is the proxier's. The proxier deletes such a chain when it is not
// desired.
func ownChain(name string) bool { return IsServiceChain(name) || isLayoutChain(name) }

// IsServiceChain reports whether a chain's name is one that the proxier gives to chains of Service ports. KUBE-FIREWALL
// does not match, because each prefix ends in a dash.
func IsServiceChain(name string) bool {
	if !strings.HasPrefix(name, "KUBE-") {
		return false
	}
	for _, prefix := range [...]string{prefixEndpoint, prefixCluster, prefixLocal, prefixExternal, prefixFirewall} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// PortChains are the names of a Service port's chains, whether they exist or not. A reader of rules finds by them what
// jumps to the Service port.
type PortChains struct{ Cluster, Local, External, Firewall string }

// ChainsOf names the chains of a Service port.
func ChainsOf(name tracker.ServicePortName) PortChains {
	h := serviceHash(name)
	return PortChains{prefixCluster + h, prefixLocal + h, prefixExternal + h, prefixFirewall + h}
}

// EndpointChain names the chain of one endpoint ("ip:port") of a Service port.
func EndpointChain(name tracker.ServicePortName, endpoint string) string {
	return prefixEndpoint + endpointHash(name.String(), strings.ToLower(string(name.Protocol)), endpoint)
}

// IsEndpointChain reports whether a chain's name is that of an endpoint's chain.
func IsEndpointChain(name string) bool { return strings.HasPrefix(name, prefixEndpoint) }

// DispatchChains are the chains in nat that jump to the chains of Service ports.
var DispatchChains = []string{chainServices, chainNodePorts}
