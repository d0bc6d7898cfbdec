package kernel

import (
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"synclab/proxier/kernel/attr"
)

// ruleReader reads a rule expression by expression, in the order in which the kernel evaluates them.
type ruleReader struct {
	rule      Rule
	addrSize  int               // of the rule's family, in bytes
	registers map[uint32][]byte // the values of immediates; the result of a lookup is unknown
}

func ruleOf(attrs []byte, family corev1.IPFamily) (Rule, error) {
	r := ruleReader{addrSize: addrSizes[family]}
	err := eachExpression(attrs, r.expression)
	return r.rule, err
}

// addrSizes are the lengths of addresses in bytes.
var addrSizes = map[corev1.IPFamily]int{corev1.IPv4Protocol: 4, corev1.IPv6Protocol: 16}

// eachExpression calls yield with the name and the body of each expression of a rule, until it fails.
func eachExpression(attrs []byte, yield func(name string, body []byte) error) error {
	return inside(attrs, unix.NFTA_RULE_EXPRESSIONS, func(list []byte) error {
		return inside(list, unix.NFTA_LIST_ELEM, func(expression []byte) error {
			name, body, err := expressionOf(expression)
			if err != nil {
				return err
			}
			return yield(name, body)
		})
	})
}

func (r *ruleReader) expression(name string, body []byte) error {
	switch name {
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

// expressionOf returns the name and the body of an expression.
func expressionOf(expression []byte) (name string, body []byte, err error) {
	for a := range attr.All(expression, &err) {
		switch a.Type {
		case unix.NFTA_EXPR_NAME:
			name = a.Text()
		case unix.NFTA_EXPR_DATA:
			body = a.Value
		}
	}
	return name, body, err
}

// immediate reads a verdict, or a value for later expressions.
func (r *ruleReader) immediate(body []byte) error {
	var register uint32
	var data []byte
	var err error
	for a := range attr.All(body, &err) {
		switch a.Type {
		case unix.NFTA_IMMEDIATE_DREG:
			register = a.Uint32()
		case unix.NFTA_IMMEDIATE_DATA:
			data = a.Value
		}
	}
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

// lookup records the set's name when the lookup returns a value. Without a destination register, it only tests
// membership.
func (r *ruleReader) lookup(body []byte) error {
	set, takes := "", false
	var err error
	for a := range attr.All(body, &err) {
		switch a.Type {
		case unix.NFTA_LOOKUP_SET:
			set = a.Text()
		case unix.NFTA_LOOKUP_DREG:
			takes = true
		}
	}
	if takes {
		r.rule.Map, r.registers = set, nil
	}
	return err
}

// target reads an xtables target: iptables-nft up to 1.8.9 at least writes DNAT in this form.
func (r *ruleReader) target(body []byte) error {
	name := ""
	var data []byte
	var revision uint32
	var err error
	for a := range attr.All(body, &err) {
		switch a.Type {
		case unix.NFTA_TARGET_NAME:
			name = a.Text()
		case unix.NFTA_TARGET_REV:
			revision = a.Uint32()
		case unix.NFTA_TARGET_INFO:
			data = a.Value
		}
	}
	if name == targetDNAT {
		r.rule.DNAT = dnatOf(revision, data, r.addrSize)
	}
	r.rule.Other = otherTarget(name, r.rule.DNAT)
	return err
}

// nat reads nf_tables' own expression, with address and port in registers.
func (r *ruleReader) nat(body []byte) error {
	values := map[uint16]uint32{}
	var err error
	for a := range attr.All(body, &err) {
		values[a.Type] = a.Uint32()
	}
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
