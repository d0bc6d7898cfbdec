package fault

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	corev1 "k8s.io/api/core/v1"

	"synclab/bench/lab/netns"
	"synclab/proxier/kernel"
	"synclab/scenarios"
)

func init() {
	register(Kind{
		Name: scenarios.FaultReference, inject: (*Faults).refer, lasts: untilCleared, shows: eachVisible,
		spares: []spare{onlyMaps, withoutFormat},
	})
}

// referringChain is the chain of a program whose rules refer to the subject's chains.
const referringChain = "FOREIGN-REFERENCE"

// mostReferences limits the referenced chains: an ordinary user's iptables-nft-restore takes some 350 rules.
const mostReferences = 256

// referTries is how often the chains to refer to are chosen anew: the subject may delete one between the read and the
// restore.
const referTries = 5

// ackedAtOnce is the number of rules per netlink batch of the lab: the kernel answers each rule, and all answers must
// fit into the socket's buffer.
const ackedAtOnce = 50

// refer makes a chain with jumps to chains of the subject's Services, so that these cannot be deleted. No packet reaches
// it. It stays until faults are cleared.
func (r *Faults) refer(ctx context.Context, d *activeFault) error {
	referred := 0
	for _, family := range r.Families {
		n, end, err := r.referIn(ctx, family, d.random)
		if err != nil {
			return err
		}
		referred += n
		if end != nil {
			d.stops = append(d.stops, end)
		}
	}
	if referred == 0 {
		r.note(d, "Services have no separate chains")
		return nil
	}
	r.start(d)
	r.note(d, "refers to %d chains", referred)
	return nil
}

func (r *Faults) referIn(ctx context.Context, family corev1.IPFamily, lot *rand.Rand) (int, func() error, error) {
	if r.About.Nftables() {
		return r.referNftables(family, lot)
	}
	var chains []string
	for try := 1; ; try++ {
		tally, err := kernel.Tally(string(r.KernelVariant()), family, "nat")
		if err != nil {
			return 0, nil, err
		}
		chains = nil
		for chain := range tally {
			if perService(chain) {
				chains = append(chains, chain)
			}
		}
		chains = someOf(chains, mostReferences, lot)
		if len(chains) == 0 {
			return 0, nil, nil
		}
		var payload bytes.Buffer
		fmt.Fprintf(&payload, "*nat\n:%s - [0:0]\n", referringChain)
		for _, chain := range chains {
			fmt.Fprintf(&payload, "-A %s -j %s\n", referringChain, chain)
		}
		payload.WriteString("COMMIT\n")
		if err = r.restoreForeign(ctx, family, &payload); err == nil {
			break
		}
		if try == referTries { // before, the subject may have deleted one of the chains
			return 0, nil, err
		}
	}
	return len(chains), func() error {
		ctx := context.Background()
		if tally, err := kernel.Tally(string(r.KernelVariant()), family, "nat"); err != nil || !hasChain(tally, referringChain) {
			return err // flushed meanwhile
		}
		_, err1 := r.runTool(ctx, family, "-t", "nat", "-F", referringChain)
		_, err2 := r.runTool(ctx, family, "-t", "nat", "-X", referringChain)
		return errors.Join(err1, err2)
	}, nil
}

// someOf chooses at most n names at random.
func someOf(names []string, n int, lot *rand.Rand) []string {
	slices.Sort(names)
	lot.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	return names[:min(n, len(names))]
}

// referNftables refers from a chain in the subject's own table: a rule cannot refer to another table of nf_tables.
func (r *Faults) referNftables(family corev1.IPFamily, lot *rand.Rand) (int, func() error, error) {
	if err := netns.Guard(); err != nil {
		return 0, nil, err
	}
	l, err := r.liveNftables(family)
	if err != nil || l == nil {
		return 0, nil, err
	}
	var names []string
	for _, chain := range l.other {
		if strings.ContainsAny(chain.Name, "/0123456789") { // chains of Services, or of what they share
			names = append(names, chain.Name)
		}
	}
	names = someOf(names, mostReferences, lot)
	if len(names) == 0 {
		return 0, nil, nil
	}
	foreign := l.conn.AddChain(&nftables.Chain{Name: referringChain, Table: l.table})
	for part := range slices.Chunk(names, ackedAtOnce) {
		for _, chain := range part {
			l.conn.AddRule(&nftables.Rule{Table: l.table, Chain: foreign, Exprs: []expr.Any{&expr.Verdict{Kind: expr.VerdictJump, Chain: chain}}})
		}
		if err := l.conn.Flush(); err != nil {
			return 0, nil, fmt.Errorf("chain %s in %s table %s: %w", referringChain, family, l.table.Name, err)
		}
	}
	return len(names), func() error {
		l, err := r.liveNftables(family)
		if err != nil || l == nil || !slices.ContainsFunc(l.other, func(c *nftables.Chain) bool { return c.Name == referringChain }) {
			return err // deleted with the table
		}
		chain := &nftables.Chain{Name: referringChain, Table: l.table}
		l.conn.FlushChain(chain)
		l.conn.DelChain(chain)
		return l.conn.Flush()
	}, nil
}
