package bench

import (
	"fmt"

	"synclab/proxier/iptables"
	"synclab/proxier/kernel"
)

// nftRuleBytes is about what a rule takes in a netlink batch of iptables-nft-restore.
const nftRuleBytes = 600

// fits refuses a cluster whose first full sync the nft variant could not send: for an ordinary user the kernel bounds
// one batch, and the restore would fail again and again until the settle step gives up. The lab's own proxier sends the
// chains of Services in batches that fit; in layout classic the dispatch rules have to go in one.
func (r *repetition) fits() error {
	if r.variant != iptables.Nft || r.layout == iptables.Tree {
		return nil
	}
	limit, err := kernel.SendLimit()
	if err != nil || limit == 0 {
		return err
	}
	rules := 0
	objects := r.world.Objects()
	for _, svc := range objects.Services {
		rules += len(svc.Spec.Ports)
	}
	for _, slice := range objects.Slices {
		if r.about.Proxier == Synclab {
			break
		}
		rules += 3 * len(slice.Endpoints) * len(slice.Ports)
	}
	if need := rules * nftRuleBytes; need > limit {
		err := fmt.Errorf("about %d rules are too many for one iptables-nft-restore of an ordinary user, which takes %d here: "+
			"run as root, choose a smaller N, synclab/iptables-nft-tree or synclab/iptables-legacy, or let root say: sysctl net.core.wmem_default=%d",
			rules, limit/nftRuleBytes, need*2)
		if r.Feed == FeedAPI { // the other subjects go on
			return &exceededError{value: float64(limit / nftRuleBytes), unit: "count", err: fmt.Errorf("not run: %w", err)}
		}
		return err
	}
	return nil
}
