package kernel

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// The two variants of iptables, as in the tools' names.
const (
	Legacy = "legacy"
	Nft    = "nft"
)

var errVariant = fmt.Errorf("unknown variant, want %s or %s", Legacy, Nft)

// Chain is one chain of a table.
type Chain struct {
	Name string
	// Builtin is true for the chains that hooks enter (INPUT, OUTPUT, ...). Legacy always has all of a table's built-in
	// chains; nft has those that a rule ever needed.
	Builtin bool
}

// Chains returns the chains of a table, in no guaranteed order.
func Chains(variant string, family corev1.IPFamily, table string) ([]Chain, error) {
	var chains []Chain
	var err error
	switch variant {
	case Legacy:
		chains, err = chainsLegacy(family, table)
	case Nft:
		chains, err = chainsNft(family, table)
	default:
		err = errVariant
	}
	if err != nil {
		return nil, fmt.Errorf("chains of %s table %s (%s): %w", family, table, variant, err)
	}
	return chains, nil
}

// Stamp returns a number that differs after a table was changed. It takes microseconds, whatever the size of the table.
// Variant nft: the number of the last commit to the namespace's ruleset, by any process, in any table. Variant legacy
// has no such number. There, the stamp is made of the table's size and misses a change that keeps the number of rules
// and their bytes. Stamps are comparable within one variant, family and table only.
func Stamp(variant string, family corev1.IPFamily, table string) (stamp uint64, err error) {
	switch variant {
	case Legacy:
		stamp, err = stampLegacy(family, table)
	case Nft:
		err = withNetlink(family, func(s *socket) error {
			id, err := s.generation()
			stamp = uint64(id)
			return err
		})
	default:
		err = errVariant
	}
	if err != nil {
		return 0, fmt.Errorf("stamp of %s table %s (%s): %w", family, table, variant, err)
	}
	return stamp, nil
}

// Tally returns the number of rules in each chain of a table, built-in ones included. The policy of a built-in chain is
// no rule, as in iptables -S. Variant legacy copies the whole table during the call, some 150 bytes a rule: read the
// peak RSS before.
func Tally(variant string, family corev1.IPFamily, table string) (map[string]int, error) {
	var tally map[string]int
	var err error
	switch variant {
	case Legacy:
		tally, err = tallyLegacy(family, table)
	case Nft:
		tally, err = tallyNft(family, table)
	default:
		err = errVariant
	}
	if err != nil {
		return nil, fmt.Errorf("rules of %s table %s by chain (%s): %w", family, table, variant, err)
	}
	return tally, nil
}
