package visible

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"synclab/proxier/iptables"
	"synclab/proxier/kernel"
	"synclab/proxier/tracker"
)

// Both variants of iptables have the same chains, but their chains are read in different ways.

// jumps reads the rules of chains of nat.
type jumps interface {
	rules(family corev1.IPFamily, chain string) ([]kernel.Rule, error)
	texts(family corev1.IPFamily, chain string) ([]string, error) // the text of these rules
	generation() (Generation, error)
	close()
}

// chainLook reads layouts with chains KUBE-SVC-… and KUBE-SVL-…, which jump to chains KUBE-SEP-… or translate
// themselves. These are kube-proxy's layout, which is also Synclab's layout classic, and layout tree.
type chainLook struct {
	jumps
	dispatch map[corev1.IPFamily]*dispatch
}

// dispatch has the chains that the shared chains jump to, in one generation.
type dispatch struct {
	at     Generation
	chains map[string]bool
}

func (l *chainLook) Port(family corev1.IPFamily, port tracker.ServicePortName) (State, error) {
	chains := iptables.ChainsOf(port)
	cluster, err := l.endpoints(family, port, chains.Cluster)
	if err != nil {
		return State{}, err
	}
	local, err := l.endpoints(family, port, chains.Local)
	return State{Cluster: cluster, Local: local}, err
}

// endpoints returns the endpoint chains that a chain jumps to. With affinity, it jumps to each twice. A rule that
// translates to an endpoint counts as the endpoint's chain.
func (l *chainLook) endpoints(family corev1.IPFamily, port tracker.ServicePortName, chain string) ([]string, error) {
	rules, err := l.rules(family, chain)
	if err != nil {
		return nil, err
	}
	var chains []string
	for _, rule := range rules {
		switch {
		case rule.DNAT.IsValid():
			chains = append(chains, iptables.EndpointChain(port, rule.DNAT.String()))
		case iptables.IsEndpointChain(rule.Jump):
			chains = append(chains, rule.Jump)
		}
	}
	slices.Sort(chains)
	return slices.Compact(chains), nil
}

// targets returns the chains that a chain jumps to.
func (l *chainLook) targets(family corev1.IPFamily, chain string) ([]string, error) {
	rules, err := l.rules(family, chain)
	var targets []string
	for _, rule := range rules {
		if rule.Jump != "" {
			targets = append(targets, rule.Jump)
		}
	}
	return targets, err
}

// Dispatched follows the jumps from the shared chains: directly, through EXT, or through FW and EXT. Chains without a
// jump to them may stay for long, and may jump to each other. So a jump from any chain is not enough.
func (l *chainLook) Dispatched(family corev1.IPFamily, port tracker.ServicePortName) (cluster, local bool, err error) {
	chains := iptables.ChainsOf(port)
	shared, err := l.shared(family)
	if err != nil {
		return false, false, err
	}
	cluster, local = shared[chains.Cluster], shared[chains.Local]
	external := shared[chains.External]
	if !external && shared[chains.Firewall] {
		targets, err := l.targets(family, chains.Firewall)
		if err != nil {
			return false, false, err
		}
		external = slices.Contains(targets, chains.External)
	}
	if external && (!cluster || !local) {
		targets, err := l.targets(family, chains.External)
		if err != nil {
			return false, false, err
		}
		cluster = cluster || slices.Contains(targets, chains.Cluster)
		local = local || slices.Contains(targets, chains.Local)
	}
	return cluster, local, nil
}

// Unrecognised checks the rules of the port's chains. If it has none, the shared chains may jump elsewhere.
func (l *chainLook) Unrecognised(family corev1.IPFamily, port tracker.ServicePortName) (string, error) {
	own, some := iptables.ChainsOf(port), false
	for _, chain := range []string{own.Cluster, own.Local} {
		text, rules, err := l.first(family, chain, func(rule kernel.Rule) bool {
			return rule.Other || rule.Jump != "" && rule.Jump != markChain && !iptables.IsEndpointChain(rule.Jump)
		})
		if text != "" || err != nil {
			return text, err
		}
		some = some || rules > 0
	}
	if some {
		return "", nil
	}
	for _, chain := range iptables.DispatchChains {
		text, _, err := l.first(family, chain, func(rule kernel.Rule) bool {
			return rule.DNAT.IsValid() || rule.Jump != "" && !strings.HasPrefix(rule.Jump, ownPrefix)
		})
		if text != "" || err != nil {
			return text, err
		}
	}
	return "", nil
}

// first describes the first rule of a chain for which is returns true; rules is the number of rules.
func (l *chainLook) first(family corev1.IPFamily, chain string, is func(kernel.Rule) bool) (text string, rules int, err error) {
	all, err := l.rules(family, chain)
	at := slices.IndexFunc(all, is)
	if err != nil || at < 0 {
		return "", len(all), err
	}
	texts, err := l.texts(family, chain)
	if err != nil || at >= len(texts) { // the chain has changed
		return "", len(all), err
	}
	return fmt.Sprintf("table %s, chain %s: %s", iptables.NAT, chain, texts[at]), len(all), nil
}

const (
	ownPrefix = "KUBE-" // of all chains
	markChain = "KUBE-MARK-MASQ"
	// treePrefix is the prefix of the intermediate chains of layout tree.
	treePrefix = "KUBE-TREE-"
)

// shared returns the chains that the shared chains jump to, also through the chains of layout tree. It reads them once
// a generation.
func (l *chainLook) shared(family corev1.IPFamily) (map[string]bool, error) {
	at, err := l.generation()
	if err != nil {
		return nil, err
	}
	if d := l.dispatch[family]; d != nil && d.at == at {
		return d.chains, nil
	}
	chains := map[string]bool{}
	for from := slices.Clone(iptables.DispatchChains[:]); len(from) > 0; from = from[1:] {
		targets, err := l.targets(family, from[0])
		if err != nil {
			return nil, err
		}
		for _, to := range targets {
			if strings.HasPrefix(to, treePrefix) && !chains[to] {
				from = append(from, to)
			}
			chains[to] = true
		}
	}
	l.dispatch[family] = &dispatch{at, chains}
	return chains, nil
}

func (l *chainLook) Generation() (Generation, error) { return l.generation() }
func (l *chainLook) Close()                          { l.close() }

// installedChains counts the KUBE-… chains and their rules.
func installedChains(variant string, family corev1.IPFamily) (Installed, error) {
	in := Installed{Rules: map[string]int{}}
	for _, table := range []iptables.Table{iptables.NAT, iptables.Filter} {
		tally, err := kernel.Tally(variant, family, string(table))
		if err != nil {
			return Installed{}, err
		}
		in.Rules[string(table)] = 0
		for chain, rules := range tally {
			if strings.HasPrefix(chain, ownPrefix) {
				in.Rules[string(table)] += rules
				in.Chains++
			}
		}
	}
	return in, nil
}

// commits is what the readers of nf_tables have in common.
type commits struct {
	kernel *kernel.Nftables
	tables []string // all that the subject writes; the first one's name stands for them
}

func newCommits(tables ...string) (commits, error) {
	k, err := kernel.OpenNftables()
	return commits{k, tables}, err
}

func (c commits) Generation() (Generation, error) {
	id, err := c.kernel.Generation()
	return Generation{Dispatch: uint64(id)}, err
}

func (c commits) Misses() bool         { return false }
func (c commits) Blind() time.Duration { return blindPeriod }
func (c commits) Close()               { c.kernel.Close() }

func (c commits) Installed(family corev1.IPFamily) (Installed, error) {
	k, err := kernel.OpenNftables()
	if err != nil {
		return Installed{}, err
	}
	defer k.Close()
	in := Installed{Rules: map[string]int{}}
	for _, table := range c.tables {
		t, err := k.Tally(family, table)
		if err != nil {
			return Installed{}, err
		}
		in.Rules[c.tables[0]] += t.Rules
		in.Chains, in.Elements = in.Chains+t.Chains, in.Elements+t.Elements
	}
	return in, nil
}

// nft is variant nft.
type nft struct{ commits }

func newIptablesNft() (*nft, error) {
	c, err := newCommits()
	return &nft{c}, err
}

func (n *nft) found(family corev1.IPFamily) (bool, error) {
	_, there, err := n.kernel.Uses(family, string(iptables.NAT), iptables.DispatchChains[0])
	return there, err
}

func (n *nft) Look() (Snapshot, error) {
	return &chainLook{nftJumps{n}, map[corev1.IPFamily]*dispatch{}}, nil
}

func (n *nft) Endpoint(port tracker.ServicePortName, text string) string {
	return iptables.EndpointChain(port, text)
}

func (n *nft) Installed(family corev1.IPFamily) (Installed, error) {
	return installedChains(kernel.Nft, family)
}

type nftJumps struct{ *nft }

func (n nftJumps) rules(family corev1.IPFamily, chain string) ([]kernel.Rule, error) {
	return n.kernel.Rules(family, string(iptables.NAT), chain)
}

func (n nftJumps) texts(family corev1.IPFamily, chain string) ([]string, error) {
	return n.kernel.Texts(family, string(iptables.NAT), chain)
}

func (n nftJumps) generation() (Generation, error) { return n.Generation() }
func (n nftJumps) close()                          {}

// legacy is variant legacy.
type legacy struct {
	kernel   *kernel.LegacyTables
	families []corev1.IPFamily
}

func newLegacy(families []corev1.IPFamily) (*legacy, error) {
	k, err := kernel.OpenLegacy(families...)
	return &legacy{k, families}, err
}

func (l *legacy) found(family corev1.IPFamily) (bool, error) {
	table, err := l.kernel.Jumps(family, string(iptables.NAT))
	if err != nil || table == nil {
		return false, err
	}
	defer table.Close()
	return table.Has(iptables.DispatchChains[0]), nil
}

// Generation combines the tables' fingerprints: nat's for Dispatch, filter's for Rest.
func (l *legacy) Generation() (g Generation, err error) {
	for _, family := range l.families {
		for _, mixed := range []struct {
			table iptables.Table
			into  *uint64
		}{{iptables.NAT, &g.Dispatch}, {iptables.Filter, &g.Rest}} {
			fingerprint, err := l.kernel.Fingerprint(family, string(mixed.table))
			if err != nil {
				return Generation{}, err
			}
			mix(mixed.into, fingerprint)
		}
	}
	return g, nil
}

// mix is FNV-1a by words.
func mix(into *uint64, fingerprint kernel.LegacyFingerprint) {
	const prime = 1099511628211
	add := func(n uint32) { *into = (*into ^ uint64(n)) * prime }
	add(fingerprint.Entries)
	add(fingerprint.Bytes)
	for _, at := range fingerprint.Hooks {
		add(at)
	}
}

func (l *legacy) Misses() bool         { return true }
func (l *legacy) Blind() time.Duration { return blindPeriod }

func (l *legacy) Look() (Snapshot, error) {
	at, err := l.Generation()
	j := &legacyJumps{legacy: l, tables: map[corev1.IPFamily]*kernel.Jumps{}, at: at}
	return &chainLook{j, map[corev1.IPFamily]*dispatch{}}, err
}

func (l *legacy) Endpoint(port tracker.ServicePortName, text string) string {
	return iptables.EndpointChain(port, text)
}

func (l *legacy) Installed(family corev1.IPFamily) (Installed, error) {
	return installedChains(kernel.Legacy, family)
}

func (l *legacy) Close() { l.kernel.Close() }

// legacyJumps are copies of the tables, each made on first use; at is the generation after the last copy.
type legacyJumps struct {
	legacy *legacy
	tables map[corev1.IPFamily]*kernel.Jumps
	at     Generation
}

func (j *legacyJumps) rules(family corev1.IPFamily, chain string) ([]kernel.Rule, error) {
	table, err := j.table(family)
	if err != nil {
		return nil, err
	}
	return table.Rules(chain), nil
}

func (j *legacyJumps) texts(family corev1.IPFamily, chain string) ([]string, error) {
	table, err := j.table(family)
	if err != nil {
		return nil, err
	}
	return table.Texts(chain), nil
}

func (j *legacyJumps) table(family corev1.IPFamily) (*kernel.Jumps, error) {
	if _, copied := j.tables[family]; !copied {
		table, err := j.legacy.kernel.Jumps(family, string(iptables.NAT))
		if err != nil {
			return nil, err
		}
		j.tables[family] = table
		if j.at, err = j.legacy.Generation(); err != nil {
			return nil, err
		}
	}
	return j.tables[family], nil
}

func (j *legacyJumps) generation() (Generation, error) { return j.at, nil }

func (j *legacyJumps) close() {
	for _, table := range j.tables {
		table.Close()
	}
}
