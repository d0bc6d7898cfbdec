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
	// Builtin is true for the chains that hooks enter (INPUT, OUTPUT, ...). Legacy has all of a table's, always; nft
	// those that were ever needed.
	Builtin bool
}

// Chains returns the chains of a table, in no order to rely on.
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

// Stamp returns a number that differs when a table was changed: a cheap question (microseconds, whatever the size) to
// ask before any other. Variant nft: the number of the last commit to the namespace's ruleset, by anybody, in any table.
// Variant legacy has no such number: the stamp is made of the table's size, so a change that keeps the number of rules
// and their bytes goes unseen. Stamps are comparable within a variant, family and table only.
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

// Tally returns the number of rules of each chain of a table, built-in ones included. The policy of a built-in chain is
// not a rule here, as it is none in iptables -S. Variant legacy copies the whole table, some 150 bytes a rule, for the
// length of the call: read the peak RSS before.
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
