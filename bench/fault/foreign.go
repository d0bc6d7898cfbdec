package fault

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	corev1 "k8s.io/api/core/v1"

	"synclab/bench/netns"
	"synclab/bench/pass"
	"synclab/bench/raw"
	"synclab/proxier/iptables"
	"synclab/proxier/kernel"
	"synclab/scenarios"
)

// The chains of foreign programs that write to the subject's tables.
const (
	referringChain = "FOREIGN-REFERENCE"
	writingChain   = "FOREIGN-WRITER"
	writingTable   = "foreign-writer" // of nftables
)

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
func (r *Faults) refer(ctx context.Context, f *scenarios.Fault, name string, lot *rand.Rand) error {
	var ends []func() error
	referred := 0
	for _, family := range r.Families {
		n, end, err := r.referIn(ctx, family, lot)
		if err != nil {
			return err
		}
		referred += n
		if end != nil {
			ends = append(ends, end)
		}
	}
	if referred == 0 {
		r.Messages.Send(pass.Message{Note: describe(name, f) + ": Services have no separate chains"})
		return nil
	}
	d, err := r.startFault(ctx, f, name, &activeFault{})
	if err != nil {
		return err
	}
	r.note(d, "refers to %d chains", referred)
	r.follow(d)
	r.hold(d, 0, func() error {
		var errs []error
		for _, end := range ends {
			errs = append(errs, end())
		}
		return errors.Join(errs...)
	})
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

func hasChain(tally map[string]int, chain string) bool { _, ok := tally[chain]; return ok }

// someOf chooses at most n names at random.
func someOf(names []string, n int, lot *rand.Rand) []string {
	slices.Sort(names)
	lot.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	return names[:min(n, len(names))]
}

// restoreForeign adds rules to tables, as another program on the node does.
func (r *Faults) restoreForeign(ctx context.Context, family corev1.IPFamily, payload *bytes.Buffer) error {
	if err := netns.Guard(); err != nil {
		return err
	}
	tool := iptables.Binary(r.KernelVariant(), family, "restore")
	path, err := iptables.FindBinary(tool)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, path, append(iptables.LockWait(r.KernelVariant()), "--noflush")...)
	cmd.Stdin = payload
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", tool, err, strings.TrimSpace(string(out)))
	}
	return nil
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

// writeInterval is the time between two writes of a competing writer, if the tool is as fast.
const writeInterval = 50 * time.Millisecond

// writer adds and deletes one of its rules over and over, and knows which rules it must have.
type writer struct {
	add, remove func() error
	// intact returns how its rules differ from what it wrote; empty: they do not.
	intact func(added bool) (string, error)
	clear  func() error
	writes atomic.Int64
	errs   atomic.Int64
}

// compete makes another program write its own rules all the time, with the subject's tool. At the end it checks that
// these rules are unchanged.
func (r *Faults) compete(ctx context.Context, f *scenarios.Fault, name string) error {
	w, err := r.newWriter(ctx)
	if err != nil {
		return err
	}
	d, err := r.startFault(ctx, f, name, &activeFault{})
	if err != nil {
		return err
	}
	r.follow(d)
	writing, stop := context.WithCancel(context.Background())
	done := make(chan bool, 1)
	go func() {
		ticker := r.Clock.NewTicker(writeInterval)
		defer ticker.Stop()
		for added := false; ; {
			select {
			case <-writing.Done():
				done <- added
				return
			case <-ticker.C():
			}
			write := w.add
			if added {
				write = w.remove
			}
			if err := write(); err != nil {
				w.errs.Add(1) // the next tick tries again
				continue
			}
			w.writes.Add(1)
			added = !added
		}
	}()
	flushes := r.flushes.Load()
	r.hold(d, f.For, func() error {
		stop()
		added := <-done
		r.note(d, "%d writes, %d that failed", w.writes.Load(), w.errs.Load())
		if r.flushes.Load() == flushes {
			wrong, err := w.intact(added)
			if err != nil {
				return err
			}
			if wrong != "" {
				r.RecordAs(raw.Record{Unit: "count", Step: d.step, Fault: d.fault, Invariant: "I7", Error: "rules of another writer: " + wrong}, raw.Violation, 1)
			}
		}
		return w.clear()
	})
	return nil
}

func (r *Faults) newWriter(ctx context.Context) (*writer, error) {
	if r.About.Nftables() {
		return r.newNftWriter()
	}
	family := r.Families[0]
	var payload bytes.Buffer
	fmt.Fprintf(&payload, "*nat\n:%s - [0:0]\n-A %s -m comment --comment first -j RETURN\n-A POSTROUTING -j %s\nCOMMIT\n",
		writingChain, writingChain, writingChain)
	if err := r.restoreForeign(ctx, family, &payload); err != nil {
		return nil, err
	}
	tool := func(args ...string) error {
		_, err := r.runTool(context.Background(), family, append([]string{"-t", "nat"}, args...)...)
		return err
	}
	second := []string{writingChain, "-m", "comment", "--comment", "second", "-j", "RETURN"}
	return &writer{
		add:    func() error { return tool(append([]string{"-A"}, second...)...) },
		remove: func() error { return tool(append([]string{"-D"}, second...)...) },
		intact: func(added bool) (string, error) {
			want := []string{"-N " + writingChain, "-A " + writingChain + " -m comment --comment first -j RETURN"}
			if added {
				want = append(want, "-A "+writingChain+" -m comment --comment second -j RETURN")
			}
			text, err := r.runTool(context.Background(), family, "-t", "nat", "-S", writingChain)
			if err != nil {
				return err.Error(), nil
			}
			if got := strings.Split(text, "\n"); !slices.Equal(got, want) {
				return fmt.Sprintf("%q, not %q", got, want), nil
			}
			if err := tool("-C", "POSTROUTING", "-j", writingChain); err != nil {
				return err.Error(), nil
			}
			return "", nil
		},
		clear: func() error {
			if tally, err := kernel.Tally(string(r.KernelVariant()), family, "nat"); err != nil || !hasChain(tally, writingChain) {
				return err // flushed meanwhile
			}
			return errors.Join(tool("-D", "POSTROUTING", "-j", writingChain), tool("-F", writingChain), tool("-X", writingChain))
		},
	}, nil
}

// newNftWriter writes to a separate table. Every commit in the namespace makes a concurrent transaction start again.
func (r *Faults) newNftWriter() (*writer, error) {
	if err := netns.Guard(); err != nil {
		return nil, err
	}
	conn, err := nftables.New()
	if err != nil {
		return nil, err
	}
	table := conn.AddTable(&nftables.Table{Family: nftables.TableFamilyIPv4, Name: writingTable})
	chain := conn.AddChain(&nftables.Chain{Name: "writer", Table: table})
	returns := []expr.Any{&expr.Verdict{Kind: expr.VerdictReturn}}
	conn.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: returns})
	if err := conn.Flush(); err != nil {
		return nil, fmt.Errorf("table %s: %w", writingTable, err)
	}
	rules := func() ([]*nftables.Rule, error) { return conn.GetRules(table, chain) }
	return &writer{
		add: func() error {
			conn.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: returns})
			return conn.Flush()
		},
		remove: func() error {
			all, err := rules()
			if err != nil || len(all) == 0 {
				return errors.Join(err, errors.New("no rule"))
			}
			if err := conn.DelRule(all[len(all)-1]); err != nil {
				return err
			}
			return conn.Flush()
		},
		intact: func(added bool) (string, error) {
			want := 1
			if added {
				want++
			}
			all, err := rules()
			if err != nil {
				return err.Error(), nil
			}
			if len(all) != want {
				return fmt.Sprintf("%d rules, not %d", len(all), want), nil
			}
			return "", nil
		},
		clear: func() error {
			conn.DelTable(table)
			return conn.Flush()
		},
	}, nil
}
