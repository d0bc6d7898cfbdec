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
	forms      []Form
}

// A search walks a list for each of its entries: chains, of which rules are a multiple, or maps without a name, of which
// each Service has one. Where a list no longer fits into the processor's caches, each step takes longer, too: profiles
// of maps show exponents up to 3. Of the two forms the fit takes one, and the other one is an alternative.
var (
	searchOfChains = []Form{{State: "square", X: "rules"}}
	searchOfMaps   = []Form{{State: "plane-square"}, {State: "plane-cubic"}}
)

// causes has the kinds of syncs that one superlinear function rules. Elsewhere the points choose: a cause must not hide
// growth that profiles have not shown yet.
var causes = []cause{
	{isLegacy, []string{Full, Resync}, []Quantity{ToolUser, Total, CPU}, searchOfChains}, // iptcc_chain_index_build
	{isNft, []string{Full, Resync}, []Quantity{ToolUser, Total, CPU}, searchOfChains},    // cache_chain_list_insert
	{usesNft, []string{Full, Resync}, []Quantity{ToolSys, Total, CPU}, searchOfMaps},     // __nft_set_trans_bind, nf_tables_newset
}

func isLegacy(s subject.Spec) bool {
	return s.Backend == proxier.Iptables && s.Variant == iptables.Legacy
}

func isNft(s subject.Spec) bool { return s.Backend == proxier.Iptables && s.Variant == iptables.Nft }

// usesNft: kube-proxy's mode nftables runs the nft command.
func usesNft(s subject.Spec) bool {
	return s.Proxier == subject.KubeProxy && s.Backend == proxier.Nftables
}

// caused returns the formulas that agree with the cause of a quantity's growth; none if no cause is known, or if the
// points do not differ in the variables of its formulas.
func caused(name string, q Quantity, kind string, variables []string) []Form {
	about, err := subject.Parse(name)
	if err != nil {
		return nil
	}
	for _, c := range causes {
		if c.of(about) && slices.Contains(c.kinds, kind) && slices.Contains(c.quantities, q) {
			return slices.DeleteFunc(slices.Clone(c.forms), func(f Form) bool {
				return f.X != "" && !slices.Contains(variables, f.X) || f.X == "" && !slices.Contains(variables, "s")
			})
		}
	}
	return nil
}
