package host

import (
	"context"
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

// Count records the subject's rules in the kernel, and the elements of its sets and maps. Of IPVS, virtual servers are the
// rules, and real servers the elements.
func (r *Host) Count() error {
	defer r.recordKernelMemory()
	if r.About.KnownBackend() && !r.About.Nftables() && r.About.Carrier != subject.VirtualServers {
		return r.countChains()
	}
	var all map[corev1.IPFamily]visible.Installed
	err := r.steady(func() (err error) { all, err = r.Harness.Watcher.Installed(context.Background()); return err })
	if err != nil {
		return err
	}
	for _, family := range r.Families {
		in := all[family]
		for table, rules := range in.Rules {
			r.RecordAs(raw.Record{Family: string(family), Table: table}, raw.RulesKernel, float64(rules))
		}
		if in.Elements > 0 || r.About.KnownBackend() {
			r.RecordAs(raw.Record{Family: string(family), Table: "elements"}, raw.RulesKernel, float64(in.Elements))
		}
	}
	return nil
}

// countChains records the number of rules in the proxier's chains, and what the closed form predicts.
func (r *Host) countChains() error {
	forms, applies := pass.ClosedForms(r.World.Objects(), r.Families, r.Config)
	// Other subjects may keep stale chains for a while, and layout tree has more, and other, dispatch rules.
	applies = applies && r.About.Own && r.Current().Classic() && !r.Followed
	for _, family := range r.Families {
		for _, table := range []iptables.Table{iptables.NAT, iptables.Filter} {
			var tally map[string]int
			err := r.steady(func() (err error) {
				tally, err = kernel.Tally(string(r.About.Variant), family, string(table))
				return err
			})
			if err != nil {
				return err
			}
			rules := 0
			for chain, n := range tally {
				if strings.HasPrefix(chain, "KUBE-") {
					rules += n
				}
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

func (r *Host) recordKernelMemory() {
	if now, err := machine.ReadKernelMemory(); err == nil && now > r.Memory && r.Memory > 0 {
		r.RecordAs(raw.Record{}, raw.KernelMemory, float64(now-r.Memory))
	}
}
