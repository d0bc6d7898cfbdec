package fault

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"

	"synclab/bench/lab/netns"
	"synclab/bench/pass"
	"synclab/bench/raw"
	"synclab/proxier/iptables"
	"synclab/proxier/kernel"
	"synclab/scenarios"
)

func init() {
	register(Kind{
		Name: scenarios.FaultWriter, inject: (*Faults).compete, lasts: forTime, shows: changesVisible,
		spares: []spare{onlyMaps},
	})
}

// The chain or table of a competing writer.
const (
	writingChain = "FOREIGN-WRITER"
	writingTable = "foreign-writer" // of nftables
)

// writeInterval is the shortest time between two writes of a competing writer. It pauses for as long as its last write took,
// if that is longer, so that it never takes more than half of a CPU's time.
const writeInterval = 50 * time.Millisecond

// writer adds and deletes one of its rules over and over, and knows which rules it must have.
type writer struct {
	tool, waits string // as in Method and Kind of raw.WriterWait
	add, remove func() error
	// intact returns how its rules differ from what it wrote; empty: they do not.
	intact func(added bool) (string, error)
	clear  func() error
}

// compete makes two other programs write their own rules all the time: one calls iptables, the other commits to nf_tables.
// At the end it checks that these rules are unchanged.
func (r *Faults) compete(ctx context.Context, d *activeFault) error {
	var writers []*writer
	for _, begin := range []func(context.Context) (*writer, error){r.newIptablesWriter, r.newNftWriter} {
		w, err := begin(ctx)
		if err != nil && len(writers) == 0 && !r.About.Nftables() {
			return err // without it, nothing competes with the subject
		}
		if err != nil {
			r.note(d, "one writer is missing: %v", err)
			continue
		}
		d.stops = append(d.stops, w.clear)
		writers = append(writers, w)
	}
	if len(writers) == 0 {
		return errors.New("no program could be started that writes rules: see the remarks")
	}
	r.start(d)
	r.Host.OthersCommit.Add(1)
	d.stops = append(d.stops, func() error { r.Host.OthersCommit.Add(-1); return nil })
	for _, w := range writers {
		d.stops = append(d.stops, r.keepWriting(d, w))
	}
	return nil
}

// keepWriting makes a writer write until stop is called, which also checks its rules.
func (r *Faults) keepWriting(d *activeFault, w *writer) (stop func() error) {
	writing, end := context.WithCancel(context.Background())
	added, writes, failed, done := false, 0, 0, make(chan struct{})
	var first error
	go func() {
		defer close(done)
		for pause := writeInterval; pass.Wait(writing, pause) == nil; {
			write := w.add
			if added {
				write = w.remove
			}
			rec := raw.Record{Fault: d.name, Kind: w.waits, Method: w.tool}
			if step := r.Step.Load(); step != nil {
				rec.Step = *step // a long call may end in a later one
			}
			began := r.Clock.Now()
			rec.At = began.Sub(r.Started).Seconds()
			err := write()
			took := r.Clock.Since(began)
			if pause, writes = max(writeInterval, took), writes+1; err != nil {
				failed, rec.Outcome, first = failed+1, raw.WriteFailed, cmp.Or(first, err) // the next one tries again
			} else {
				added = !added
			}
			r.RecordAs(rec, raw.WriterWait, took.Seconds())
		}
	}()
	flushes := r.flushes.Load()
	return func() error {
		end()
		<-done
		if r.note(d, "%d writes with %s, %d that failed", writes, w.tool, failed); failed > 0 {
			r.note(d, "the first that failed: %v", first)
		}
		if r.flushes.Load() != flushes {
			return nil
		}
		wrong, err := w.intact(added)
		if err == nil && wrong != "" {
			r.RecordAs(raw.Record{Step: d.step, Fault: d.name, Invariant: "I7", Error: "rules of another writer: " + wrong}, raw.Violation, 1)
		}
		return err
	}
}

// newIptablesWriter calls iptables.
func (r *Faults) newIptablesWriter(ctx context.Context) (*writer, error) {
	tools, waits := r.othersIptables(), raw.WaitsForLock
	if tools.variant == iptables.Nft {
		waits = raw.WaitsForCommit
	}
	var payload bytes.Buffer
	fmt.Fprintf(&payload, "*nat\n:%s - [0:0]\n-A %s -m comment --comment first -j RETURN\n-A POSTROUTING -j %s\nCOMMIT\n",
		writingChain, writingChain, writingChain)
	if _, err := tools.run(ctx, "restore", &payload, "--noflush"); err != nil {
		return nil, err
	}
	tool := func(args ...string) error {
		_, err := tools.run(context.Background(), "", nil, append([]string{"-t", "nat"}, args...)...)
		return err
	}
	second := []string{writingChain, "-m", "comment", "--comment", "second", "-j", "RETURN"}
	return &writer{
		tool: raw.MethodIptables, waits: waits,
		add:    func() error { return tool(append([]string{"-A"}, second...)...) },
		remove: func() error { return tool(append([]string{"-D"}, second...)...) },
		intact: func(added bool) (string, error) {
			want := []string{"-N " + writingChain, "-A " + writingChain + " -m comment --comment first -j RETURN"}
			if added {
				want = append(want, "-A "+writingChain+" -m comment --comment second -j RETURN")
			}
			text, err := tools.run(context.Background(), "", nil, "-t", "nat", "-S", writingChain)
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
			if tally, err := kernel.Tally(string(tools.variant), tools.family, "nat"); err != nil || !hasChain(tally, writingChain) {
				return err // flushed meanwhile
			}
			return errors.Join(tool("-D", "POSTROUTING", "-j", writingChain), tool("-F", writingChain), tool("-X", writingChain))
		},
	}, nil
}

// newNftWriter writes to a separate table. Every commit in the namespace makes a concurrent transaction start again.
func (r *Faults) newNftWriter(context.Context) (*writer, error) {
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
		tool: raw.MethodNft, waits: raw.WaitsForCommit,
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
