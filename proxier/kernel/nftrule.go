package kernel

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// ruleReader reads a rule expression by expression, in the order in which the kernel works through them.
type ruleReader struct {
	rule      Rule
	addrSize  int               // of the rule's family, in bytes
	registers map[uint32][]byte // what immediates put there; a lookup's result is not known
}

func ruleOf(attrs []byte, protocol byte) (Rule, error) {
	r := ruleReader{addrSize: 4}
	if protocol == unix.NFPROTO_IPV6 {
		r.addrSize = 16
	}
	err := inside(attrs, unix.NFTA_RULE_EXPRESSIONS, func(list []byte) error {
		return inside(list, unix.NFTA_LIST_ELEM, r.expression)
	})
	return r.rule, err
}

func (r *ruleReader) expression(expression []byte) error {
	name, body, err := expressionOf(expression)
	if err != nil {
		return err
	}
	switch string(name) {
	case "immediate":
		return r.immediate(body)
	case "lookup":
		return r.lookup(body)
	case "target":
		return r.target(body)
	case "nat":
		return r.nat(body)
	case "reject", "redir", "masq", "tproxy", "dup", "fwd", "queue", "synproxy":
		r.rule.Other = true
	}
	return nil
}

// expressionOf takes an expression apart.
func expressionOf(expression []byte) (name, body []byte, err error) {
	err = eachAttr(expression, func(kind uint16, value []byte) {
		switch kind {
		case unix.NFTA_EXPR_NAME:
			name = cString(value)
		case unix.NFTA_EXPR_DATA:
			body = value
		}
	})
	return name, body, err
}

// immediate is a verdict, or a value for what follows.
func (r *ruleReader) immediate(body []byte) error {
	var register uint32
	var data []byte
	err := eachAttr(body, func(kind uint16, value []byte) {
		switch kind {
		case unix.NFTA_IMMEDIATE_DREG:
			register = number(value)
		case unix.NFTA_IMMEDIATE_DATA:
			data = value
		}
	})
	if err != nil {
		return err
	}
	jump, err := verdictOf(data)
	if jump != "" {
		r.rule.Jump = jump
	}
	if err != nil {
		return err
	}
	if register == unix.NFT_REG_VERDICT && jump == "" {
		r.rule.Other = true
	}
	return inside(data, unix.NFTA_DATA_VALUE, func(value []byte) error {
		if r.registers == nil {
			r.registers = map[uint32][]byte{}
		}
		r.registers[register] = value
		return nil
	})
}

// lookup notes the set's name when something is taken out of it: without a destination it is a question of membership.
func (r *ruleReader) lookup(body []byte) error {
	set, takes := "", false
	err := eachAttr(body, func(kind uint16, value []byte) {
		switch kind {
		case unix.NFTA_LOOKUP_SET:
			set = string(cString(value))
		case unix.NFTA_LOOKUP_DREG:
			takes = true
		}
	})
	if takes {
		r.rule.Map, r.registers = set, nil
	}
	return err
}

// target is one of xtables: iptables-nft up to 1.8.9 at least writes DNAT so.
func (r *ruleReader) target(body []byte) error {
	var name, data []byte
	var revision uint32
	err := eachAttr(body, func(kind uint16, value []byte) {
		switch kind {
		case unix.NFTA_TARGET_NAME:
			name = cString(value)
		case unix.NFTA_TARGET_REV:
			revision = number(value)
		case unix.NFTA_TARGET_INFO:
			data = value
		}
	})
	if string(name) == targetDNAT {
		r.rule.DNAT = dnatOf(revision, data, r.addrSize)
	}
	r.rule.Other = otherTarget(string(name), r.rule.DNAT)
	return err
}

// nat is nf_tables' own way, with address and port in registers.
func (r *ruleReader) nat(body []byte) error {
	values := map[uint16]uint32{}
	err := eachAttr(body, func(kind uint16, value []byte) { values[kind] = number(value) })
	if err != nil {
		return err
	}
	if values[unix.NFTA_NAT_TYPE] != unix.NFT_NAT_DNAT {
		r.rule.Other = true
		return nil
	}
	least := func(kind, most uint16) []byte {
		if last, given := values[most]; given && last != values[kind] {
			return nil // a range
		}
		return r.registers[values[kind]]
	}
	addr := least(unix.NFTA_NAT_REG_ADDR_MIN, unix.NFTA_NAT_REG_ADDR_MAX)
	r.rule.DNAT = addrPort(addr, least(unix.NFTA_NAT_REG_PROTO_MIN, unix.NFTA_NAT_REG_PROTO_MAX))
	r.rule.Other = !r.rule.DNAT.IsValid() && r.rule.Map == ""
	return nil
}

// number is the value of an attribute of 4 bytes; 0 when it has another size.
func number(value []byte) uint32 {
	if len(value) != 4 {
		return 0
	}
	return binary.BigEndian.Uint32(value)
}
