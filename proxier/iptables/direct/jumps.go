package direct

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"synclab/proxier/iptables"
	"synclab/proxier/kernel/xtables"
)

// baseTables have base chains, in the order in which they are made.
var baseTables = []iptables.Table{iptables.Mangle, iptables.NAT, iptables.Filter}

// EnsureJumps makes what is missing of the base chains and of the jumps to them.
func (t *Tables) EnsureJumps(ctx context.Context) error {
	return t.eachBase(ctx, func(socket *xtables.Socket, table iptables.Table, in *installed) error {
		missing, err := t.missing(socket, table, in)
		if err != nil {
			return err
		}
		names := make([]string, 0, len(in.chains))
		for _, c := range in.chains[in.builtins:] {
			names = append(names, c.name)
		}
		in.Close()
		if len(missing.chains)+len(missing.jumps) > 0 {
			if _, err := t.handOver(ctx, socket, &script{segments: [][]byte{missing.payload(table)}}); err != nil {
				return fmt.Errorf("base chains and jumps: %w", err)
			}
		}
		t.mu.Lock()
		t.listed[table] = append(names, missing.chains...)
		t.mu.Unlock()
		return nil
	})
}

// Drift compares the rules of every chain with what should be there, and looks for every jump.
func (t *Tables) Drift(ctx context.Context, want iptables.Expected) (string, error) {
	found, err := t.Differing(ctx, want)
	if found != "" || err != nil {
		return found, err
	}
	err = t.eachBase(ctx, func(socket *xtables.Socket, table iptables.Table, in *installed) error {
		missing, err := t.missing(socket, table, in)
		if err == nil && len(missing.jumps) > 0 && found == "" {
			found = fmt.Sprintf("jump from %s to %s in %s is gone", missing.jumps[0].From, missing.jumps[0].To, table)
		}
		return err
	})
	return found, err
}

// eachBase reads the tables that have base chains.
func (t *Tables) eachBase(ctx context.Context, yield func(*xtables.Socket, iptables.Table, *installed) error) error {
	socket, err := xtables.Open(t.opts.Family)
	if err != nil {
		return err
	}
	defer socket.Close()
	for _, table := range baseTables {
		err := func() error {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			read, err := socket.Read(string(table), 0)
			if err != nil {
				return err
			}
			defer read.Close()
			in, err := index(read)
			if err != nil {
				return err
			}
			return yield(socket, table, in)
		}()
		if err != nil {
			return fmt.Errorf("table %s: %w", table, err)
		}
	}
	return nil
}

// base is what is missing of the chains and jumps around the proxier's rules in a table.
type base struct {
	chains []string
	jumps  []placed
}

// placed is a jump and how many rules of its chain it is to stand below.
type placed struct {
	iptables.Jump
	at int
}

// payload makes them. A chain line would empty a chain that is there.
func (b *base) payload(table iptables.Table) []byte {
	var text bytes.Buffer
	fmt.Fprintf(&text, "*%s\n", table)
	for _, chain := range b.chains {
		fmt.Fprintf(&text, ":%s - [0:0]\n", chain)
	}
	for _, j := range b.jumps {
		fmt.Fprintf(&text, "-I %s %d %s\n", j.From, j.at+1, j.Rule)
	}
	text.WriteString("COMMIT\n")
	return text.Bytes()
}

func (t *Tables) missing(socket *xtables.Socket, table iptables.Table, in *installed) (base, error) {
	var missing base
	wanted := []string{iptables.Canary}
	revisions, err := t.askRevisions(socket)
	if err != nil {
		return missing, err
	}
	jumps := iptables.BaseJumps(table)
	at := make([]int, len(jumps)) // where each stands in its chain; -1: nowhere
	for i, j := range jumps {
		wanted = append(wanted, j.To)
		if at[i], err = in.place(j, revisions); err != nil {
			return missing, fmt.Errorf("jump from %s to %s: %w", j.From, j.To, err)
		}
	}
	for i, j := range jumps {
		if at[i] < 0 {
			missing.jumps = append(missing.jumps, placed{j, iptables.Place(jumps, at, i)})
		}
	}
	for _, chain := range wanted {
		if _, there := in.find(chain); !there && !slices.Contains(missing.chains, chain) {
			missing.chains = append(missing.chains, chain)
		}
	}
	return missing, nil
}

// place is how many rules of its chain a jump stands below, -1 if it is not there: the rule is encoded as it would be in this
// table, and compared.
func (in *installed) place(j iptables.Jump, revisions revisions) (int, error) {
	to, there := in.find(j.To)
	if !there {
		return -1, nil
	}
	b, err := newBlock(0)
	if err != nil {
		return -1, err
	}
	defer b.close()
	e := encoder{wire: in.Wire, revisions: revisions, block: b, number: func([]byte) (uint32, bool) { return to, true }}
	if err := e.rule([]byte(j.Rule)); err != nil {
		return -1, err
	}
	for _, jump := range e.jumps {
		b.put32(int(jump), in.chains[to].installed.start+uint32(in.Wire.HeadSize()))
	}
	i := slices.IndexFunc(in.chains[:in.builtins], func(c chain) bool { return c.name == j.From })
	if i < 0 {
		return -1, fmt.Errorf("no built-in chain %s", j.From)
	}
	c := &in.chains[i]
	number := 0
	for at := c.installed.start; at < c.foot; number++ {
		rule, err := in.Wire.EntryAt(in.Entries, int(at))
		if err != nil {
			return -1, err
		}
		if in.Wire.Same(rule.Bytes, b.entries[:b.size]) {
			return number, nil
		}
		at += uint32(len(rule.Bytes))
	}
	return -1, nil
}

// Rules are those of some chains of a table, or of all when none is named, each as iptables-save prints it; of matches
// and targets that the proxier does not use, without their options.
func (t *Tables) Rules(table iptables.Table, chains ...string) ([]string, error) {
	socket, err := xtables.Open(t.opts.Family)
	if err != nil {
		return nil, err
	}
	defer socket.Close()
	read, err := socket.Read(string(table), 0)
	if err != nil {
		return nil, fmt.Errorf("table %s: %w", table, err)
	}
	defer read.Close()
	in, err := index(read)
	if err != nil {
		return nil, fmt.Errorf("table %s: %w", table, err)
	}
	return in.rules(chains...)
}
