package fault

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"

	"synclab/bench/lab/netns"
	"synclab/bench/raw"
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
func (r *Faults) compete(ctx context.Context, d *activeFault) error {
	w, err := r.newWriter(ctx)
	if err != nil {
		return err
	}
	d.stops = append(d.stops, w.clear)
	r.start(d)
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
	d.stops = append(d.stops, func() error {
		stop()
		added := <-done
		r.note(d, "%d writes, %d that failed", w.writes.Load(), w.errs.Load())
		if r.flushes.Load() == flushes {
			wrong, err := w.intact(added)
			if err != nil {
				return err
			}
			if wrong != "" {
				r.RecordAs(raw.Record{Step: d.step, Fault: d.name, Invariant: "I7", Error: "rules of another writer: " + wrong}, raw.Violation, 1)
			}
		}
		return nil
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
