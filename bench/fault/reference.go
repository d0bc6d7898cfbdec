package fault

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	corev1 "k8s.io/api/core/v1"

	"synclab/bench/lab/netns"
	"synclab/bench/pass"
	"synclab/bench/raw"
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

// refer makes a chain with jumps to chains of the subject's Services, so that these cannot be deleted (EBUSY, k/k#128829). In
// nftables, half of them are results of a map instead, as elements are that another program left. No packet reaches them. They
// stay until faults are cleared.
func (r *Faults) refer(ctx context.Context, d *activeFault) error {
	referred := 0
	for _, family := range r.Families {
		chains, end, err := r.referIn(ctx, family, d.random)
		if err != nil {
			return err
		}
		referred += len(chains)
		if end == nil {
			continue
		}
		d.stops = append(d.stops, func() error {
			if err := end(); err != nil {
				return err
			}
			since := r.Clock.Now()
			kept, err := r.staleChains(family, chains)
			if err != nil {
				return err
			}
			r.note(d, "%s: it kept %d stale chains", family, len(kept))
			r.Follower(func(ctx context.Context) { r.awaitDeleted(ctx, d, family, kept, since) })
			return nil
		})
	}
	if referred == 0 {
		r.note(d, "Services have no separate chains")
		return nil
	}
	r.start(d)
	r.note(d, "refers to %d chains", referred)
	return nil
}

// staleLook is the interval of looks at stale chains, and the largest error of the time of their deletion.
const staleLook = 100 * time.Millisecond

// awaitDeleted records when the subject has deleted the last of the stale chains that references kept.
func (r *Faults) awaitDeleted(ctx context.Context, d *activeFault, family corev1.IPFamily, kept []string, since time.Time) {
	flushes := r.flushes.Load()
	for left := kept; len(left) > 0; {
		ended := pass.Wait(ctx, staleLook) != nil
		if r.flushes.Load() != flushes { // another fault deleted them
			return
		}
		if ended {
			r.note(d, "%s: %d of %d stale chains are still there at the end", family, len(left), len(kept))
			return
		}
		var err error
		if left, err = r.staleChains(family, kept); err != nil {
			r.note(d, "%s: when stale chains are deleted is not known: %v", family, err)
			return
		}
	}
	if now := r.Clock.Now(); len(kept) > 0 {
		at := raw.Record{At: now.Sub(r.Started).Seconds(), Step: d.step, Fault: d.name, Table: string(family), Uncertainty: staleLook.Seconds()}
		r.RecordAs(at, raw.StaleChainsDeleted, now.Sub(since).Seconds())
	}
}

// staleChains returns those of some chains that are there without rules: the subject emptied them, and could not delete them.
func (r *Faults) staleChains(family corev1.IPFamily, chains []string) (stale []string, err error) {
	var tally map[string]int
	if !r.About.Nftables() {
		tally, err = kernel.Tally(string(r.KernelVariant()), family, "nat")
	} else if l, failed := r.liveNftables(family); failed != nil || l == nil {
		return nil, failed // no table has no chains
	} else {
		tally, err = rulesByChain(family, l.table.Name)
	}
	for _, chain := range chains {
		if rules, there := tally[chain]; there && rules == 0 {
			stale = append(stale, chain)
		}
	}
	return stale, err
}

func (r *Faults) referIn(ctx context.Context, family corev1.IPFamily, lot *rand.Rand) ([]string, func() error, error) {
	if r.About.Nftables() {
		return r.referNftables(family, lot)
	}
	var chains []string
	for try := 1; ; try++ {
		tally, err := kernel.Tally(string(r.KernelVariant()), family, "nat")
		if err != nil {
			return nil, nil, err
		}
		chains = nil
		for chain := range tally {
			if perService(chain) {
				chains = append(chains, chain)
			}
		}
		chains = someOf(chains, mostReferences, lot)
		if len(chains) == 0 {
			return nil, nil, nil
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
			return nil, nil, err
		}
	}
	return chains, func() error {
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

// referNftables refers from a chain and a map in the subject's own table: nothing can refer to another table of nf_tables.
func (r *Faults) referNftables(family corev1.IPFamily, lot *rand.Rand) ([]string, func() error, error) {
	if err := netns.Guard(); err != nil {
		return nil, nil, err
	}
	l, err := r.liveNftables(family)
	if err != nil || l == nil {
		return nil, nil, err
	}
	var names []string
	for _, chain := range l.other {
		if strings.ContainsAny(chain.Name, "/0123456789") { // chains of Services, or of what they share
			names = append(names, chain.Name)
		}
	}
	names = someOf(names, mostReferences, lot)
	if len(names) == 0 {
		return nil, nil, nil
	}
	foreign := l.conn.AddChain(&nftables.Chain{Name: referringChain, Table: l.table})
	elements := &nftables.Set{Table: l.table, Name: referringChain, IsMap: true, KeyType: nftables.TypeInteger, DataType: nftables.TypeVerdict}
	if err := l.conn.AddSet(elements, nil); err != nil {
		return nil, nil, fmt.Errorf("map %s: %w", referringChain, err)
	}
	for part := range slices.Chunk(names, ackedAtOnce) {
		for i, chain := range part {
			if i%2 == 1 {
				key := binary.NativeEndian.AppendUint32(nil, uint32(slices.Index(names, chain)))
				to := nftables.SetElement{Key: key, VerdictData: &expr.Verdict{Kind: expr.VerdictGoto, Chain: chain}}
				if err := l.conn.SetAddElements(elements, []nftables.SetElement{to}); err != nil {
					return nil, nil, fmt.Errorf("map %s: %w", referringChain, err)
				}
				continue
			}
			l.conn.AddRule(&nftables.Rule{Table: l.table, Chain: foreign, Exprs: []expr.Any{&expr.Verdict{Kind: expr.VerdictJump, Chain: chain}}})
		}
		if err := l.conn.Flush(); err != nil {
			return nil, nil, fmt.Errorf("chain %s in %s table %s: %w", referringChain, family, l.table.Name, err)
		}
	}
	return names, func() error {
		l, err := r.liveNftables(family)
		if err != nil || l == nil || !slices.ContainsFunc(l.other, func(c *nftables.Chain) bool { return c.Name == referringChain }) {
			return err // deleted with the table
		}
		chain := &nftables.Chain{Name: referringChain, Table: l.table}
		l.conn.FlushChain(chain)
		l.conn.DelChain(chain)
		l.conn.DelSet(&nftables.Set{Table: l.table, Name: referringChain})
		return l.conn.Flush()
	}, nil
}
