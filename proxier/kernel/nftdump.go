package kernel

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"synclab/proxier/kernel/attr"
)

// Dump calls yield with the content of a table, as the messages that would create it: chains, sets, elements, then the
// rules, chain by chain. kind is NFT_MSG_NEWCHAIN and so on; attrs are valid during the call. A missing table has no
// content. All messages are of one generation: Dump fails when the ruleset changes or the table is deleted meanwhile
// (see Changed).
func (n *Nftables) Dump(family corev1.IPFamily, table string, yield func(kind uint16, attrs []byte) error) error {
	if n.s == nil {
		return nil
	}
	read := false
	err := n.s.dumpTable(family, table, func(kind uint16, attrs []byte) error {
		read = true
		return yield(kind, attrs)
	})
	if absent(err) {
		if !read {
			return nil
		}
		err = cutOff(err)
	}
	if err != nil {
		return fmt.Errorf("%s table %s: %w", family, table, err)
	}
	return nil
}

// Changed reports whether a read failed because the ruleset changed meanwhile.
func Changed(err error) bool { return errors.Is(err, errChanged) }

func (s *socket) dumpTable(family corev1.IPFamily, table string, yield func(kind uint16, attrs []byte) error) error {
	before, err := s.generation()
	if err != nil {
		return err
	}
	protocol := nfProtocols[family]
	// The requests for chains and sets also collect the names, with which elements and rules are requested one by one.
	var chains, sets []string
	err = s.dump(unix.NFT_MSG_GETCHAIN, protocol, nil, func(attrs []byte) error {
		in, name, err := namesIn(attrs, unix.NFTA_CHAIN_TABLE, unix.NFTA_CHAIN_NAME)
		if err != nil || in != table {
			return err
		}
		chains = append(chains, name)
		return yield(unix.NFT_MSG_NEWCHAIN, attrs)
	})
	if err != nil {
		return err
	}
	err = s.dump(unix.NFT_MSG_GETSET, protocol, attr.AppendText(nil, unix.NFTA_SET_TABLE, table), func(attrs []byte) error {
		_, name, err := namesIn(attrs, unix.NFTA_SET_TABLE, unix.NFTA_SET_NAME)
		if err != nil {
			return err
		}
		sets = append(sets, name)
		return yield(unix.NFT_MSG_NEWSET, attrs)
	})
	if err != nil {
		return err
	}
	for _, set := range sets {
		filter := attr.AppendText(attr.AppendText(nil, unix.NFTA_SET_ELEM_LIST_TABLE, table), unix.NFTA_SET_ELEM_LIST_SET, set)
		if err := s.dump(unix.NFT_MSG_GETSETELEM, protocol, filter, messages(unix.NFT_MSG_NEWSETELEM, yield)); err != nil {
			return fmt.Errorf("set %s: %w", set, err)
		}
	}
	for _, chain := range chains {
		if err := s.dumpRules(family, table, chain, messages(unix.NFT_MSG_NEWRULE, yield)); err != nil {
			return fmt.Errorf("chain %s: %w", chain, err)
		}
	}
	after, err := s.generation()
	if err == nil && before != after {
		err = errChanged
	}
	return err
}

func messages(kind uint16, yield func(kind uint16, attrs []byte) error) func([]byte) error {
	return func(attrs []byte) error { return yield(kind, attrs) }
}

// namesIn returns the table and the name in a message.
func namesIn(attrs []byte, tableKind, nameKind uint16) (table, name string, err error) {
	for a := range attr.All(attrs, &err) {
		switch a.Type {
		case tableKind:
			table = a.Text()
		case nameKind:
			name = a.Text()
		}
	}
	return table, name, err
}
