package probe

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

	"synclab/bench/pass"
	"synclab/bench/raw"
	"synclab/bench/verify/walk"
	"synclab/proxier/iptables"
	"synclab/proxier/kernel"
)

// rulesCrossed records how many of the kernel's rules the first packet to each target crosses, in all hooks and tables.
// With several endpoints, it is the maximum. The answer to a refused packet does not count. If the rules cannot be read
// or evaluated, a note reports it, and the measured times remain valid.
func (r *Probes) rulesCrossed(ctx context.Context, family corev1.IPFamily, targets []Target) error {
	var counts []int
	var failed error
	err := r.Host.Subject.Aside(func() error {
		counts, failed = r.countCrossed(ctx, family, targets)
		return nil
	})
	switch {
	case err != nil:
		return err
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case failed != nil:
		r.Messages.Send(pass.Message{Note: fmt.Sprintf("%s: cannot count the rules that packets cross: %v", family, failed)})
		return nil
	}
	for i := range targets {
		r.RecordAs(targets[i].record(family), raw.RulesEvaluated, float64(counts[i]))
	}
	return nil
}

func (r *Probes) countCrossed(ctx context.Context, family corev1.IPFamily, targets []Target) ([]int, error) {
	packets, world, err := r.packetsTo(family, targets)
	if err != nil {
		return nil, err
	}
	rules, err := r.rulesInKernel(ctx, family, func(rules *walk.Rules) ([]walk.PacketPath, error) {
		var all []walk.PacketPath
		walker := walk.New(rules, world)
		for i := range packets {
			ways, err := walker.Paths(&packets[i])
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
		if targets[i].Kind == KindAffinityAgain {
			if verdict, err = walkAgain(walker, packets[i], verdict); err != nil {
				return nil, err
			}
		}
		counts[i] = verdict.Crossed.Total
	}
	return counts, nil
}

// walkAgain returns the verdict on the second packet of a client, given the verdict on its first.
func walkAgain(walker *walk.Walker, p walk.Packet, first walk.Result) (walk.Result, error) {
	for _, outcome := range first.Outcomes {
		if outcome.To.IsValid() {
			p.After = &walk.After{Endpoint: outcome.To}
			break
		}
	}
	return walker.Walk(&p)
}

// packetsTo returns the first packets to the targets as the rules see them, and the node's addresses.
func (r *Probes) packetsTo(family corev1.IPFamily, targets []Target) ([]walk.Packet, walk.NodeAddresses, error) {
	node := r.NodeAddress(family)
	world := walk.NodeAddresses{Local: slices.Clone(r.Node)}
	if !node.IsValid() {
		return nil, world, fmt.Errorf("the node has no %s address", family)
	}
	protocol := walk.UDP
	if r.protocol == corev1.ProtocolTCP {
		protocol = walk.TCP
	}
	const port = 40_000 // any port
	packets := make([]walk.Packet, len(targets))
	for i := range targets {
		from := node
		if c := targets[i].From; c != nil {
			from = c.addr
			world.Local = append(world.Local, from)
		}
		packets[i] = walk.Packet{What: targets[i].Kind, Protocol: protocol, Source: netip.AddrPortFrom(from, port), Destination: targets[i].Addr}
	}
	return packets, world, nil
}

// rulesInKernel reads the subject's rules: all of them, or at least the rules that packets meet on their ways.
func (r *Probes) rulesInKernel(ctx context.Context, family corev1.IPFamily, ways func(*walk.Rules) ([]walk.PacketPath, error)) (*walk.Rules, error) {
	switch {
	case r.About.Nftables():
		return walk.ReadNftables(family, r.About.Tables...)
	case r.About.Legacy():
		return readLegacyRules(ctx, family)
	case r.About.Iptables():
		return readNftRules(ctx, family, ways)
	}
	return nil, fmt.Errorf("cannot read the rules of %s: their format is not known", r.Subject)
}

// walkedTables are the tables that a proxier writes.
var walkedTables = []string{"mangle", "nat", "filter"}

// readLegacyRules reads whole tables. iptables-legacy-save takes about a second for 100,000 rules.
func readLegacyRules(ctx context.Context, family corev1.IPFamily) (*walk.Rules, error) {
	binary, err := iptables.FindBinary(iptables.Binary(iptables.Legacy, family, "save"))
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	for _, table := range walkedTables {
		fingerprint, err := kernel.Fingerprint(kernel.Legacy, family, table)
		if err != nil {
			return nil, err
		}
		if fingerprint == 0 {
			continue // the table does not exist, and saving it would create it
		}
		saved, err := output(ctx, binary, "-t", table)
		if err != nil {
			return nil, err
		}
		text.Write(saved)
	}
	return walk.ParseIptables(family, text.Bytes())
}

// readNftRules reads the rules of iptables-nft chain by chain, starting at the hooks. Packets enter few chains, but
// iptables-nft-save takes minutes for tens of thousands of chains. Until a chain is read, it drops packets. If packets
// continued after it, each of n endpoints chosen at random would double the number of ways.
func readNftRules(ctx context.Context, family corev1.IPFamily, ways func(*walk.Rules) ([]walk.PacketPath, error)) (*walk.Rules, error) {
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

// chainReader has the chains of iptables-nft that were read so far.
type chainReader struct {
	binary string
	there  map[chainName]bool // in the kernel
	chains map[chainName]*readChain
	order  []chainName
}

type chainName struct{ table, name string }

// readChain is a chain as iptables -S prints it.
type readChain struct {
	policy string   // of a base chain; "-" of others
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

// text returns what iptables-save would print if chains that were not read dropped everything.
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

// leadsTo returns the chain that a rule jumps or goes to; false: the rule does neither.
func (n *chainReader) leadsTo(table, rule string) (chainName, bool) {
	// The target comes last, after everything that may be quoted.
	at := max(strings.LastIndex(rule, " -j "), strings.LastIndex(rule, " -g "))
	if at < 0 {
		return chainName{}, false
	}
	target, _, _ := strings.Cut(rule[at+len(" -j "):], " ")
	name := chainName{table, target}
	return name, n.there[name]
}

// entered returns the chains that packets enter by the rules on their ways, and that were not read yet.
func (n *chainReader) entered(ways []walk.PacketPath) []chainName {
	var next []chainName
	for _, way := range ways {
		for _, at := range way.Matched {
			from := n.chains[chainName{at.Table, at.Chain}]
			if from == nil {
				continue // the way ends here for now
			}
			to, ok := n.leadsTo(at.Table, from.rules[at.Number])
			if ok && n.chains[to] == nil && !slices.Contains(next, to) {
				next = append(next, to)
			}
		}
	}
	return next
}

// output runs a tool that prints rules and returns its output.
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
