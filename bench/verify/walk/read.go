package walk

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"synclab/proxier/kernel"
)

// ReadNftables compiles tables of nf_tables from the kernel, in the network namespace of this thread. A missing table
// has no rules.
func ReadNftables(family corev1.IPFamily, tables ...string) (*Rules, error) {
	s, err := kernel.OpenNftables()
	if err != nil {
		return nil, err
	}
	defer s.Close()
	const tries = 10 // other processes may write meanwhile
	var n *nftables
	for try := 1; ; try++ {
		n = newNftables(family)
		for _, table := range tables {
			if err = s.Dump(family, table, n.message); err != nil {
				break
			}
		}
		if err == nil || !kernel.Changed(err) || try == tries {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	rules, err := n.rules()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", family, err)
	}
	return rules, nil
}
