package fault

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/google/nftables"
	corev1 "k8s.io/api/core/v1"

	"synclab/bench/lab/netns"
	"synclab/proxier/kernel"
)

// NftProtocol is nft's name of a family.
func NftProtocol(family corev1.IPFamily) string {
	if family == corev1.IPv6Protocol {
		return "ip6"
	}
	return "ip"
}

// liveTable is the table that packets traverse, with the objects that a fault may delete.
type liveTable struct {
	conn  *nftables.Conn
	table *nftables.Table
	base  []*nftables.Chain
	other []*nftables.Chain // sorted by name
}

// liveNftables returns the subject's table with base chains; nil: packets traverse none.
func (r *Faults) liveNftables(family corev1.IPFamily) (*liveTable, error) {
	tables, conn, err := r.OwnNftables(family)
	if err != nil || len(tables) == 0 {
		return nil, err
	}
	all, err := conn.ListChainsOfTableFamily(tables[0].Family)
	if err != nil {
		return nil, fmt.Errorf("%s chains of nftables: %w", family, err)
	}
	slices.SortFunc(all, func(a, b *nftables.Chain) int { return cmp.Compare(a.Name, b.Name) })
	for _, table := range tables {
		l := &liveTable{conn: conn, table: table}
		for _, chain := range all {
			switch {
			case chain.Table.Name != table.Name:
			case chain.Hooknum != nil:
				l.base = append(l.base, chain)
			default:
				l.other = append(l.other, chain)
			}
		}
		if len(l.base) > 0 {
			return l, nil
		}
	}
	return nil, nil
}

// liveTables returns the tables of all families, or an error if one is missing.
func (r *Faults) liveTables() (map[corev1.IPFamily]*liveTable, error) {
	if err := netns.Guard(); err != nil {
		return nil, err
	}
	lives := map[corev1.IPFamily]*liveTable{}
	for _, family := range r.Families {
		l, err := r.liveNftables(family)
		if err != nil {
			return nil, err
		}
		if l == nil {
			return nil, fmt.Errorf("%s table %s: none has base chains, so that packets traverse none", family, r.About.Tables[0])
		}
		lives[family] = l
	}
	return lives, nil
}

// watchedNftables reports what the traversed table lacks. It reads the table only after a commit.
func (r *Faults) watchedNftables(stillMissing func(corev1.IPFamily, *liveTable) (string, error)) func() (string, error) {
	var last uint64
	var answer string
	return func() (string, error) {
		fingerprint, err := kernel.Fingerprint(kernel.Nft, r.Families[0], "")
		if err != nil || fingerprint == last {
			return answer, err
		}
		answer = ""
		for _, family := range r.Families {
			l, err := r.liveNftables(family)
			switch {
			case err != nil:
				return "", err
			case l == nil:
				answer = fmt.Sprintf("%s: packets traverse no table of the subject", family)
			default:
				if answer, err = stillMissing(family, l); err != nil {
					return "", err
				}
			}
			if answer != "" {
				break
			}
		}
		last = fingerprint
		return answer, nil
	}
}
