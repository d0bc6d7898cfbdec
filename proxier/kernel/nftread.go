package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"synclab/proxier/kernel/attr"
)

// Nftables reads single objects of the nf_tables ruleset, of iptables-nft and of nft alike, over a socket that stays
// open. A read takes microseconds, whatever the size of the ruleset. It belongs to the network namespace of the thread
// that opened it, whichever thread reads. Not safe for concurrent use.
//
// Rules and elements are those of the last commit. A count of uses is not: it changes while a transaction is prepared.
type Nftables struct {
	s *socket // nil: the kernel has no nfnetlink, so there are no rules
}

// NftElement is an element of a set or a map.
type NftElement struct {
	Key  []byte
	Data []byte // of a map; each field of a concatenation begins at a multiple of 4
	Jump string // of a verdict map: the chain
	// Timeout and Expires are the lifetime of the element and the time left, in milliseconds; 0: unlimited.
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

// Generation returns the number of the namespace's last commit, in any table.
func (n *Nftables) Generation() (uint32, error) {
	var id uint32
	err := n.ask(mostTries, func() (err error) {
		id, err = n.s.generation()
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("generation of nf_tables: %w", err)
	}
	return id, nil
}

// Rules returns the rules of one chain, in order; none when there is no such chain.
func (n *Nftables) Rules(family corev1.IPFamily, table, chain string) ([]Rule, error) {
	return chainRules(n, family, table, chain, ruleOf)
}

// chainRules reads the rules of one chain with of, which gets their attributes.
func chainRules[R any](n *Nftables, family corev1.IPFamily, table, chain string, of func(attrs []byte, family corev1.IPFamily) (R, error)) (rules []R, err error) {
	err = n.ask(mostTries, func() error {
		rules = rules[:0]
		return n.s.dumpRules(family, table, chain, func(attrs []byte) error {
			rule, err := of(attrs, family)
			rules = append(rules, rule)
			return err
		})
	})
	if err != nil {
		return nil, fmt.Errorf("rules of %s table %s chain %s: %w", family, table, chain, err)
	}
	return rules, nil
}

// Uses returns the sum of a chain's rules and of the jumps to the chain; false when there is no such chain.
func (n *Nftables) Uses(family corev1.IPFamily, table, chain string) (uses int, ok bool, err error) {
	filter := attr.AppendText(nil, unix.NFTA_CHAIN_TABLE, table)
	filter = attr.AppendText(filter, unix.NFTA_CHAIN_NAME, chain)
	err = n.ask(mostTries, func() error {
		return n.s.one(unix.NFT_MSG_GETCHAIN, nfProtocols[family], filter, func(attrs []byte) error {
			ok = true
			var err error
			for a := range attr.All(attrs, &err) {
				if a.Type == unix.NFTA_CHAIN_USE && len(a.Value) == 4 {
					uses = int(a.Uint32())
				}
			}
			return err
		})
	})
	if err != nil {
		return 0, false, fmt.Errorf("%s table %s chain %s: %w", family, table, chain, err)
	}
	return uses, ok, nil
}

// Elements returns the elements of a set or a map; none when there is no such set.
func (n *Nftables) Elements(family corev1.IPFamily, table, set string) ([]NftElement, error) {
	var elements []NftElement
	err := n.ask(mostTries, func() error {
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

// NftTally counts the content of a table.
type NftTally struct{ Rules, Chains, Sets, Elements int }

// Tally counts the content of a table: see Sizes for what that may cost.
func (n *Nftables) Tally(family corev1.IPFamily, table string) (NftTally, error) {
	var t NftTally
	err := n.ask(mostTries, func() error {
		t = NftTally{}
		if err := n.s.eachChain(family, table, func(_ Chain, rules int) { t.Chains++; t.Rules += rules }); err != nil {
			return err
		}
		sizes, err := n.s.sizes(family, table, true)
		if errors.Is(err, unix.ENOENT) && t == (NftTally{}) {
			return nil
		}
		t.Sets = len(sizes)
		for _, size := range sizes {
			t.Elements += size.Elements
		}
		return err
	})
	if err != nil {
		return NftTally{}, fmt.Errorf("%s table %s: %w", family, table, err)
	}
	return t, nil
}

// mostTries is how often a question is asked while the ruleset changes.
const mostTries = 10

// ask repeats a question when the ruleset changed meanwhile. A missing object, or a kernel without nf_tables, gives an
// empty answer and no error. If that error comes after the answer began, the object was deleted and the answer is cut
// off.
func (n *Nftables) ask(tries int, question func() error) error {
	if n.s == nil {
		return nil
	}
	for try := 1; ; try++ {
		n.s.read = 0
		err := question()
		if absent(err) {
			if n.s.read == 0 {
				return nil
			}
			err = cutOff(err)
		}
		if !errors.Is(err, errChanged) || try == tries {
			return err
		}
	}
}

// absent reports whether an error means that there is no such object, or no nf_tables in the kernel.
func absent(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP)
}

// cutOff wraps such an error after a part of the answer was read.
func cutOff(err error) error { return fmt.Errorf("answer cut off: %w: %w", errChanged, err) }

// one sends a request for a single object and calls yield with its attributes.
func (s *socket) one(kind uint16, protocol byte, filter []byte, yield func(attrs []byte) error) error {
	if err := s.send(kind, unix.NLM_F_REQUEST, protocol, filter); err != nil {
		return err
	}
	answered := false
	for { // the first reads may have the rest of an abandoned dump
		done, err := s.receive(new(bool), func(attrs []byte) error {
			answered = true
			return yield(attrs)
		})
		if err != nil || done || answered {
			return err
		}
	}
}

// dumpElements calls yield for each element of a set.
func (s *socket) dumpElements(protocol byte, table, set string, yield func(element []byte) error) error {
	filter := attr.AppendText(nil, unix.NFTA_SET_ELEM_LIST_TABLE, table)
	filter = attr.AppendText(filter, unix.NFTA_SET_ELEM_LIST_SET, set)
	return s.dump(unix.NFT_MSG_GETSETELEM, protocol, filter, func(attrs []byte) error {
		return inside(attrs, unix.NFTA_SET_ELEM_LIST_ELEMENTS, func(list []byte) error {
			return inside(list, unix.NFTA_LIST_ELEM, yield)
		})
	})
}

// inside calls yield with the value of each attribute of a kind, until it fails.
func inside(attrs []byte, kind uint16, yield func(value []byte) error) (err error) {
	for a := range attr.All(attrs, &err) {
		if a.Type != kind {
			continue
		}
		if err := yield(a.Value); err != nil {
			return err
		}
	}
	return err
}

// verdictOf returns the chain of a verdict; empty when it names none, or when data is no verdict.
func verdictOf(data []byte) (chain string, err error) {
	err = inside(data, unix.NFTA_DATA_VERDICT, func(verdict []byte) error {
		return inside(verdict, unix.NFTA_VERDICT_CHAIN, func(name []byte) error {
			chain = attr.Text(name)
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
	for a := range attr.All(attrs, &err) {
		switch {
		case len(a.Value) != 8:
		case a.Type == unix.NFTA_SET_ELEM_TIMEOUT:
			e.Timeout = binary.BigEndian.Uint64(a.Value)
		case a.Type == unix.NFTA_SET_ELEM_EXPIRATION:
			e.Expires = binary.BigEndian.Uint64(a.Value)
		}
	}
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
