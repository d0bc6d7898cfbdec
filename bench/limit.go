package bench

import (
	"fmt"

	"synclab/bench/host"
	"synclab/bench/raw"
	"synclab/bench/subject"
	"synclab/proxier"
	"synclab/proxier/iptables"
	"synclab/proxier/kernel"
)

// nftRuleBytes is the approximate size of a rule in a netlink batch of iptables-nft-restore.
const nftRuleBytes = 600

// The approximate size of a Service port and of an endpoint in the first transaction of kube-proxy (v1.37.2) with nft.
const nftPortBytes, nftEndpointBytes = 750, 60

// fits rejects a cluster whose first full sync the subject's tool could not send. For an ordinary user, the kernel limits
// one batch, and it would fail until the settle step gives up. The lab's own proxier sends Services' chains in batches that
// fit, but in layout classic all dispatch rules go in one.
func (r *repetition) fits() error {
	nft := r.About.Proxier == subject.KubeProxy && r.About.Backend == proxier.Nftables
	if !nft && (r.Variant != iptables.Nft || r.Layout == iptables.Tree) {
		return nil
	}
	limit, err := kernel.SendLimit()
	if err != nil || limit == 0 {
		return err
	}
	ports, endpoints := 0, 0
	objects := r.World.Objects()
	for _, svc := range objects.Services {
		ports += len(svc.Spec.Ports)
	}
	for _, slice := range objects.Slices {
		endpoints += len(slice.Endpoints) * len(slice.Ports)
	}
	// kube-proxy/nftables has a rule for each port, with all endpoints in a map.
	rules, need, tool, other := ports, ports*nftPortBytes+endpoints*nftEndpointBytes, "nft", "synclab/nftables"
	if !nft {
		if r.About.Proxier != subject.Synclab {
			rules += 3 * endpoints
		}
		need, tool, other = rules*nftRuleBytes, "iptables-nft-restore", "synclab/iptables-nft-tree or synclab/iptables-legacy"
	}
	if need <= limit {
		return nil
	}
	fit := rules * limit / need
	err = fmt.Errorf("about %d rules are too many for one batch of %s of an ordinary user, whose limit here is %d: "+
		"run as root, choose a smaller N, %s, or run as root: sysctl net.core.wmem_default=%d", rules, tool, fit, other, need*2)
	if r.Feed == raw.FeedAPI { // the other subjects continue
		return &host.ExceededError{Value: float64(fit), Unit: "count", Err: fmt.Errorf("not run: %w", err)}
	}
	return err
}
