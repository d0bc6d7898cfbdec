package bench

import (
	"fmt"

	"synclab/bench/host"
	"synclab/bench/raw"
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
	ownTables := r.About.Nftables()
	// Without a tool, it sends batches of netlink itself.
	if r.About.Tool == "" || r.About.Legacy() || !ownTables && !r.About.Classic() {
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
	rules, need, other := ports, ports*nftPortBytes+endpoints*nftEndpointBytes, "synclab/nftables"
	if !ownTables {
		if !r.About.Own {
			rules += 3 * endpoints
		}
		need, other = rules*nftRuleBytes, "synclab/iptables-nft-tree or synclab/iptables-legacy"
	}
	if need <= limit {
		return nil
	}
	fit := rules * limit / need
	err = fmt.Errorf("about %d rules are too many for one batch of %s of an ordinary user, whose limit here is %d: "+
		"run as root, choose a smaller N, %s, or run as root: sysctl net.core.wmem_default=%d", rules, r.About.Tool, fit, other, need*2)
	if r.Feed == raw.FeedAPI { // the other subjects continue
		return &host.ExceededError{Value: float64(fit), Unit: "count", Err: fmt.Errorf("not run: %w", err)}
	}
	return err
}
