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
	err := read(variant, family, func(n *Nftables) error {
		return n.ask(mostTries, func() error {
			chains = chains[:0]
			return n.s.dumpChains(family, table, func(c Chain) { chains = append(chains, c) })
		})
	}, func(l *LegacyTables) (err error) {
		chains, err = l.chains(family, table)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("chains of %s table %s (%s): %w", family, table, variant, err)
	}
	return chains, nil
}

// Fingerprint returns a number that differs after a table was changed. It takes microseconds, whatever the size of the
// table. Variant nft: the number of the last commit to the namespace's ruleset, by any process, in any table. Variant
// legacy has no such number. There, the fingerprint is made of the table's size and misses a change that keeps the
// number of rules and their bytes. Fingerprints are comparable within one variant, family and table only.
func Fingerprint(variant string, family corev1.IPFamily, table string) (fingerprint uint64, err error) {
	err = read(variant, family, func(n *Nftables) error {
		generation, err := n.Generation()
		fingerprint = uint64(generation)
		return err
	}, func(l *LegacyTables) error {
		of, err := l.Fingerprint(family, table)
		fingerprint = uint64(of.Entries)<<32 | uint64(of.Bytes)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("fingerprint of %s table %s (%s): %w", family, table, variant, err)
	}
	return fingerprint, nil
}

// Tally returns the number of rules in each chain of a table, built-in ones included. The policy of a built-in chain is
// no rule, as in iptables -S. Variant legacy copies the whole table during the call, some 150 bytes a rule: read the
// peak RSS before.
func Tally(variant string, family corev1.IPFamily, table string) (map[string]int, error) {
	return tally(variant, family, table, mostTries)
}

// TallyOnce is Tally without a retry: it fails when the ruleset changes during the read (see Changed).
func TallyOnce(variant string, family corev1.IPFamily, table string) (map[string]int, error) {
	return tally(variant, family, table, 1)
}

func tally(variant string, family corev1.IPFamily, table string, tries int) (tally map[string]int, err error) {
	err = read(variant, family, func(n *Nftables) error {
		tally, err = n.tally(family, table, tries)
		return err
	}, func(l *LegacyTables) error {
		tally, err = l.tally(family, table)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("rules of %s table %s by chain (%s): %w", family, table, variant, err)
	}
	return tally, nil
}

// read opens the rules of a variant for one call.
func read(variant string, family corev1.IPFamily, nft func(*Nftables) error, legacy func(*LegacyTables) error) error {
	switch _, known := nfProtocols[family]; {
	case !known:
		return errFamily
	case variant == Nft:
		n, err := OpenNftables()
		if err != nil {
			return err
		}
		defer n.Close()
		return nft(n)
	case variant == Legacy:
		l, err := OpenLegacy(family)
		if err != nil {
			return err
		}
		defer l.Close()
		return legacy(l)
	}
	return errVariant
}
