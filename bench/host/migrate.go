package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"

	"synclab/bench/pass"
	"synclab/bench/raw"
	"synclab/bench/subject"
	"synclab/bench/visible"
	"synclab/proxier"
	"synclab/proxier/iptables"
	"synclab/proxier/kernel"
	"synclab/sim"
)

// Migrate ends the subject, as the end of its pod would, and starts another one after a gap. The rules of the first one
// stay: it is the second one's task to remove them. Metric move is the time from the end's begin until the second one's
// tables have every Service.
func (r *Host) Migrate(ctx context.Context, to subject.Spec, gap time.Duration, name string) error {
	r.Messages.Stage(name, 0, 0)
	if r.Feed != raw.FeedAPI {
		return fmt.Errorf("step migrate needs --feed %s: both subjects are separate processes", raw.FeedAPI)
	}
	for _, listen := range r.Events.Restarting {
		listen(ctx)
	}
	began := r.Clock.Now()
	if err := r.Stop(); err != nil {
		return err
	}
	if err := pass.Wait(ctx, gap); err != nil {
		return err
	}
	r.Harness.left = append(r.Harness.left, r.About)
	r.compareBehaviour(to)
	r.About, r.Variant, r.Layout = to, to.Variant, to.Layout
	if err := r.Shim.SetVariant(string(to.Variant)); err != nil {
		return err
	}
	watcher, err := r.newWatcher()
	if err != nil {
		return err
	}
	r.Harness.Visible.Close()
	r.Harness.Visible = watcher
	r.Harness.awaitAgain(began)
	objects := r.World.Objects()
	for _, slice := range objects.Slices {
		watcher.Changed(sim.Add, slice, began)
	}
	for _, svc := range objects.Services {
		watcher.Changed(sim.Add, svc, began)
	}
	if to.Proxier == subject.Synclab && r.Harness.log.pipe == nil {
		if err := r.openSyncLog(ctx); err != nil {
			return err
		}
	}
	return r.Start(ctx, 0)
}

// compareBehaviour records how many Services the next subject treats differently by design.
func (r *Host) compareBehaviour(to subject.Spec) {
	if r.About.Proxier != subject.KubeProxy || to.Proxier != subject.KubeProxy {
		return
	}
	services := r.World.Objects().Services
	for i := range subject.Behaviours {
		b := &subject.Behaviours[i]
		if n := b.Affected(services); n > 0 && b.Differs(r.About.Backend, to.Backend) {
			r.RecordAs(raw.Record{Unit: "count", Table: b.ID}, raw.BehaviourDiffers, float64(n))
		}
	}
}

// awaitAgain makes the harness record when every Service is visible, as after the first start.
func (t *Harness) awaitAgain(began time.Time) {
	t.cold.mu.Lock()
	defer t.cold.mu.Unlock()
	t.cold.began, t.cold.due, t.cold.visible, t.cold.recorded, t.cold.moved = began, began, nil, false, true
}

// CountLeft counts what earlier subjects left in the kernel, after the current one has converged. What the current one
// has of the same kind is not counted: nothing distinguishes the two.
func (r *Host) CountLeft() error {
	if r.Harness == nil || len(r.Harness.left) == 0 {
		return nil
	}
	old := r.Harness.left[len(r.Harness.left)-1]
	r.Harness.left = nil
	for _, family := range r.Families {
		for _, variant := range []iptables.Variant{iptables.Legacy, iptables.Nft} {
			if err := r.countChains(old, variant, family); err != nil {
				return err
			}
		}
		if err := r.countTablesLeft(old, family); err != nil {
			return err
		}
		if err := r.countServersLeft(old, family); err != nil {
			return err
		}
	}
	return nil
}

// countChains counts the chains and rules of proxiers in tables of iptables.
func (r *Host) countChains(old subject.Spec, variant iptables.Variant, family corev1.IPFamily) error {
	ours := func(s subject.Spec) bool {
		return s.Variant == variant || s.Backend == subject.IPVS // whichever variant its iptables has
	}
	if !ours(old) || ours(r.About) {
		return nil
	}
	chains, rules := 0, 0
	for _, table := range []string{"nat", "filter", "mangle"} {
		tally, err := kernel.Tally(string(variant), family, table)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		for chain, n := range tally {
			if strings.HasPrefix(chain, "KUBE-") {
				chains, rules = chains+1, rules+n
			}
		}
	}
	r.leftBehind(family, "chains of iptables-"+string(variant), chains)
	r.leftBehind(family, "rules of iptables-"+string(variant), rules)
	return nil
}

// countTablesLeft counts the tables of nf_tables that the old subject has and the current one has not.
func (r *Host) countTablesLeft(old subject.Spec, family corev1.IPFamily) error {
	if old.Backend != proxier.Nftables {
		return nil
	}
	tables, _, err := r.OwnNftables(family)
	if err != nil {
		return err
	}
	n := 0
	for _, table := range tables {
		if slices.Contains(subject.OwnTables[old.Proxier], table.Name) && (r.About.Backend != proxier.Nftables || !slices.Contains(subject.OwnTables[r.About.Proxier], table.Name)) {
			n++
		}
	}
	r.leftBehind(family, "tables of nf_tables", n)
	return nil
}

// countServersLeft counts what mode ipvs leaves: virtual servers, and addresses of its dummy device.
func (r *Host) countServersLeft(old subject.Spec, family corev1.IPFamily) error {
	if old.Backend != subject.IPVS || r.About.Backend == subject.IPVS {
		return nil
	}
	servers, err := visible.CountIPVS(family)
	if err != nil {
		return err
	}
	r.leftBehind(family, "virtual servers of IPVS", servers.Virtual)
	addresses := 0
	if link, err := netlink.LinkByName("kube-ipvs0"); err == nil {
		list, err := netlink.AddrList(link, addressFamily(family))
		if err != nil {
			return fmt.Errorf("addresses of kube-ipvs0: %w", err)
		}
		addresses = len(list)
	}
	r.leftBehind(family, "addresses of kube-ipvs0", addresses)
	return nil
}

func addressFamily(family corev1.IPFamily) int {
	if family == corev1.IPv6Protocol {
		return netlink.FAMILY_V6
	}
	return netlink.FAMILY_V4
}

func (r *Host) leftBehind(family corev1.IPFamily, what string, n int) {
	r.RecordAs(raw.Record{Unit: "count", Family: string(family), Table: what}, raw.LeftBehind, float64(n))
}
