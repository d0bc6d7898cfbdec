package host

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"synclab/bench/lab/machine"
	"synclab/bench/pass"
	"synclab/bench/raw"
	"synclab/bench/subject"
	"synclab/bench/subject/visible"
	"synclab/proxier/iptables"
	"synclab/proxier/kernel"
)

// own counts the proxier's chains and their rules in the kernel.
func (r *Host) own(family corev1.IPFamily, table iptables.Table) (chains, rules int, err error) {
	variant, prefix := string(r.About.Variant), "KUBE-"
	if r.About.Nftables() { // a separate table
		variant, prefix = kernel.Nft, ""
	}
	var tally map[string]int
	err = r.steady(func() (err error) { tally, err = kernel.Tally(variant, family, string(table)); return err })
	for chain, n := range tally {
		if strings.HasPrefix(chain, prefix) {
			chains++
			rules += n
		}
	}
	return chains, rules, err
}

// steady repeats a read of the kernel's rules that change meanwhile. A subject may have converged in one family and
// still write in the other, and on a busy machine a read takes longer than the subject pauses.
func (r *Host) steady(look func() error) error {
	const tries, pause = 60, 250 * time.Millisecond
	for try := 1; ; try++ {
		if err := look(); !kernel.Changed(err) || try == tries {
			return err
		}
		r.Clock.Sleep(pause)
	}
}

// countTables records the number of the proxier's rules in the kernel, and what the closed form predicts.
func (r *Host) countTables() error {
	defer r.recordKernelMemory()
	if r.About.Nftables() {
		return r.countNftables()
	}
	if r.About.Carrier == subject.VirtualServers {
		return r.countIPVS()
	}
	forms, applies := pass.ClosedForms(r.World.Objects(), r.Families, r.Config)
	// Other subjects may keep stale chains for a while, and layout tree has more, and other, dispatch rules.
	applies = applies && r.About.Own && r.Current().Classic() && !r.Followed
	for _, family := range r.Families {
		for _, table := range []iptables.Table{iptables.NAT, iptables.Filter} {
			_, rules, err := r.own(family, table)
			if err != nil {
				return err
			}
			place := raw.Record{Family: string(family), Table: string(table)}
			r.RecordAs(place, raw.RulesKernel, float64(rules))
			if applies {
				r.RecordAs(place, raw.RulesExpected, float64(forms[family][table]))
			}
		}
	}
	return nil
}

// countNftables counts the rules of the proxier's own tables, and the elements of its sets and maps.
func (r *Host) countNftables() error {
	tables, err := kernel.OpenNftables()
	if err != nil {
		return err
	}
	defer tables.Close()
	for _, family := range r.Families {
		var rules, elements int
		for _, name := range r.About.Tables {
			var tally kernel.NftTally
			err := r.steady(func() (err error) { tally, err = tables.Tally(family, name); return err })
			if err != nil {
				return err
			}
			rules, elements = rules+tally.Rules, elements+tally.Elements
		}
		r.RecordAs(raw.Record{Family: string(family), Table: r.About.Tables[0]}, raw.RulesKernel, float64(rules))
		r.RecordAs(raw.Record{Family: string(family), Table: "elements"}, raw.RulesKernel, float64(elements))
	}
	return nil
}

// countIPVS counts virtual servers as rules, and real servers as elements.
func (r *Host) countIPVS() error {
	for _, family := range r.Families {
		servers, err := visible.CountIPVS(family)
		if err != nil {
			return err
		}
		r.RecordAs(raw.Record{Family: string(family), Table: "ipvs"}, raw.RulesKernel, float64(servers.Virtual))
		r.RecordAs(raw.Record{Family: string(family), Table: "elements"}, raw.RulesKernel, float64(servers.Real))
	}
	return nil
}

func (r *Host) recordKernelMemory() {
	if now, err := machine.ReadKernelMemory(); err == nil && now > r.Memory && r.Memory > 0 {
		r.RecordAs(raw.Record{}, raw.KernelMemory, float64(now-r.Memory))
	}
}
