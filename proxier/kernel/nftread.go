package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

// Nftables asks single questions about the nf_tables ruleset, of iptables-nft and of nft alike, over a socket that stays
// open: microseconds each, whatever the size of the ruleset. It belongs to the network namespace of the thread that
// opened it, whichever thread asks. Not safe for concurrent use.
//
// Rules and elements are those of the last commit. A count of uses is not: it moves while a transaction is prepared.
type Nftables struct {
	s *socket // nil: the kernel has no nfnetlink, so there is nothing
}

// NftElement is an element of a set or a map.
type NftElement struct {
	Key  []byte
	Data []byte // of a map; each field of a concatenation begins at a multiple of 4
	Jump string // of a verdict map: the chain
	// Timeout and Expires are how long it lives, and how much of that is left; 0: forever. In milliseconds.
	Timeout, Expires uint64
}

// OpenNftables opens the socket.
func OpenNftables() (*Nftables, error) {
	s, err := openSocket()
	if errors.Is(err, unix.EPROTONOSUPPORT) {
		return &Nftables{}, nil
	}
	return &Nftables{s}, err
}

// Close closes the socket.
func (n *Nftables) Close() {
	if n.s != nil {
		n.s.close()
	}
}

// Generation is the number of the namespace's last commit, in whatever table.
func (n *Nftables) Generation() (uint32, error) {
	var id uint32
	err := n.ask(func() (err error) {
		id, err = n.s.generation()
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("generation of nf_tables: %w", err)
	}
	return id, nil
}

// Rules of one chain, in order; none when there is no such chain.
func (n *Nftables) Rules(family corev1.IPFamily, table, chain string) ([]Rule, error) {
	filter := stringAttr(nil, unix.NFTA_RULE_TABLE, table)
	filter = stringAttr(filter, unix.NFTA_RULE_CHAIN, chain)
	var rules []Rule
	err := n.ask(func() error {
		rules = rules[:0]
		return n.s.dump(unix.NFT_MSG_GETRULE, nfProtocols[family], filter, func(attrs []byte) error {
			rule, err := ruleOf(attrs, nfProtocols[family])
			rules = append(rules, rule)
			return err
		})
	})
	if err != nil {
		return nil, fmt.Errorf("rules of %s table %s chain %s: %w", family, table, chain, err)
	}
	return rules, nil
}

// Uses says how many rules a chain has and how many jumps lead to it, together; false when there is no such chain.
func (n *Nftables) Uses(family corev1.IPFamily, table, chain string) (uses int, ok bool, err error) {
	filter := stringAttr(nil, unix.NFTA_CHAIN_TABLE, table)
	filter = stringAttr(filter, unix.NFTA_CHAIN_NAME, chain)
	err = n.ask(func() error {
		return n.s.one(unix.NFT_MSG_GETCHAIN, nfProtocols[family], filter, func(attrs []byte) error {
			ok = true
			return eachAttr(attrs, func(kind uint16, value []byte) {
				if kind == unix.NFTA_CHAIN_USE && len(value) == 4 {
					uses = int(binary.BigEndian.Uint32(value))
				}
			})
		})
	})
	if err != nil {
		return 0, false, fmt.Errorf("%s table %s chain %s: %w", family, table, chain, err)
	}
	return uses, ok, nil
}

// Elements of a set or a map; none when there is no such set.
func (n *Nftables) Elements(family corev1.IPFamily, table, set string) ([]NftElement, error) {
	var elements []NftElement
	err := n.ask(func() error {
		elements = elements[:0]
		return n.s.dumpElements(nfProtocols[family], table, set, func(element []byte) error {
			e, err := elementOf(element)
			elements = append(elements, e)
			return err
		})
	})
	if err != nil {
		return nil, fmt.Errorf("elements of %s table %s set %s: %w", family, table, set, err)
	}
	return elements, nil
}

// NftTally is how much a table holds.
type NftTally struct{ Rules, Chains, Sets, Elements int }

// Tally counts what a table holds, in proportion to its size.
func (n *Nftables) Tally(family corev1.IPFamily, table string) (NftTally, error) {
	var t NftTally
	err := n.ask(func() error {
		t = NftTally{}
		if err := n.s.eachChain(family, table, func(_ Chain, rules int) { t.Chains++; t.Rules += rules }); err != nil {
			return err
		}
		var sets []string
		filter := stringAttr(nil, unix.NFTA_SET_TABLE, table)
		err := n.s.dump(unix.NFT_MSG_GETSET, nfProtocols[family], filter, func(attrs []byte) error {
			return eachAttr(attrs, func(kind uint16, value []byte) {
				if kind == unix.NFTA_SET_NAME {
					sets = append(sets, string(cString(value)))
				}
			})
		})
		if errors.Is(err, unix.ENOENT) && t == (NftTally{}) {
			return nil
		}
		t.Sets = len(sets)
		for _, set := range sets {
			err = errors.Join(err, n.s.dumpElements(nfProtocols[family], table, set, func([]byte) error { t.Elements++; return nil }))
		}
		return err
	})
	if err != nil {
		return NftTally{}, fmt.Errorf("%s table %s: %w", family, table, err)
	}
	return t, nil
}

// ask calls a question again when the ruleset changed meanwhile. What is not there, or a kernel that knows no nf_tables,
// is no error: then there is nothing. An answer that ends that way after its beginning is cut off: the object was deleted.
func (n *Nftables) ask(question func() error) error {
	if n.s == nil {
		return nil
	}
	const tries = 10
	for try := 1; ; try++ {
		n.s.read = 0
		err := question()
		if absent(err) {
			if n.s.read == 0 {
				return nil
			}
			err = cutOff(err)
		}
		switch {
		case !errors.Is(err, errChanged) || try == tries:
			return err
		}
	}
}

// absent errors say that there is no such object, or no nf_tables in the kernel.
func absent(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP)
}

// cutOff is such an error after a part of the answer was read.
func cutOff(err error) error { return fmt.Errorf("cut off: %w: %w", errChanged, err) }

// one sends a request for a single object and calls yield with its attributes.
func (s *socket) one(kind uint16, protocol byte, filter []byte, yield func(attrs []byte) error) error {
	if err := s.send(kind, unix.NLM_F_REQUEST, protocol, filter); err != nil {
		return err
	}
	for {
		n, err := unix.Read(s.fd, s.buf)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("netlink: %w", err)
		}
		_, err = s.messages(s.buf[:n], new(bool), yield)
		return err
	}
}

// dumpElements calls yield for each element of a set.
func (s *socket) dumpElements(protocol byte, table, set string, yield func(element []byte) error) error {
	filter := stringAttr(nil, unix.NFTA_SET_ELEM_LIST_TABLE, table)
	filter = stringAttr(filter, unix.NFTA_SET_ELEM_LIST_SET, set)
	return s.dump(unix.NFT_MSG_GETSETELEM, protocol, filter, func(attrs []byte) error {
		return inside(attrs, unix.NFTA_SET_ELEM_LIST_ELEMENTS, func(list []byte) error {
			return inside(list, unix.NFTA_LIST_ELEM, yield)
		})
	})
}

// inside calls yield with the value of each attribute of a kind.
func inside(attrs []byte, kind uint16, yield func(value []byte) error) error {
	var failed error
	err := eachAttr(attrs, func(k uint16, value []byte) {
		if k == kind && failed == nil {
			failed = yield(value)
		}
	})
	return errors.Join(err, failed)
}

// verdictOf gives the chain of a verdict; empty when it names none, or is none.
func verdictOf(data []byte) (chain string, err error) {
	err = inside(data, unix.NFTA_DATA_VERDICT, func(verdict []byte) error {
		return inside(verdict, unix.NFTA_VERDICT_CHAIN, func(name []byte) error {
			chain = string(cString(name))
			return nil
		})
	})
	return chain, err
}

func elementOf(attrs []byte) (e NftElement, err error) {
	clone := func(to *[]byte) func([]byte) error {
		return func(value []byte) error {
			*to = append([]byte(nil), value...)
			return nil
		}
	}
	err = inside(attrs, unix.NFTA_SET_ELEM_KEY, func(key []byte) error {
		return inside(key, unix.NFTA_DATA_VALUE, clone(&e.Key))
	})
	if err != nil {
		return e, err
	}
	err = eachAttr(attrs, func(kind uint16, value []byte) {
		switch {
		case len(value) != 8:
		case kind == unix.NFTA_SET_ELEM_TIMEOUT:
			e.Timeout = binary.BigEndian.Uint64(value)
		case kind == unix.NFTA_SET_ELEM_EXPIRATION:
			e.Expires = binary.BigEndian.Uint64(value)
		}
	})
	if err != nil {
		return e, err
	}
	err = inside(attrs, unix.NFTA_SET_ELEM_DATA, func(data []byte) error {
		var failed error
		e.Jump, failed = verdictOf(data)
		return errors.Join(failed, inside(data, unix.NFTA_DATA_VALUE, clone(&e.Data)))
	})
	return e, err
}
