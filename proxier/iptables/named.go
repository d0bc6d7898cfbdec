package iptables

import (
	"strings"

	"synclab/proxier/tracker"
)

// PortChains are the names that the chains of a Service port have, whether they exist or not, and with them what leads
// to it: for who reads rules.
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

// IsEndpointChain says whether a chain's name is one of an endpoint's chain.
func IsEndpointChain(name string) bool { return strings.HasPrefix(name, prefixEndpoint) }

// DispatchChains are the chains in nat that lead to those of Service ports.
var DispatchChains = []string{chainServices, chainNodePorts}
