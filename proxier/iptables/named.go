package iptables

import (
	"strings"

	"synclab/proxier/tracker"
)

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
