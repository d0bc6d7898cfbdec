package proxier

import (
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"

	"synclab/proxier/config"
	"synclab/proxier/conntrack"
)

// aftercare is what the families share around their syncs: health and metrics.
type aftercare struct {
	opts *Options
}

func newAftercare(opts *Options) (*aftercare, error) { return &aftercare{opts: opts}, nil }

// flowsOf makes the cleaner of a family's UDP flows; nil when flows are left alone.
func (a *aftercare) flowsOf(family corev1.IPFamily) (*flows, error) {
	if a.opts.Conntrack == nil {
		return nil, nil
	}
	table, err := a.opts.Conntrack(family)
	if err != nil {
		return nil, fmt.Errorf("conntrack: %w", err)
	}
	cleaner, err := conntrack.NewCleaner(conntrack.Options{Table: table, Family: family, Local: a.nodeLocal(family)})
	if err != nil {
		return nil, err
	}
	return newFlows(cleaner), nil
}

// nodeLocal says which addresses take NodePorts.
func (a *aftercare) nodeLocal(family corev1.IPFamily) func() (func(netip.Addr) bool, error) {
	return func() (func(netip.Addr) bool, error) {
		addrs, err := a.opts.Addresses()
		if err != nil {
			return nil, err
		}
		nodePorts, err := config.NodePortAddresses(a.opts.Config, family, a.opts.NodeIPs)
		if err != nil {
			return nil, err
		}
		if !nodePorts.MatchAll {
			addrs = within(addrs, nodePorts.Prefixes)
		}
		return conntrack.NodeLocal(addrs, nodePorts.Localhost), nil
	}
}

func (a *aftercare) queued(*engine)        {}
func (a *aftercare) synced(*engine, *Sync) {}
func (a *aftercare) node(*corev1.Node)     {}
func (a *aftercare) nodeGone()             {}
