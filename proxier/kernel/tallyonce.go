package kernel

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

// TallyOnce is Tally without a retry: it fails when the ruleset changes during the read (see Changed).
func TallyOnce(variant string, family corev1.IPFamily, table string) (map[string]int, error) {
	if variant != Nft {
		return Tally(variant, family, table)
	}
	n, err := OpenNftables()
	if err != nil || n.s == nil {
		return nil, err
	}
	defer n.Close()
	tally := map[string]int{}
	err = n.s.eachChain(family, table, func(c Chain, rules int) { tally[c.Name] = rules })
	if err != nil && (n.s.read > 0 || !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.EOPNOTSUPP)) { // these: no nf_tables
		return nil, fmt.Errorf("rules of %s table %s by chain (%s): %w", family, table, variant, err)
	}
	return tally, nil
}
