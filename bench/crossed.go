package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"synclab/proxier"
	"synclab/proxier/iptables"
	"synclab/proxier/kernel"
	"synclab/proxier/walk"
)

// rulesCrossed records how many rules the first packet to each target crosses, in all hooks and tables on its way: the
// rule interpreter walks it through the rules that the kernel holds. Where a Service has several endpoints, it is the
// most that a packet may cross. Of a packet that is refused, the way of the answer does not count. Reading the rules is no part of
// what is measured. Rules that cannot be read or walked are told of, and are no failure: the times stand.
func (r *repetition) rulesCrossed(ctx context.Context, family corev1.IPFamily, targets []Target) error {
	var counts []int
	var failed error
	err := r.subject.aside(func() error {
		counts, failed = r.countCrossed(ctx, family, targets)
		return nil
	})
	switch {
	case err != nil:
		return err
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case failed != nil:
		r.say.message(message{Note: fmt.Sprintf("%s: rules crossed are not counted: %v", family, failed)})
		return nil
	}
	for i := range targets {
		rec := targets[i].record(family)
		rec.Unit = "count"
		r.recordAs(rec, RulesCrossed, float64(counts[i]))
	}
	return nil
}

func (r *repetition) countCrossed(ctx context.Context, family corev1.IPFamily, targets []Target) ([]int, error) {
	packets, world, err := r.packetsTo(family, targets)
	if err != nil {
		return nil, err
	}
	rules, err := r.rulesInKernel(ctx, family, func(rules *walk.Rules) ([]walk.Way, error) {
		var all []walk.Way
		walker := walk.New(rules, world)
		for i := range packets {
			ways, err := walker.Ways(&packets[i])
			if err != nil {
				return nil, err
			}
			all = append(all, ways...)
		}
		return all, nil
	})
	if err != nil {
		return nil, err
	}
	walker := walk.New(rules, world)
	counts := make([]int, len(packets))
	for i := range packets {
		verdict, err := walker.Walk(&packets[i])
		if err != nil {
			return nil, err
		}
		if targets[i].Kind == kindAffinityAgain {
			if verdict, err = walkAgain(walker, packets[i], verdict); err != nil {
				return nil, err
			}
		}
		counts[i] = verdict.Crossed.Total
	}
	return counts, nil
}

// walkAgain is the verdict on the second packet of a client, where first is that on its first one.
func walkAgain(walker *walk.Walker, p walk.Packet, first walk.Verdict) (walk.Verdict, error) {
	for _, outcome := range first.Outcomes {
		if outcome.To.IsValid() {
			p.After = &walk.After{Endpoint: outcome.To}
			break
		}
	}
	return walker.Walk(&p)
}

// packetsTo are the first packets to the targets, as the rules see them, and what the rules can ask for besides.
func (r *repetition) packetsTo(family corev1.IPFamily, targets []Target) ([]walk.Packet, walk.World, error) {
	node := r.nodeAddress(family)
	world := walk.World{Local: slices.Clone(r.node)}
	if !node.IsValid() {
		return nil, world, fmt.Errorf("the node has no %s address", family)
	}
	const port = 40_000 // like any other
	packets := make([]walk.Packet, len(targets))
	for i := range targets {
		from := node
		if c := targets[i].From; c != nil {
			from = c.addr
			world.Local = append(world.Local, from)
		}
		packets[i] = walk.Packet{What: targets[i].Kind, Protocol: walk.UDP, Source: netip.AddrPortFrom(from, port), Destination: targets[i].Addr}
	}
	return packets, world, nil
}

// rulesInKernel reads the subject's rules, all of them or at least those that packets meet on the ways through them.
func (r *repetition) rulesInKernel(ctx context.Context, family corev1.IPFamily, ways func(*walk.Rules) ([]walk.Way, error)) (*walk.Rules, error) {
	switch {
	case r.about.Backend == proxier.Nftables:
		return walk.ReadNftables(family, ownTables[r.about.Proxier]...)
	case r.variant == iptables.Legacy:
		return readLegacyRules(ctx, family)
	case r.variant == iptables.Nft:
		return readNftRules(ctx, family, ways)
	}
	return nil, fmt.Errorf("how %s writes rules is not known", r.Subject)
}

// walkedTables are those that a proxier writes in.
var walkedTables = []string{"mangle", "nat", "filter"}

// readLegacyRules reads whole tables, which takes iptables-legacy-save about a second for 100,000 rules.
func readLegacyRules(ctx context.Context, family corev1.IPFamily) (*walk.Rules, error) {
	binary, err := iptables.FindBinary(iptables.Binary(iptables.Legacy, family, "save"))
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	for _, table := range walkedTables {
		stamp, err := kernel.Stamp(kernel.Legacy, family, table)
		if err != nil {
			return nil, err
		}
		if stamp == 0 {
			continue // there is no such table, and saving it would make it
		}
		saved, err := output(ctx, binary, "-t", table)
		if err != nil {
			return nil, err
		}
		text.Write(saved)
	}
	return walk.ParseIptables(family, text.Bytes())
}

// readNftRules reads the rules of iptables-nft chain by chain, beginning with those of the hooks: the chains that packets
// enter are few, and iptables-nft-save takes minutes for tens of thousands of them. In chains that were not read yet packets
// end: if they went on behind them, each of n endpoints that lots are drawn among would double their ways.
func readNftRules(ctx context.Context, family corev1.IPFamily, ways func(*walk.Rules) ([]walk.Way, error)) (*walk.Rules, error) {
	binary, err := iptables.FindBinary(iptables.Binary(iptables.Nft, family, ""))
	if err != nil {
		return nil, err
	}
	n := &chainReader{binary: binary, chains: map[chainName]*readChain{}, there: map[chainName]bool{}}
	var next []chainName
	for _, table := range walkedTables {
		chains, err := kernel.Chains(kernel.Nft, family, table)
		if err != nil {
			return nil, err
		}
		for _, c := range chains {
			name := chainName{table, c.Name}
			n.there[name] = true
			if c.Builtin {
				next = append(next, name)
			}
		}
	}
	for {
		for _, name := range next {
			if err := n.read(ctx, name); err != nil {
				return nil, err
			}
		}
		rules, err := walk.ParseIptables(family, n.text())
		if err != nil {
			return nil, err
		}
		all, err := ways(rules)
		if err != nil {
			return nil, err
		}
		if next = n.entered(all); len(next) == 0 {
			return rules, nil
		}
	}
}

// chainReader holds the chains of iptables-nft that were read so far.
type chainReader struct {
	binary string
	there  map[chainName]bool // in the kernel
	chains map[chainName]*readChain
	order  []chainName
}

type chainName struct{ table, name string }

// readChain is a chain as iptables -S prints it.
type readChain struct {
	policy string   // of one that a hook enters; "-" of others
	rules  []string // "-A …"
}

func (n *chainReader) read(ctx context.Context, name chainName) error {
	out, err := output(ctx, n.binary, "-t", name.table, "-S", name.name)
	if err != nil {
		return err
	}
	c := &readChain{policy: "-"}
	for line := range strings.Lines(string(out)) {
		line = strings.TrimSpace(line)
		switch words := strings.Fields(line); {
		case len(words) == 3 && words[0] == "-P":
			c.policy = words[2]
		case len(words) > 0 && words[0] == "-A":
			c.rules = append(c.rules, line)
		}
	}
	n.chains[name], n.order = c, append(n.order, name)
	return nil
}

// text is what iptables-save would print, if what was not read dropped everything.
func (n *chainReader) text() []byte {
	var b bytes.Buffer
	for _, table := range walkedTables {
		fmt.Fprintf(&b, "*%s\n", table)
		declared, unread := map[string]bool{}, []string(nil)
		declare := func(name, policy string) {
			if !declared[name] {
				declared[name] = true
				fmt.Fprintf(&b, ":%s %s [0:0]\n", name, policy)
			}
		}
		for _, name := range n.order {
			if name.table == table {
				declare(name.name, n.chains[name].policy)
			}
		}
		for _, name := range n.order {
			if name.table != table {
				continue
			}
			for _, rule := range n.chains[name].rules {
				if to, ok := n.leadsTo(table, rule); ok && !declared[to.name] {
					declare(to.name, "-")
					unread = append(unread, to.name)
				}
			}
		}
		for _, name := range n.order {
			if name.table == table {
				for _, rule := range n.chains[name].rules {
					b.WriteString(rule + "\n")
				}
			}
		}
		for _, name := range unread {
			fmt.Fprintf(&b, "-A %s -j DROP\n", name)
		}
		b.WriteString("COMMIT\n")
	}
	return b.Bytes()
}

// leadsTo is the chain that a rule jumps or goes to; false: it does neither.
func (n *chainReader) leadsTo(table, rule string) (chainName, bool) {
	// What a rule is for comes last, behind all that may be quoted in it.
	at := max(strings.LastIndex(rule, " -j "), strings.LastIndex(rule, " -g "))
	if at < 0 {
		return chainName{}, false
	}
	target, _, _ := strings.Cut(rule[at+len(" -j "):], " ")
	name := chainName{table, target}
	return name, n.there[name]
}

// entered are the chains that packets enter by rules that they match on the ways, and that were not read yet.
func (n *chainReader) entered(ways []walk.Way) []chainName {
	var next []chainName
	for _, way := range ways {
		for _, at := range way.Matched {
			from := n.chains[chainName{at.Table, at.Chain}]
			if from == nil {
				continue // where the way ends for now
			}
			to, ok := n.leadsTo(at.Table, from.rules[at.Number])
			if ok && n.chains[to] == nil && !slices.Contains(next, to) {
				next = append(next, to)
			}
		}
	}
	return next
}

// output runs a tool that prints rules.
func output(ctx context.Context, binary string, args ...string) ([]byte, error) {
	out, err := exec.CommandContext(ctx, binary, args...).Output()
	var ended *exec.ExitError
	if errors.As(err, &ended) && len(ended.Stderr) > 0 {
		return nil, fmt.Errorf("%s %s: %w: %s", binary, strings.Join(args, " "), err, bytes.TrimSpace(ended.Stderr))
	}
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", binary, strings.Join(args, " "), err)
	}
	return out, nil
}
