package kernel

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"synclab/proxier/kernel/attr"
	"synclab/proxier/kernel/xtables"
)

// Texts describes the rules of one chain for messages, one line of text each, with the kernel's names of expressions.
func (n *Nftables) Texts(family corev1.IPFamily, table, chain string) ([]string, error) {
	return chainRules(n, family, table, chain, func(attrs []byte, _ corev1.IPFamily) (string, error) {
		var words []string
		err := eachExpression(attrs, func(name string, body []byte) error {
			words = append(words, expressionText(name, body))
			return nil
		})
		return strings.Join(words, " "), err
	})
}

// Numbers of the kernel that have a name in a rule's text (linux/netfilter/nf_tables.h). Others stay numbers.
var (
	metaKeys     = map[uint32]string{unix.NFT_META_MARK: "mark", unix.NFT_META_L4PROTO: "l4proto", unix.NFT_META_IIFNAME: "iifname", unix.NFT_META_OIFNAME: "oifname"}
	payloadBases = map[uint32]string{unix.NFT_PAYLOAD_LL_HEADER: "link", unix.NFT_PAYLOAD_NETWORK_HEADER: "network", unix.NFT_PAYLOAD_TRANSPORT_HEADER: "transport"}
	comparisons  = map[uint32]string{unix.NFT_CMP_EQ: "==", unix.NFT_CMP_NEQ: "!=", unix.NFT_CMP_LT: "<", unix.NFT_CMP_LTE: "<=", unix.NFT_CMP_GT: ">", unix.NFT_CMP_GTE: ">="}
	verdicts     = map[int32]string{0: "drop", 1: "accept", unix.NFT_BREAK: "break", unix.NFT_JUMP: "jump", unix.NFT_GOTO: "goto", unix.NFT_RETURN: "return"}
	natTypes     = map[uint32]string{unix.NFT_NAT_SNAT: "snat", unix.NFT_NAT_DNAT: "dnat"}
)

func named[K comparable](names map[K]string, number K) string {
	if name, ok := names[number]; ok {
		return name
	}
	return fmt.Sprint(number)
}

// expressionText returns the name of an expression and its main argument.
func expressionText(name string, body []byte) string {
	values, numbers := map[uint16][]byte{}, map[uint16]uint32{}
	var torn error
	for a := range attr.All(body, &torn) {
		values[a.Type], numbers[a.Type] = a.Value, a.Uint32()
	}
	if torn != nil {
		return name
	}
	switch name {
	case "meta":
		return "meta " + named(metaKeys, numbers[unix.NFTA_META_KEY])
	case "payload":
		return fmt.Sprintf("%s header %d+%d", named(payloadBases, numbers[unix.NFTA_PAYLOAD_BASE]), numbers[unix.NFTA_PAYLOAD_OFFSET], numbers[unix.NFTA_PAYLOAD_LEN])
	case "cmp":
		return named(comparisons, numbers[unix.NFTA_CMP_OP]) + " " + dataText(values[unix.NFTA_CMP_DATA])
	case "immediate":
		return dataText(values[unix.NFTA_IMMEDIATE_DATA])
	case "lookup":
		return "lookup @" + attr.Text(values[unix.NFTA_LOOKUP_SET])
	case "nat":
		return named(natTypes, numbers[unix.NFTA_NAT_TYPE])
	case "target", "match": // the attributes of both are numbered alike
		return name + " " + attr.Text(values[unix.NFTA_TARGET_NAME])
	}
	return name
}

// dataText returns a value or a verdict as text.
func dataText(data []byte) (text string) {
	var torn error // a text for people shows what there is
	for a := range attr.All(data, &torn) {
		if a.Type == unix.NFTA_DATA_VALUE {
			text = fmt.Sprintf("%#x", a.Value)
		}
		if a.Type != unix.NFTA_DATA_VERDICT {
			continue
		}
		for v := range attr.All(a.Value, &torn) {
			switch {
			case v.Type == unix.NFTA_VERDICT_CODE && len(v.Value) == 4:
				text = named(verdicts, int32(v.Uint32()))
			case v.Type == unix.NFTA_VERDICT_CHAIN:
				text += " " + v.Text()
			}
		}
	}
	return text
}

// Texts describes the rules that Rules returns, for messages.
func (j *Jumps) Texts(chain string) (texts []string) {
	j.deciding(chain, func(e xtables.Entry, rule Rule) {
		var words []string
		eachMatch(e, j.table.Wire, func(name string, _ []byte) { words = append(words, "-m "+name) })
		switch name := string(e.TargetName()); {
		case rule.DNAT.IsValid():
			words = append(words, "-j DNAT --to-destination "+rule.DNAT.String())
		case rule.Jump != "":
			words = append(words, "-j "+rule.Jump)
		case e.IsVerdict():
			words = append(words, fmt.Sprintf("verdict %d", e.Verdict()))
		default:
			words = append(words, "-j "+name)
		}
		texts = append(texts, strings.Join(words, " "))
	})
	return texts
}
