package walk

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

// nftables collects the tables of one nf_tables family and compiles them. They come from memory (nft_model.go), or from
// a kernel as messages. Names are unique within a table.
type nftables struct {
	ipv4   bool
	tables map[string]*nftTable
	chains []*nftChain // in order of arrival
	sets   []*nftSet
}

type nftTable struct {
	name   string
	chains map[string]*nftChain
	sets   map[string]*nftSet
}

type nftChain struct {
	table *nftTable
	name  string
	index int32
	rules []attributes // expressions of each rule

	base *baseChain
}

// baseChain is the hook of a base chain.
type baseChain struct {
	kind     string // "filter", "nat" or "route"
	hook     uint32 // NF_INET_PRE_ROUTING and so on
	priority int32
	drop     bool // policy
}

// newNftables makes an empty ruleset.
func newNftables(family corev1.IPFamily) *nftables {
	return &nftables{ipv4: family == corev1.IPv4Protocol, tables: map[string]*nftTable{}}
}

func (n *nftables) table(name string) *nftTable {
	if n.tables[name] == nil {
		n.tables[name] = &nftTable{name: name, chains: map[string]*nftChain{}, sets: map[string]*nftSet{}}
	}
	return n.tables[name]
}

// message adds the content of an nf_tables message. kind is one of NFT_MSG_NEWTABLE, NEWCHAIN, NEWSET, NEWSETELEM and
// NEWRULE; attrs follow its header. A rule is appended to its chain.
func (n *nftables) message(kind uint16, attrs []byte) error {
	f, err := attributes(attrs).table()
	if err != nil {
		return err
	}
	switch kind {
	case unix.NFT_MSG_NEWTABLE:
		n.table(f.text(unix.NFTA_TABLE_NAME))
		return nil
	case unix.NFT_MSG_NEWCHAIN:
		return n.newChain(f)
	case unix.NFT_MSG_NEWSET:
		return n.newSet(f)
	case unix.NFT_MSG_NEWSETELEM:
		return n.newElements(f)
	case unix.NFT_MSG_NEWRULE:
		return n.newRule(f)
	}
	return fmt.Errorf("message %d is not known", kind)
}

func (n *nftables) newChain(f fields) error {
	name := f.text(unix.NFTA_CHAIN_NAME)
	var b *baseChain
	if hook, isBase := f[unix.NFTA_CHAIN_HOOK]; isBase {
		h, err := hook.table()
		if err != nil {
			return fmt.Errorf("chain %s: %w", name, err)
		}
		_, hasPolicy := f[unix.NFTA_CHAIN_POLICY]
		b = &baseChain{
			kind: f.text(unix.NFTA_CHAIN_TYPE), hook: h.number(unix.NFTA_HOOK_HOOKNUM), priority: int32(h.number(unix.NFTA_HOOK_PRIORITY)),
			drop: hasPolicy && f.number(unix.NFTA_CHAIN_POLICY) == nfDrop,
		}
	}
	_, err := n.addChain(f.text(unix.NFTA_CHAIN_TABLE), name, b)
	return err
}

// addChain adds a chain, unless it exists; b is nil for a chain that is no base chain.
func (n *nftables) addChain(table, name string, b *baseChain) (*nftChain, error) {
	t := n.table(table)
	if c := t.chains[name]; c != nil {
		return c, nil
	}
	if b != nil && b.hook > unix.NF_INET_POST_ROUTING {
		return nil, fmt.Errorf("chain %s: hook %d is %w", name, b.hook, errNotKnown)
	}
	c := &nftChain{table: t, name: name, index: int32(len(n.chains)), base: b}
	t.chains[name] = c
	n.chains = append(n.chains, c)
	return c, nil
}

func (n *nftables) newRule(f fields) error {
	table, name := f.text(unix.NFTA_RULE_TABLE), f.text(unix.NFTA_RULE_CHAIN)
	c := n.table(table).chains[name]
	if c == nil {
		return fmt.Errorf("table %s: rule of the missing chain %s", table, name)
	}
	c.rules = append(c.rules, slices.Clone(f[unix.NFTA_RULE_EXPRESSIONS]))
	return nil
}

// rules compiles the tables. Errors name the rule.
func (n *nftables) rules() (*Rules, error) {
	r := &Rules{ipv4: n.ipv4, chains: make([]chain, len(n.chains))}
	for _, s := range n.sets {
		if err := s.compile(); err != nil {
			return nil, fmt.Errorf("table %s: set %s: %w", s.table.name, s.name, err)
		}
	}
	for i, c := range n.chains {
		rules := make(nftRules, 0, len(c.rules))
		for number, expressions := range c.rules {
			compiled, err := compileRule(expressions, c.table, n.ipv4)
			if err != nil {
				return nil, fmt.Errorf("table %s: chain %s: rule %d: %w", c.table.name, c.name, number+1, err)
			}
			rules = append(rules, compiled)
		}
		r.chains[i] = chain{table: c.table.name, name: c.name, service: isServiceChainNft(c.name), rules: rules}
		if b := c.base; b != nil {
			// The kernel numbers the hooks in the same order.
			r.bases[b.hook] = append(r.bases[b.hook], base{chain: c.index, priority: int(b.priority), nat: b.kind == "nat", drop: b.drop})
		}
	}
	for hook := range r.bases {
		slices.SortStableFunc(r.bases[hook], func(a, b base) int { return cmp.Compare(a.priority, b.priority) })
	}
	return r, nil
}

// isServiceChainNft reports whether a chain belongs to a Service in kube-proxy's nftables mode. In other rulesets a
// Service is found when the packet is translated or refused.
func isServiceChainNft(name string) bool {
	prefixes := []string{"service-", "external-", "endpoint-", "firewall-"}
	return name != "firewall-check" && name != "external-check" && slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}

// chainNamed returns the chain that a verdict jumps to.
func (t *nftTable) chainNamed(name string) (int32, error) {
	c := t.chains[name]
	if c == nil {
		return 0, fmt.Errorf("chain %q is missing", name)
	}
	return c.index, nil
}

func (t *nftTable) setNamed(name string) (*nftSet, error) {
	s := t.sets[name]
	if s == nil {
		return nil, fmt.Errorf("set %q is missing", name)
	}
	return s, nil
}

var errVerdict = errors.New("unknown verdict")

// nftVerdict is a verdict of nf_tables. The zero value is none: evaluation continues with the next rule.
type nftVerdict struct {
	kind  int32 // NFT_JUMP and so on
	chain int32
}

// The kernel's own numbers of two verdicts (include/uapi/linux/netfilter.h).
const (
	nfDrop   = 0
	nfAccept = 1
)

// The kinds of verdicts. The negative ones are the kernel's (include/uapi/linux/netfilter/nf_tables.h).
const (
	verdictNone   = 0 // the kernel's drop
	verdictAccept = 1
	verdictDrop   = 2
	verdictBreak  = unix.NFT_BREAK
	verdictJump   = unix.NFT_JUMP
	verdictGoto   = unix.NFT_GOTO
	verdictReturn = unix.NFT_RETURN
)

// namedVerdict is a verdict whose chain may not exist yet.
type namedVerdict struct {
	code  int32 // the kernel's
	chain string
}

// readVerdict parses the inside of NFTA_DATA_VERDICT.
func readVerdict(value attributes) (namedVerdict, error) {
	f, err := value.table()
	return namedVerdict{code: int32(f.number(unix.NFTA_VERDICT_CODE)), chain: f.text(unix.NFTA_VERDICT_CHAIN)}, err
}

// resolve finds the chain of a verdict.
func (t *nftTable) resolve(n namedVerdict) (v nftVerdict, err error) {
	switch n.code {
	case nfAccept:
		v.kind = verdictAccept
	case nfDrop:
		v.kind = verdictDrop
	case unix.NFT_CONTINUE:
	case unix.NFT_BREAK, unix.NFT_RETURN:
		v.kind = n.code
	case unix.NFT_JUMP, unix.NFT_GOTO:
		v.kind = n.code
		v.chain, err = t.chainNamed(n.chain)
	default:
		err = fmt.Errorf("%w: %d", errVerdict, n.code)
	}
	return v, err
}
