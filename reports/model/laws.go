package model

import (
	"slices"

	"synclab/bench/subject"
	"synclab/proxier"
	"synclab/proxier/iptables"
)

// cause is why a phase of a sync grows as it does, as the profiles of `synclab explain` show it (docs/why-slow.md). At
// the sizes of a calibration, noise can favour a formula that has no cause. Such a formula errs most far beyond the fit.
type cause struct {
	of         func(subject.Spec) bool
	kinds      []string
	quantities []Quantity // phases, and wholes in which the phase has a large share
	forms      []Form     // without their part for changes
}

// A search walks a list for each of its entries: chains, of which each endpoint has one, or maps without a name, of which
// each Service has one.
var (
	searchOfChains = []Form{{State: "square", X: "n"}, {State: "square", X: "rules"}}
	searchOfMaps   = []Form{{State: "quadratic", X: "s"}, {State: "square", X: "s"}, {State: "plane-square"}, {State: "plane-power"}}
)

// causes has the kinds of syncs that one superlinear function rules. Elsewhere the points choose: a cause must not hide
// growth that profiles have not shown yet.
var causes = []cause{
	{isNft, []string{Full, Resync}, []Quantity{ToolUser, Total, CPU}, searchOfChains}, // cache_chain_list_insert
	{usesNft, []string{Full, Resync}, []Quantity{ToolSys, Total, CPU}, searchOfMaps},  // __nft_set_trans_bind, nf_tables_newset
}

func isNft(s subject.Spec) bool { return s.Variant == iptables.Nft }

// usesNft: kube-proxy's mode nftables runs the nft command.
func usesNft(s subject.Spec) bool {
	return s.Proxier == subject.KubeProxy && s.Backend == proxier.Nftables
}

// caused returns those of the formulas that a known cause explains; all if none is known.
func caused(name string, q Quantity, kind string, tried []Form) []Form {
	about, err := subject.Parse(name)
	if err != nil {
		return tried
	}
	for _, c := range causes {
		if c.of(about) && slices.Contains(c.kinds, kind) && slices.Contains(c.quantities, q) {
			return slices.DeleteFunc(slices.Clone(tried), func(f Form) bool { return !slices.Contains(c.forms, Form{State: f.State, X: f.X}) })
		}
	}
	return tried
}
