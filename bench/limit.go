package bench

import (
	"fmt"

	"synclab/bench/host"
	"synclab/bench/raw"
	"synclab/bench/subject"
	"synclab/proxier/iptables"
	"synclab/proxier/kernel"
)

// nftRuleBytes is the approximate size of a rule in a netlink batch of iptables-nft-restore.
const nftRuleBytes = 600

// fits rejects a cluster whose first full sync the nft variant could not send. For an ordinary user, the kernel limits
// one batch, and the restore would fail until the settle step gives up. The lab's own proxier sends Services' chains in
// batches that fit, but in layout classic all dispatch rules go in one.
func (r *repetition) fits() error {
	if r.Variant != iptables.Nft || r.Layout == iptables.Tree {
		return nil
	}
	limit, err := kernel.SendLimit()
	if err != nil || limit == 0 {
		return err
	}
	rules := 0
	objects := r.World.Objects()
	for _, svc := range objects.Services {
		rules += len(svc.Spec.Ports)
	}
	for _, slice := range objects.Slices {
		if r.About.Proxier == subject.Synclab {
			break
		}
		rules += 3 * len(slice.Endpoints) * len(slice.Ports)
	}
	if need := rules * nftRuleBytes; need > limit {
		err := fmt.Errorf("about %d rules are too many for one iptables-nft-restore of an ordinary user, whose limit here is %d: "+
			"run as root, choose a smaller N, synclab/iptables-nft-tree or synclab/iptables-legacy, or run as root: sysctl net.core.wmem_default=%d",
			rules, limit/nftRuleBytes, need*2)
		if r.Feed == raw.FeedAPI { // the other subjects continue
			return &host.ExceededError{Value: float64(limit / nftRuleBytes), Unit: "count", Err: fmt.Errorf("not run: %w", err)}
		}
		return err
	}
	return nil
}
